"""``ma_config`` and ``random_params``, alone and together."""

import pytest

from algorithm.config import load_config
from algorithm.config.random_params import Distribution
from tests.config.conftest import PENDULUM, places, refusal

TWO = (
    PENDULUM
    + """\
  sac_config: {n_step: 2, tau: 0.1, seed: 3}
  nn_config: {rep: {dense_n: 64, dense_depth: 2}}
  ma_config:
    Striker:
      algorithm: PPO
      sac_config: {gamma: 0.5}
      nn_config: {rep: {dense_n: 8}}
    Goalie:
    'Goalie?team=1': {sac_config: {gamma: 0.6}}
own:
  ma_config:
    Goalie: {sac_config: {seed: 4}, replay_config: {capacity: 999}}
"""
)


def random(params):
    return f"{PENDULUM}  sac_config:\n    random_params: {params}\n"


def drawn(seed):
    return dict(load_config("gym/task", seed=seed).drawn)


def test_each_named_behaviour_has_its_own_merged_configuration(task):
    task(TWO)
    loaded = load_config("gym/task")
    striker, goalie = loaded.for_behaviour("Striker"), loaded.for_behaviour("Goalie")
    assert set(loaded.behaviours) == {"Striker", "Goalie", "Goalie?team=1"}
    assert (striker.algorithm, striker.sac_config.gamma, striker.sac_config.tau) == ("PPO", 0.5, 0.1)
    assert striker.nn_config.rep == {"dense_n": 8, "dense_depth": 2}
    assert striker.base_config == loaded.config.base_config
    assert goalie == loaded.config == loaded.for_behaviour("somebody else")
    gammas = [loaded.for_behaviour(f"Goalie?team={k}").sac_config.gamma for k in range(3)]
    assert gammas == [0.99, 0.6, 0.99] and loaded.for_behaviour("Striker?team=1") == striker, (
        "a behaviour stands for all teams that are not named"
    )


def test_the_parts_of_a_behaviour_merge_over_sections(task):
    task(TWO)
    loaded = load_config("gym/task", "own", ["ma_config.Striker.sac_config.gamma=0.2", "sac_config.tau=0.5"])
    goalie, striker = loaded.for_behaviour("Goalie"), loaded.for_behaviour("Striker")
    assert (goalie.sac_config.seed, goalie.replay_config.capacity) == (4, 999)
    assert (striker.sac_config.gamma, striker.sac_config.tau) == (0.2, 0.5)
    assert (striker.sac_config.seed, loaded.seed) == (3, 3)
    loaded = load_config("gym/task", "own", seed=11)
    assert {c.sac_config.seed for c in (loaded.config, *loaded.behaviours.values())} == {11}


@pytest.mark.fault("F21")
def test_a_fault_in_a_behaviour_is_told_once_with_its_line(task):
    task(TWO.replace("gamma: 0.5", "gama: 0.5").replace("tau: 0.1", "tua: 0.1"))
    assert places(refusal("gym/task")) == [
        ("unknown key `sac_config.tua`", "envs/gym/task/config.yaml:5"),
        ("unknown key `sac_config.gama`", "envs/gym/task/config.yaml:10"),
    ]


@pytest.mark.parametrize(
    ("params", "possible"),
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
    found = [load_config("gym/task", seed=seed) for seed in range(10)]
    assert len({str(loaded.drawn) for loaded in found}) > 1
    for loaded in found:
        assert possible(loaded.config.sac_config)
        ((path, value),) = loaded.drawn.items()
        assert getattr(loaded.config.sac_config, path.removeprefix("sac_config.")) == value


def test_parameters_do_not_disturb_each_other(task):
    task(random("{tau: {truncated: [0.1, 0.9]}}"))
    alone = drawn(1)
    assert drawn(1) == alone != drawn(2)
    task(
        random("{gamma: {truncated: [0.1, 0.9]}, tau: {truncated: [0.1, 0.9]}}")
        + "  eval_config: {random_params: {episodes: {in: [4]}}}\n"
    )
    both = drawn(1)
    assert both["sac_config.tau"] == alone["sac_config.tau"] != both["sac_config.gamma"]
    assert both["eval_config.episodes"] == 4


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


def test_each_behaviour_draws_for_itself_and_its_distributions_are_handed_out(task):
    task(
        random("{tau: {std: 0.1}, n_step: {std: 2, truncated: [1, 6]}, gamma: {truncated: ['0.9', 1]}}")
        + "    tau: 0.5\n    n_step: 3\n    gamma: 0.95\n"
        + "  ma_config: {A: {replay_config: {random_params: {alpha: {in: [0.5, 0.7]}}}}}\n"
    )
    loaded = load_config("gym/task", seed=1)
    common = {
        "sac_config.tau": Distribution("normal", 0.5, 0.1),
        "sac_config.n_step": Distribution("normal", 3, 2.0, (1.0, 6.0), whole=True),
        "sac_config.gamma": Distribution("uniform", 0.95, bounds=(0.9, 1.0)),
    }
    of_a = {f"ma_config.A.{path}": one for path, one in common.items()}
    of_a["ma_config.A.replay_config.alpha"] = Distribution("choice", choices=(0.5, 0.7))
    assert dict(loaded.distributions) == common | of_a
    taken = [loaded.config.sac_config.tau, loaded.for_behaviour("A").sac_config.tau]
    assert taken == [loaded.drawn["sac_config.tau"], loaded.drawn["ma_config.A.sac_config.tau"]]
    assert taken[0] != taken[1]
