"""Trainer configurations of ML-Agents become ours: each loads, keeps its numbers, no key of it is silent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import asac
from algorithm.config import ConfigError, load_config
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import field_at, value_at
from algorithm.extras.mlagents.table import TRAINERS
from algorithm.extras.mlagents.translate import translate
from main import main
from tests.extras.mlagents.mlagents_files import FILES

TASK = "unity/task"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(f"{name}.yaml").write_text(text.replace("{demos}", "demos"))
    return tmp_path


def loaded(text: str, section: str | None = None) -> LoadedConfig:
    """What a translation loads as, once it is the configuration of a task."""
    file = Path("envs", TASK, "config.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return load_config(TASK, section, seed=0, require_runnable=True)


@pytest.mark.parametrize("name", FILES)
def test_every_file_loads(name: str, folder: Path) -> None:
    text = translate(Path(f"{name}.yaml"))
    loaded(text)
    assert "ml-agents: " in text


SAID: Mapping[str, tuple[str | None, dict[str, object]]] = {
    "3DBall": (  # 12,000 / 64 = 187.5 minibatches
        None,
        {
            "algorithm": "PPO",
            "base_config.max_step": 500_000,
            "ppo_config.rollout_step": 12_000,
            "ppo_config.num_minibatch": 187,
            "ppo_config.gae_lambda": 0.99,
            "ppo_config.clip_schedule": "linear",
            "ppo_config.normalise_advantage": "rollout",
            "sac_config.learning_rate_schedule": "linear",
            "sac_config.write_summary_per_step": 12_000,
            "nn_config.v": {"dense_n": 128, "dense_depth": 2, "activation": "silu"},
        },
    ),
    "3DBall_sac": (  # a tenth of an update for a step; ln 0.5 = −0.693147
        None,
        {
            "sac_config.replay_ratio": 0.1,
            "sac_config.init_log_alpha": -0.693147,
            "sac_config.n_step": 1,
            "sac_config.use_priority": False,
            "sac_config.alpha_learning_rate": None,
            "sac_config.start_step": 0,
            "replay_config.capacity": 200_000,
            "checkpoint_config.replay": "last",
            "reward_signals.updates": 1,
        },
    ),
    "Hallway": (  # 512 / 64 = 8 sequences; 128 numbers are 64 units with two states each
        None,
        {
            "sac_config.seq_encoder": "RNN",
            "sac_config.batch_size": 8,
            "sac_config.learn_step": 64,
            "sac_config.burn_in_step": 0,
            "nn_config.rep": {"dense_n": 128, "conv": "simple", "rnn": "lstm", "rnn_n": 64},
        },
    ),
    "Hallway_ppo": (
        None,
        {"ppo_config.sequence_step": 64, "ppo_config.num_minibatch": 8},
    ),
    "Pyramids_imitation": (
        None,
        {
            "sac_config.curiosity": "FORWARD",
            "sac_config.curiosity_strength": 0.02,
            "reward_signals.curiosity.ends": False,
            "reward_signals.gail.dense_n": 128,
            "reward_signals.gail.use_actions": False,
            "demonstrations.path": "demos/ExpertPyramid.demo",
            "behavioral_cloning.strength": 0.5,
            "behavioral_cloning.steps": 150_000,
        },
    ),
    "Walker": (None, {"base_config.n_envs": 3, "ppo_config.rollout_step": 12_800}),  # 38,400 / 3
    "configuration": (  # 50,000,000 / 5 checkpoints; 20,480 / 2 players
        None,
        {
            "sac_config.save_model_per_step": 10_000_000,
            "eval_config.per_step": 10_000_000,
            "checkpoint_config.keep": 5,
            "ppo_config.rollout_step": 10_240,
            "ppo_config.shared": False,
            "base_config.env_args": {"level": 3, "-lean": True},
            "base_config.unity_args.build_path.linux": "build/Tennis",
            "base_config.env_timeout": 60,
            "self_play.window": 10,
            "self_play.save_steps": 50_000,
            "self_play.team_change": 100_000,
            "self_play.swap_steps": 2_000,
            "self_play.play_against_latest_model_ratio": 0.5,
            "self_play.initial_elo": 1200.0,
        },
    ),
    "SoccerTwos": (  # without a team change it is five times 50,000
        None,
        {
            "self_play.window": 10,
            "self_play.save_steps": 50_000,
            "self_play.steps_of_team": 250_000,
            "self_play.swap_steps": 10_000,
        },
    ),
}
"""File -> section, and values worked out by hand."""


@pytest.mark.parametrize("name", SAID)
def test_values_are_those_that_ml_agents_means(name: str, folder: Path) -> None:
    section, said = SAID[name]
    config = loaded(asac.from_mlagents(f"{name}.yaml"), section).config
    assert {key: value_at(config, tuple(key.split("."))) for key in said} == said


def test_what_ml_agents_has_written_back_is_read_as_data(folder: Path) -> None:
    """No tag is executed, wherever it stands."""
    found = loaded(asac.from_mlagents("SoccerTwos.yaml")).config
    assert (found.algorithm, found.base_config.max_step) == ("PPO", 50_000_000)
    Path("enumeration.yaml").write_text(
        "behaviors: {A: {trainer_type: !!python/object/apply:mlagents.TrainerType [sac]}}\n"
        "env_settings: {env_args: !!python/object/apply:os.mkdir [made]}"
    )
    Path("nothing.yaml").write_text(
        "behaviors: !!python/object/apply:a.B\n- !!python/name:os.abort ''\nenvironment_parameters: {a: 2}"
    )
    with pytest.raises(ConfigError, match="a list that starts with a name"):
        asac.from_mlagents("enumeration.yaml")
    assert not Path("made").exists()
    assert yaml.safe_load(asac.from_mlagents("nothing.yaml")) == {
        "default": {"environment_parameters": {"a": 2}}
    }


def test_several_behaviours_share_a_run(folder: Path) -> None:
    """20 and 5 million steps; what both have is written once."""
    found = loaded(asac.from_mlagents("WallJump_curriculum.yaml"))
    assert found.config.base_config.max_step == 25_000_000
    assert {name: one.algorithm for name, one in found.behaviours.items()} == {
        "BigWallJump": "PPO",
        "SmallWallJump": "PPO",
    }


def test_what_belongs_to_the_run_is_told_once(folder: Path) -> None:
    text = "behaviors: {A: {trainer_type: sac, threaded: true}, B: {trainer_type: ppo}}\n"
    Path("both.yaml").write_text(f"{text}checkpoint_settings: {{run_id: a}}\ndebug: true\n")
    said = asac.from_mlagents("both.yaml")
    loaded(said)
    assert (said.count("run_id"), said.count("debug: true"), said.count("threaded")) == (1, 1, 1)


def test_what_other_keys_say_of_one(folder: Path) -> None:
    """Without an extrinsic signal its strength is 0; 20 / 4 = 5 steps of the signals for an update."""
    Path("curious.yaml").write_text(
        "behaviors: {A: {trainer_type: sac, reward_signals: {curiosity: {strength: 0.1}}, "
        "hyperparameters: {steps_per_update: 20, reward_signal_steps_per_update: 4}}}"
    )
    found = loaded(asac.from_mlagents("curious.yaml")).config.reward_signals
    assert (found.extrinsic.strength, found.updates) == (0, 5)


def test_the_last_lesson_ends_nothing_and_a_threshold_has_a_length(folder: Path) -> None:
    Path("last.yaml").write_text(
        "environment_parameters: {a: {curriculum: ["
        "{name: First, value: 1, completion_criteria: {threshold: 1}}, "
        "{name: Last, value: 2, completion_criteria: {threshold: 2}}]}}"
    )
    parameters = yaml.safe_load(asac.from_mlagents("last.yaml"))["default"]["environment_parameters"]
    assert parameters["a"]["curriculum"] == [
        {"name": "First", "value": 1, "completion_criteria": {"min_lesson_length": 1, "threshold": 1}},
        {"name": "Last", "value": 2},
    ]


def test_self_play_is_of_the_run_and_elo_ends_lessons(folder: Path) -> None:
    Path("cup.yaml").write_text(
        "behaviors:\n  A: {trainer_type: ppo, self_play: {window: 3, play_against_current_self_ratio: 0.2}}\n"
        "  B: {trainer_type: sac, self_play: {window: 5}}\n  C: {trainer_type: sac}\n"
        "environment_parameters: {a: {curriculum: ["
        "{name: x, value: 1, completion_criteria: {measure: Elo, behavior: A, threshold: 1300}}, "
        "{name: y, value: 2}]}}"
    )
    said = asac.from_mlagents("cup.yaml")
    config = loaded(said).config
    assert (config.self_play.window, config.self_play.play_against_latest_model_ratio) == (3, 0.2)
    assert "window: 3 # self_play.window, that of the first behavior with self-play" in said
    assert config.parameters["a"].curriculum[0].completion_criteria.measure == "elo"
    Path("no_games.yaml").write_text(FILES["3DBall"])
    assert "self_play" not in asac.from_mlagents("no_games.yaml")


def test_the_table_names_keys_that_exist() -> None:
    names = {ours for keys in TRAINERS.values() for key in keys for ours in key.ours}
    networks = {name for name in names if re.fullmatch(r"nn_config\.(rep|policy|q|v)\.\w+", name)}
    assert [name for name in names - networks if field_at(tuple(name.split("."))) is None] == []
    wordless = [key for keys in TRAINERS.values() for key in keys if not (key.ours or key.remark)]
    assert wordless == [], "what is told is told in words"


def test_the_command_prints_the_translation(folder: Path, capsys: Any) -> None:
    assert main(["--from_mlagents", "3DBall.yaml"]) == 0
    assert capsys.readouterr().out == asac.from_mlagents("3DBall.yaml")
