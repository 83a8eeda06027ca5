"""Runs from the command line, with the scripted player as the build."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from algorithm.app.check.unity import BehaviourRecord
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import Observation, ResetResult, StepResult
from algorithm.env.checks.finding import Level
from main import main
from tests.unity_player.compare import read_ledgers
from tests.unity_player.test_training import write_task

RUN = Path("models/own/task/run")
WORDS = ["own/task", "-n", "run", "--device=cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def setup(folder: Path, scene: str, more: dict[str, Any], **args: Any) -> Path:
    return write_task(folder, scene, more=more, **args)


def test_a_run_is_trained_resumed_evaluated_and_played(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {
        "base_config": {"max_step": 300, "n_envs": 2},
        "sac_config": {"start_step": 50, "write_summary_per_step": 100},
        "eval_config": {"episodes": 2},
    }
    ledger = setup(folder, "two", more, period=2)
    config = folder / "envs" / "own" / "task" / "config.yaml"
    written = yaml.safe_load(config.read_text())
    written["default"]["reset_config"] = {"gravity": {"uniform": [1, 2]}}
    config.write_text(yaml.safe_dump(written))
    assert main([*WORDS, "--seed=1"]) == 0
    out = capsys.readouterr().out
    assert "two, 2 players of" in out and "Branches: 2 choices: of 3, 4" in out
    with (RUN / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {float(row["Branches/unity/Rounds/Score"]) for row in rows if row["Branches/loss/q"]}
    logs = {file.name for file in (RUN / "players").iterdir()}
    assert logs >= {"train-0.log", "train-1.log", "evaluate-0.log"}

    assert main([*WORDS, "--resume", "--max_step=400"]) == 0
    out = capsys.readouterr().out
    assert "resumed, not bit-exact" in out and "a player cannot be set back" in out
    assert json.loads((RUN / "result.json").read_text())["steps"] >= 400

    assert main([*WORDS, "--eval=2"]) == 0
    assert "a Unity player never plays the same ones again" in capsys.readouterr().out
    assert main([*WORDS, "--run", "--max_iter=1"]) == 0
    capsys.readouterr()

    lines = list(read_ledgers(ledger))
    starts = [next(line for line in one if line["kind"] == "start") for one in lines]
    assert len(starts) == 3 + 3 + 1 + 1
    assert len({start["seed"] for start in starts}) == 6, "--eval and --run begin as the first evaluation"
    scales = [{line["value"] for line in one if line.get("setting") == "time_scale"} for one in lines]
    assert scales == [{20.0}] * 7 + [{1.0}], "in real time for --run"
    graphics = ["-nographics" not in start["argv"] for start in starts]
    assert graphics == [False] * 7 + [True]
    for one in lines:
        sampled = [line["seed"] for line in one if line["kind"] == "parameter"]
        assert len(sampled) >= 2 and len(set(sampled)) == len(sampled), "another one with every reset"


def test_what_a_player_cannot_do_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup(folder, "continuous", {"base_config": {"max_step": 100}})
    for words, why in (
        (["-o", "base_config.workers=1"], "a process already"),
        (["--check", "-o", "base_config.unity_args.side_channels=[json:JSONDecoder]"], "is no side channel"),
        (["-o", "base_config.wrappers=[ClipReward]"], "no Gymnasium environment"),
        (["-o", "eval_config.wrappers=[ClipReward]"], "eval_config.wrappers"),
        (["-o", "eval_config.video=true"], "hands out no pictures"),
        (["-o", "reset_config={gravity: {unifrom: [1, 2]}}"], "no sampler 'unifrom'"),
        (["-o", "base_config.unity_args.side_channels=[json:JSONDecoder]"], "is no side channel"),
        (["-o", "ma_config.Absent.sac_config.n_step=1", "-o", "base_config.env_timeout=3"], "'Absent'"),
    ):
        try:
            code = main([*WORDS, *words])
        except SystemExit as left:
            code = int(left.code or 0)
        told = capsys.readouterr()
        assert (code, why in told.err + told.out) == (2, True), words
    assert main([*WORDS, "--quiet"]) == 0, "what failed to start has left the name free"
    capsys.readouterr()
    assert main([*WORDS, "--video"]) == 2
    assert "no video" in capsys.readouterr().err


def test_cameras_get_graphics_or_a_refusal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = setup(folder, "camera", {"base_config": {"max_step": 20}})
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(WORDS) == 2
    said = capsys.readouterr().err
    assert "images of the Unity player are black" in said and "xvfb-run -a" in said
    assert main([*WORDS, "-o", "base_config.unity_args.no_graphics=true"]) == 0
    assert "images are black: the player has no graphics" in capsys.readouterr().out
    before = len(list(read_ledgers(ledger)))
    monkeypatch.setenv("DISPLAY", ":0")
    assert main([WORDS[0], "-n", "lit", "--device=cpu"]) == 0
    assert "started anew with graphics" in capsys.readouterr().out
    starts = [lines[0]["argv"] for lines in list(read_ledgers(ledger))[before:]]
    assert [("-nographics" in argv) for argv in starts] == [True, False] * 2, "evaluation, training"


def test_a_player_for_evaluations_with_other_spaces_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = folder / "starts"
    setup(folder, "continuous", {}, fault="spaces@handshake#1", starts=str(starts), api="1.4.0")
    assert main(WORDS) == 4
    said = capsys.readouterr()
    assert "evaluations have other observations" in said.err and "shapes=((3,),)" in said.err
    assert "the player speaks protocol 1.4.0" in said.out and "this program speaks 1.5.0" in said.out


CHANNEL = """
import uuid
from mlagents_envs.side_channel import OutgoingMessage, SideChannel

