"""Runs from the command line, with the scripted player as the build."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asac
from algorithm.app.policy import _of_unity
from algorithm.core.errors import EditorStoppedError, UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.demos.npz import read_npz
from algorithm.extras.unity.testing.academy import RESET
from algorithm.run.experience.collector import LocalCollector
from main import main
from tests.extras.short_run import exit_code
from tests.extras.unity.ledgers import read_ledgers
from tests.extras.unity.test_training import write_task

RUN = Path("models/own/task/run")
WORDS = ["own/task", "-n", "run", "--device=cpu"]


def test_a_run_is_trained_resumed_evaluated_recorded_and_played(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    more = {
        "base_config": {"max_step": 150, "n_envs": 2},
        "sac_config": {"start_step": 30, "replay_ratio": 0.2, "write_summary_per_step": 40},
        "eval_config": {"episodes": 2},
        "environment_parameters": {
            "gravity": {"sampler_type": "uniform", "sampler_parameters": {"min_value": 1, "max_value": 2}}
        },
    }
    ledger = write_task(folder, "two", more=more, period=2)
    assert main([*WORDS, "--seed=1"]) == 0
    assert "two, 2 players of" in capsys.readouterr().out
    with (RUN / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {float(row["Branches/unity/Rounds/Score"]) for row in rows if row["Branches/loss/q"]}
    assert [float(row["step"]) for row in rows[-2:]] == [120, 152], "the end is no multiple of 40"
    assert rows[-1]["Branches/unity/Rounds/Score"] and rows[-1]["Branches/rollout/length"]
    logs = {file.name for file in (RUN / "players").iterdir()}
    assert logs >= {"train-0.log", "train-1.log", "evaluate-0.log"}

    assert main([*WORDS, "--resume", "--render", "--max_step=200"]) == 0
    assert "resumed, not bit-exact" in capsys.readouterr().out
    assert json.loads((RUN / "result.json").read_text())["steps"] >= 200
    assert main([*WORDS, "--eval=2", "--record=seen.npz"]) == 0
    measured = json.loads((RUN / "evaluation.json").read_text())["behaviours"]
    assert main([*WORDS, "--run", "--max_iter=1"]) == 0
    assert main([*WORDS, "--export=both.onnx"]) == 0, "a folder, and no player starts"
    assert {path.name for path in Path("both.onnx").glob("*.onnx")} == {"Continuous.onnx", "Branches.onnx"}
    action, _ = asac.load(RUN, behavior="Branches").act(
        {"shown": np.ones((3, 7))}, info={"action_mask": None}
    )
    assert action.shape == (3, 2)
    with pytest.raises(UsageError, match="several behaviors"):
        asac.load(RUN)

    lines = list(read_ledgers(ledger))
    starts = [next(line for line in one if line["kind"] == "start") for one in lines]
    assert len(starts) == 3 + 3 + 1 + 1
    assert len({start["seed"] for start in starts}) == 6, "--eval and --run begin as the first evaluation"
    scales = [{line["value"] for line in one if line.get("setting") == "time_scale"} for one in lines]
    graphics = ["-nographics" not in start["argv"] for start in starts]
    shown = [scale == {1.0} for scale in scales]
    assert shown == graphics and scales.count({20.0}) == 6
    logs = [
        start["argv"][start["argv"].index("-logFile") + 1]
        for start, is_shown in zip(starts, shown, strict=True)
        if is_shown
    ]
    assert {Path(log).name for log in logs} == {"train-0.log", "evaluate-0.log"}, (
        "with --render, and for --run"
    )
    for one in lines:
        sampled = [line["seed"] for line in one if line["kind"] == "parameter"]
        assert len(sampled) == 1, "with a player's first reset, and never again"

    capsys.readouterr()
    recorded = list(read_npz(Path("seen.npz"), None, pytest.fail))
    for name, scores in measured.items():
        totals = [float(episode.reward.sum()) for episode in recorded if episode.behaviour == name]
        assert set(scores["returns"]) <= set(totals), "recorded beside what counts may be others"
    assert len(measured) == 2


def test_sensors_by_name_become_observations_and_actions_are_choices_and_numbers() -> None:
    """Of the image the shape alone would say that its channels come first."""
    obs = ObsSpec(("eye", "a body"), ((8, 9, 12), (2,)), ("uint8", "float32"), axes=("HWC", ""))
    adapter = _of_unity(AgentSpec(obs, ActionSpec((3, 2), 1)), "both")
    assert adapter.spec.obs == obs and adapter.spec.action == ActionSpec((3, 2), 1)
    seen = {"a body": np.ones(2, np.float32), "eye": np.zeros((8, 9, 12), np.uint8)}
    assert {name: one.shape for name, one in adapter.observations.read_each([seen]).items()} == {
        "eye": (1, 8, 9, 12),
        "a body": (1, 2),
    }
    action = adapter.actions.to_env(np.array([0, 0, 1, 1, 0, 0.5], np.float32))
    assert {name: one.tolist() for name, one in action.items()} == {"discrete": [2, 0], "continuous": [0.5]}


def test_a_lesson_reaches_the_player_without_a_reset_and_an_evaluation_has_the_last(folder: Path) -> None:
    end = {"measure": "progress", "threshold": 0.5}
    lessons = [{"name": "a", "value": 4, "completion_criteria": end}, {"name": "b", "value": 8}]
    more = {
        "base_config": {"max_step": 120},
        "sac_config": {"start_step": 1000},
        "environment_parameters": {"gravity": {"curriculum": lessons}, "size": 1.5},
    }
    ledger = write_task(folder, "continuous", more=more)
    assert main([*WORDS, "--seed=1", "--quiet"]) == 0
    found = {}
    for lines in read_ledgers(ledger):
        purpose = "train" if "train-0" in " ".join(lines[0]["argv"]) else "evaluate"
        found[purpose] = [
            (line["name"], *line["numbers"]) if line["kind"] == "parameter" else "reset"
            for line in lines
            if line["kind"] == "parameter" or line.get("command") == RESET
        ]
    assert found["train"] == [("gravity", 4.0), ("size", 1.5), "reset", "reset", ("gravity", 8.0)]
    assert found["evaluate"][:3] == [("gravity", 8.0), ("size", 1.5), "reset"]
    assert {*found["evaluate"][3:]} <= {"reset"}


def test_what_a_player_cannot_do_is_refused(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    write_task(folder, "continuous", more={"base_config": {"max_step": 60}})
    for words, why in (
        (["-o", "base_config.workers=1"], "already a process"),
        (["--render"], "the Unity player cannot be shown"),
        (["--dry_run", "--editor"], "--dry_run and --editor cannot go together"),
        (
            ["--check", "-o", "base_config.unity_args.side_channels=[json:JSONDecoder]"],
            "is not a subclass",
        ),
        (["-o", "base_config.wrappers=[ClipReward]"], "a Unity player is not one"),
        (["-o", "eval_config.wrappers=[ClipReward]"], "eval_config.wrappers"),
        (["-o", "eval_config.video=true"], "returns no images"),
        (["-o", "reset_config={gravity: {uniform: [1, 2]}}"], "reset_config.gravity"),
        (["-o", "ma_config.Absent.sac_config.n_step=1", "-o", "base_config.env_timeout=2"], "'Absent'"),
    ):
        code = exit_code([*WORDS, *words])
        told = capsys.readouterr()
        assert (code, why in told.err + told.out) == (2, True), words
    assert main([*WORDS, "--quiet"]) == 0, "what failed to start has left the name free"
    assert main([*WORDS, "--video"]) == 2


def test_what_was_done_before_a_stop_in_a_reset_is_counted(folder: Path, monkeypatch: Any) -> None:
    """Any environment: all that is looked at lies outside of it."""
    real = LocalCollector._reset

    def stop(self: LocalCollector, agents: Any) -> Any:
        if not any(agents.values()):
            return real(self, agents)
        raise EditorStoppedError("the Unity Editor has stopped playing")

    monkeypatch.setattr(LocalCollector, "_reset", stop)
    words = ["Pendulum-v1", "-n", "a", "-o", "base_config.max_step_each_iter=20", "--device=cpu", "--quiet"]
    assert main([*words, "--max_step=60"]) == 130
    assert json.loads(Path("models/Pendulum-v1/a/result.json").read_text())["steps"] == 20


def test_black_images_are_told(folder: Path, capsys: Any) -> None:
    ledger = write_task(folder, "camera", more={"base_config": {"max_step": 20}})
    assert main(WORDS) == 0
    assert "images are black: Unity players have no graphics" in capsys.readouterr().out
    lit = [WORDS[0], "-n", "lit", "--device=cpu", "-o", "base_config.unity_args.no_graphics=false"]
    assert main(lit) == 0
    assert "images are black" not in capsys.readouterr().out
    starts = [lines[0]["argv"] for lines in read_ledgers(ledger)]
    assert [("-nographics" in argv) for argv in starts] == [True, True, False, False]


def test_a_player_for_evaluations_with_other_spaces_is_refused(folder: Path, capsys: Any) -> None:
    write_task(folder, "continuous", fault="spaces@handshake#1", starts=str(folder / "starts"), api="1.4.0")
    assert main(WORDS) == 4
    said = capsys.readouterr()
    assert "evaluations have other observations" in said.err and "AgentSpec" not in said.err
    assert "target 2 float32" in said.err
    assert "the player uses protocol 1.4.0" in said.out


def test_spaces_are_told_in_words_and_two_teams_as_what_they_are(folder: Path, capsys: Any) -> None:
    write_task(folder, "teams", more={"base_config": {"max_step": 40}})
    for more in (["--check"], [], ["--export=run.zip"], ["--report", "run"]):
        assert main([*WORDS, *more]) == 0
    shown = capsys.readouterr().out
    for page in (shown, (RUN / "report.html").read_text()):
        assert "Continuous?team=0 and Continuous?team=1: each learns separately" in page
        assert "self_play.window: 10 lets them share one" in page
        assert "Continuous?team=1: target 2 float32" in page
        assert "Continuous?team=1: 2 numbers in [-1, 1]" in page
    assert shown.count("and Continuous?team=1: each learns separately") == 2


def test_two_teams_play_against_past_policies_and_runs_against_each_other(folder: Path, capsys: Any) -> None:
    more = {
        "base_config": {"max_step": 120},
        "sac_config": {"start_step": 20, "write_summary_per_step": 40, "save_model_per_step": 60},
        "eval_config": {"per_step": 120, "episodes": 2},
        "self_play": {"window": 3, "save_steps": 20, "swap_steps": 10, "team_change": 40},
    }
    write_task(folder, "duel", more=more)
    assert main([*WORDS, "--seed=1"]) == 0
    rows = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    assert 1000 < rows[-1]["Duel/rollout/info/elo"] < 1400
    assert 0 <= rows[-1]["Duel/eval/info/score_vs_random"] <= 1
    assert main(["own/task", "--play_against", "run:60", "run", "random", "--eval=10", "--device=cpu"]) == 0
    assert capsys.readouterr().out.count("10 games") == 3


def test_a_check_shows_what_a_player_is_like(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    from algorithm.extras.check.context import CheckLimits

    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", lambda: CheckLimits(seconds=0.5))
    write_task(folder, "two", agents=2, period=3)
    assert main(["own/task", "--check"]) == 0
    out = capsys.readouterr().out
    told = ("1 player of", "behaviour Branches", "steps each")
    assert all(text in out for text in told), out
    crash = "base_config.env_args={fault: 'crash@step:20'}"
    assert main(["own/task", "--check", "-o", crash]) == 4
    assert "has ended in a step" in capsys.readouterr().out
