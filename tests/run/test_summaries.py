"""What the start screen says of observations and of the algorithm."""

import pytest

from algorithm.agents.off_policy import description
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.sac import SacObjective
from algorithm.app import summaries
from algorithm.app.report import settings
from algorithm.config import load_config
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.run.evaluation.evaluate import Performance

OBS = ObsSpec(
    ("gear", "keys", "speed", "film"),
    ((), (2,), (3,), (4, 84, 84)),
    ("uint8", "uint8", "float32", "uint8"),
    categories=((5,), (2, 3), (), ()),
    stacks=(1, 1, 1, 4),
)
SPEC = AgentSpec(OBS, ActionSpec((2,)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"seq_encoder": "RNN", "burn_in_step": 5, "learn_step": 10},
            "recurrent, 5 steps of burn-in, 10 learned",
        ),
        ({"seq_encoder": "RNN", "refresh_carry": True}, "states stored and refreshed"),
        (
            {"seq_encoder": "ATTN", "burn_in_step": 5, "learn_step": 10},
            "attention to the last 5 steps, 10 learned",
        ),
    ],
)
def test_what_remembers(options, said):
    ((title, text),) = description._memory(SacConfig(**options))
    assert title == "memory" and said in text
    assert not description._memory(SacConfig())


@pytest.mark.parametrize(
    ("returns", "said"), [((2.0,), "2.0, 1 episode, step 7"), ((2.0, 2.0), "2 episodes")]
)
def test_how_many_episodes_an_evaluation_had(returns, said):
    assert said in summaries._performance(7, Performance(returns, (1,) * len(returns)))


def test_what_is_seen():
    assert f"{SPEC.obs}" == (
        "gear one of 5, keys 2 choices, speed 3 float32, film 4×84×84 uint8, each frame stored once"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "3-step V-trace, prioritised, batch 256, 1 update a step, learned α"),
        ({"use_replay_buffer": False}, "each window once, batch 256"),
        ({"discrete_dqn_like": True}, "greedy branches, ε 0.1"),
        ({"n_step": 1}, "1-step, prioritised"),
        ({"n_step": 3, "use_n_step_is": False}, "3-step uncorrected"),
        ({"n_step": 3, "use_n_step_is": "sampled"}, "3-step sampled V-trace"),
    ],
)
def test_what_learns(options, said):
    sac = SacConfig(**{"clip_epsilon": -1.0, **options})
    assert said in description._algorithm(sac, SacObjective(SPEC.action, sac))


STOP = "(base_config.stop_at_return)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "at 100,000 steps (default; base_config.max_step)"),
        (["max_step=5e3"], "at 5,000 steps"),
        (["max_step=100000"], "at 100,000 steps"),
        (["random_params={max_step: {in: [70]}}"], "at 70 steps"),
        (
            ["max_iter=50"],
            "at 50 iterations or 100,000 steps (default; base_config.max_step), whichever comes first",
        ),
        (["max_iter=50", "max_step=-1"], "at 50 iterations"),
        (
            ["max_step=70", "stop_at_return=9"],
            f"at 70 steps or an evaluation of 9 {STOP}, whichever comes first",
        ),
        (["max_step=-1"], "when it is stopped: base_config.max_step and max_iter set no limit"),
    ],
)
def test_when_it_ends(tmp_path, given, said):
    (tmp_path / "config.yaml").write_text("default: {base_config: {env_type: GYM, env_name: Pendulum-v1}}")
    loaded = load_config(str(tmp_path), overrides=[f"base_config.{text}" for text in given])
    assert summaries._end(loaded) == said
    of_learn = summaries._end(loaded, 2_000)
    assert "2,000 steps (this call of learn)" in of_learn and "max_step" not in of_learn


def test_where_settings_come_from(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "default: {inherited: seed, base_config: {env_type: GYM, env_name: Pendulum-v1}, "
        "sac_config: {tau: 0.1, n_step: 2}}"
    )
    loaded = load_config(str(tmp_path), overrides=["sac_config.seq_encoder=RNN", "sac_config.batch_size=9"])
    rows = settings.config_rows(loaded)
    assert ("inherited", "seed, which ships with the framework") in rows
    assert ("sac_config.learn_step", f"{loaded.config.sac_config.learn_step} (memory)") in rows
    assert ("sac_config.batch_size", "9") in rows
    tried = load_config(str(tmp_path), flags={"algorithm": "PPO"})
    assert ("left out", "sac_config.tau, sac_config.n_step (not for PPO)") in settings.config_rows(tried)