class Weather(SideChannel):
    def __init__(self):
        super().__init__(uuid.UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7"))
        question = OutgoingMessage()
        question.write_string("sun")
        self.queue_message_to_send(question)

    def on_message_received(self, msg):
        raise LookupError(msg.read_string())
"""


def test_an_own_side_channel_that_raises_ends_the_run_and_restarts_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {"max_step": 100, "env_restarts": 5}
    ledger = setup(folder, "continuous", {"base_config": base})
    (folder / "envs" / "own" / "task" / "own_raising.py").write_text(CHANNEL)
    assert main([*WORDS, "-o", "base_config.unity_args.side_channels=[own_raising:Weather]"]) == 4
    said = capsys.readouterr().err
    assert "the side channel Weather has failed" in said and "LookupError: echo of sun" in said
    assert "not understood" not in said
    assert len(list(read_ledgers(ledger))) == 1


def test_a_check_shows_what_a_player_is_like(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup(folder, "two", {}, agents=2, period=3)
    assert main(["own/task", "--check"]) == 0
    out = capsys.readouterr().out
    assert "1 player of" in out and "steps/s" in out and "behaviour Branches" in out
    assert "of the choices masked" in out and "of 2 agents at once" in out and "unity/Rounds/Score" in out

    config = folder / "envs" / "own" / "task" / "config.yaml"
    written = yaml.safe_load(config.read_text())
    written["default"]["base_config"]["env_args"]["fault"] = "crash@step:20"
    config.write_text(yaml.safe_dump(written))
    assert main(["own/task", "--check"]) == 4
    assert "has ended in a step" in capsys.readouterr().out


def test_a_check_finds_black_images_though_no_agent_asks_at_the_end() -> None:
    spec = AgentSpec(ObsSpec(("eye",), ((4, 4, 3),), ("uint8",), axes=("HWC",)), ActionSpec((), 1))
    ids, obs, mask = np.zeros(1, np.int64), spec.obs.zeros(1), spec.action.all_allowed(1)
    record, yes, no = BehaviourRecord("Ball", spec), np.ones(1, np.bool_), np.zeros(1, np.bool_)
    seen = Observation(ids=ids, obs=obs, action_mask=mask)
    record.begin(ResetResult(**vars(seen)))
    result = StepResult(
        **vars(seen), reward=np.ones(1, np.float32), terminated=yes, truncated=no, final=seen, left=yes
    )
    assert not len(record.add(result, 1))
    sensors = next(record.results(no_graphics=True))
    assert [one.level for one in sensors.findings] == [Level.WARNING] and "all black" in sensors.findings[
        0
    ].what
