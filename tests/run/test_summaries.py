"""Rows of the start screen on the algorithm, the end, and the settings."""

import pytest

from algorithm.agents.off_policy import description
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.sac import SacObjective
from algorithm.app import summaries
from algorithm.app.report import settings
from algorithm.config import load_config
from algorithm.core.spec import ActionSpec


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "3-step V-trace, min of 2 critics, prioritised, batch 256, 1 update a step, learned α"),
        ({"use_replay_buffer": False}, "each window once, batch 256"),
        ({"discrete_dqn_like": True}, "greedy branches, ε 0.1"),
        ({"n_step": 1}, "1-step, min of 2 critics"),
        ({"use_target_network": False}, "min of 2 critics without target networks (CrossQ), prioritised"),
        ({"n_step": 3, "use_n_step_is": False}, "3-step uncorrected"),
        ({"n_step": 3, "use_n_step_is": "sampled"}, "3-step sampled V-trace"),
    ],
)
def test_what_learns(options, said):
    sac = SacConfig(**{"clip_epsilon": -1.0, **options})
    assert said in description._algorithm(sac, SacObjective(ActionSpec((2,)), sac))


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
