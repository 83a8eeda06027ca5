"""``ma_config`` and ``random_params``, alone and together."""

import pytest

from algorithm.config import load_config
from algorithm.config.random_params import Distribution
from tests.config.conftest import PENDULUM, refusal

TWO = (
    PENDULUM
    + """\
  sac_config: {n_step: 2, tau: 0.1, seed: 3}
  nn_config: {rep: {dense_n: 64, dense_depth: 2}}
  ma_config:
    Striker:
      sac_config: {n_step: 5}
      nn_config: {rep: {dense_n: 8}}
    Goalie:
own:
  ma_config:
    Goalie: {sac_config: {seed: 4}, replay_config: {capacity: 999}}
"""
)


def random(params, block="sac_config"):
    return f"{PENDULUM}  {block}:\n    random_params: {params}\n"


def drawn(seed, section=None):
    return dict(load_config("gym/task", section, seed=seed).drawn)


def test_each_named_behaviour_has_its_own_merged_configuration(task):
    task(TWO)
    loaded = load_config("gym/task")
    striker, goalie = loaded.for_behaviour("Striker"), loaded.for_behaviour("Goalie")
    assert set(loaded.behaviours) == {"Striker", "Goalie"}
    assert (striker.sac_config.n_step, striker.sac_config.tau) == (5, 0.1)
    assert striker.nn_config.rep == {"dense_n": 8, "dense_depth": 2}
    assert striker.base_config == loaded.config.base_config
    assert goalie == loaded.config == loaded.for_behaviour("somebody else")


def test_a_behaviour_stands_for_all_teams_that_are_not_named(task):
    parts = "{Goalie: {sac_config: {gamma: 0.5}}, 'Goalie?team=1': {sac_config: {gamma: 0.6}}}"
    task(f"{PENDULUM}  ma_config: {parts}\n")
    loaded = load_config("gym/task")
    gammas = [loaded.for_behaviour(f"Goalie?team={k}").sac_config.gamma for k in range(3)]
    assert gammas == [0.5, 0.6, 0.5]
    assert loaded.for_behaviour("Striker?team=0") == loaded.config


def test_a_behaviour_may_name_its_algorithm(task):
    task(f"{PENDULUM}  algorithm: SAC\n  ma_config: {{A: {{algorithm: SAC}}, B: null}}\n")
    loaded = load_config("gym/task", overrides=["ma_config.B.algorithm=SAC"])
    assert {config.algorithm for config in (loaded.config, *loaded.behaviours.values())} == {"SAC"}


def test_the_parts_of_a_behaviour_merge_over_sections(task):
    task(TWO)
    loaded = load_config("gym/task", "own", ["ma_config.Striker.sac_config.tau=0.2", "sac_config.gamma=0.5"])
    goalie, striker = loaded.for_behaviour("Goalie"), loaded.for_behaviour("Striker")
    assert (goalie.sac_config.seed, goalie.replay_config.capacity) == (4, 999)
    assert (striker.sac_config.n_step, striker.sac_config.tau, striker.sac_config.gamma) == (5, 0.2, 0.5)
    assert (striker.sac_config.seed, loaded.seed) == (3, 3)


def test_a_seed_from_the_command_line_is_that_of_every_behaviour(task):
    task(TWO)
    loaded = load_config("gym/task", "own", seed=11)
    assert {c.sac_config.seed for c in (loaded.config, *loaded.behaviours.values())} == {11}


@pytest.mark.fault("F21")
def test_a_fault_in_a_behaviour_is_told_once_with_its_line(task):
    task(TWO.replace("n_step: 5", "n_stp: 5").replace("tau: 0.1", "tua: 0.1"))
    places = [(problem.what, problem.where) for problem in refusal("gym/task").problems]
    assert places == [
        ("unknown key `sac_config.tua`", "envs/gym/task/config.yaml:5"),
        ("unknown key `sac_config.n_stp`", "envs/gym/task/config.yaml:9"),
    ]


@pytest.mark.parametrize(
    "params, possible",
    [
        ("{n_step: {in: [2, 4]}}", lambda sac: sac.n_step in (2, 4)),
        ("{use_priority: {in: [true, false]}}", lambda sac: isinstance(sac.use_priority, bool)),
        ("{tau: {truncated: [0.1, 0.2]}}", lambda sac: 0.1 <= sac.tau <= 0.2),
        ("{n_step: {std: 9, truncated: [2.5, 4.5]}}", lambda sac: sac.n_step in (3, 4)),
        ("{n_step: {truncated: [2, 3]}}", lambda sac: sac.n_step in (2, 3) and type(sac.n_step) is int),
        ("{gamma: {std: 5, truncated: [0.9, 0.95]}}", lambda sac: 0.9 <= sac.gamma <= 0.95),
        ("{batch_size: {std: 1.5}}", lambda sac: type(sac.batch_size) is int and 240 < sac.batch_size < 270),
    ],
)
def test_draws_keep_to_their_distribution(task, params, possible):
    task(random(params))
    found = [load_config("gym/task", seed=seed) for seed in range(20)]
    assert all(possible(loaded.config.sac_config) for loaded in found)
    assert len({str(loaded.drawn) for loaded in found}) > 1
    for loaded in found:
        ((path, value),) = loaded.drawn.items()
        assert getattr(loaded.config.sac_config, path.removeprefix("sac_config.")) == value


def test_a_normal_draw_lies_around_the_configured_value(task):
    task(random("{tau: {std: 0.01}}") + "    tau: 0.5\n")
    values = [load_config("gym/task", seed=seed).config.sac_config.tau for seed in range(200)]
    mean = sum(values) / 200
    # standard error 0.01 / sqrt(200) = 0.0007; the sample deviation is 0.01 ± 0.0005
    assert abs(mean - 0.5) < 0.003
    assert 0.008 < (sum((v - mean) ** 2 for v in values) / 200) ** 0.5 < 0.012


def test_the_seed_alone_decides_and_parameters_do_not_disturb_each_other(task):
    task(random("{tau: {truncated: [0.1, 0.9]}}"))
    alone = drawn(1)
    assert drawn(1) == alone != drawn(2)
    task(random("{gamma: {truncated: [0.1, 0.9]}, tau: {truncated: [0.1, 0.9]}}"))
    both = drawn(1)
    assert both["sac_config.tau"] == alone["sac_config.tau"] != both["sac_config.gamma"]


def test_every_block_of_numbers_can_draw(task):
    task(
        PENDULUM
        + "    random_params: {n_envs: {in: [3]}}\n"
        + "  replay_config: {random_params: {capacity: {in: [1000]}}}\n"
        + "  eval_config: {random_params: {episodes: {in: [4]}}}\n"
    )
    config = load_config("gym/task").config
    assert (config.base_config.n_envs, config.replay_config.capacity, config.eval_config.episodes) == (
        3,
        1000,
        4,
    )


def test_draws_are_made_for_each_behaviour(task):
    task(
        random("{tau: {truncated: [0.1, 0.9]}}")
        + "  ma_config: {A: null, B: {sac_config: {random_params: {gamma: {in: [0.25]}}}}}\n"
    )
    loaded = load_config("gym/task", seed=1)
    assert set(loaded.drawn) == {
        "sac_config.tau",
        "ma_config.A.sac_config.tau",
        "ma_config.B.sac_config.tau",
        "ma_config.B.sac_config.gamma",
    }
    taus = {c.sac_config.tau for c in (loaded.config, *loaded.behaviours.values())}
    assert len(taus) == 3
    assert (loaded.for_behaviour("A").sac_config.gamma, loaded.for_behaviour("B").sac_config.gamma) == (
        0.99,
        0.25,
    )


def test_a_run_draws_what_it_always_drew(task):
    """A seed that was noted down brings its values back: these were drawn when this test was new."""
    task(
        random(
            "{learning_rate: {std: 1e-4, truncated: [1e-4, 1e-3]}, tau: {std: 0.001}, batch_size: {std: 20}, "
            "n_step: {truncated: [1, 6]}, v_rho: {truncated: [1, 2]}, clip_epsilon: {in: [0.1, 0.2, 0.3]}}"
        )
    )
    assert drawn(3) == {
        "sac_config.learning_rate": 0.0007887502019791402,
        "sac_config.tau": 0.01201548628258315,
        "sac_config.batch_size": 269,
        "sac_config.n_step": 4,
        "sac_config.v_rho": 1.2618334428803482,
        "sac_config.clip_epsilon": 0.3,
    }


def test_distributions_are_handed_out_beside_what_was_drawn(task):
    task(
        random("{tau: {std: 0.1}, n_step: {std: 2, truncated: [1, 6]}, gamma: {truncated: [0.9, 1]}}")
        + "    tau: 0.5\n    n_step: 3\n    gamma: 0.95\n"
        + "  ma_config: {A: {replay_config: {random_params: {alpha: {in: [0.5, 0.7]}}}}}\n"
    )
    loaded = load_config("gym/task", seed=1)
    assert loaded.distributions.keys() == loaded.drawn.keys()
    own = dict(loaded.distributions)
    assert own == {
        "sac_config.tau": Distribution("normal", 0.5, 0.1),
        "sac_config.n_step": Distribution("normal", 3, 2.0, (1.0, 6.0), whole=True),
        "sac_config.gamma": Distribution("uniform", 0.95, bounds=(0.9, 1.0)),
        "ma_config.A.sac_config.tau": Distribution("normal", 0.5, 0.1),
        "ma_config.A.sac_config.n_step": Distribution("normal", 3, 2.0, (1.0, 6.0), whole=True),
        "ma_config.A.sac_config.gamma": Distribution("uniform", 0.95, bounds=(0.9, 1.0)),
        "ma_config.A.replay_config.alpha": Distribution("choice", choices=(0.5, 0.7)),
    }


@pytest.mark.fault("F21")
@pytest.mark.parametrize(
    "params, said",
    [
        ("{learning_rte: {in: [1]}}", "did you mean `learning_rate`"),
        ("{seed: {in: [1]}}", "keys: "),
        ("{tau: 3}", "write one of"),
        ("{tau: {}}", "write one of"),
        ("{tau: {mean: 3}}", "write one of"),
        ("{tau: {in: []}}", "`in` needs a list"),
        ("{tau: {in: [0.1], std: 1}}", "goes with nothing else"),
        ("{tau: {std: -1}}", "`std` needs a number"),
        ("{tau: {std: .inf}}", "`std` needs a number"),
        ("{tau: {truncated: [2, 1]}}", "lo ≤ hi"),
        ("{tau: {truncated: [1]}}", "lo ≤ hi"),
        ("{tau: {truncated: 1}}", "lo ≤ hi"),
        ("{n_step: {truncated: [1.2, 1.8]}}", "no whole number"),
        ("{nn: {std: 1}}", "is not a number"),
        ("3", "it must be a mapping"),
        ("{tau: {in: [7]}}", "wrong value `sac_config.tau: 7`"),
    ],
)
def test_wrong_draws_are_told_with_their_line(task, params, said):
    task(random(params))
    error = refusal("gym/task")
    assert len(error.problems) == 1 and said in str(error), str(error)
    assert error.problems[0].where == "envs/gym/task/config.yaml:6"


@pytest.mark.fault("F21")
def test_a_block_without_numbers_has_nothing_to_draw(task):
    task(random("{rep: {in: [1]}}", "nn_config"))
    assert "belongs inside a block of numbers" in str(refusal("gym/task"))
