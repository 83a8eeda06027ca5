"""Learning from pixels beside the peer: the same environment, the same work, the line through memory."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.config import load_config
from algorithm.replay.buffer import UniformSampler
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
harness, pixel_setting, pixels, pixels_ours, render_pixels = map(
    importlib.import_module, ("harness", "pixel_setting", "pixels", "pixels_ours", "render_pixels")
)
ASKED = Namespace(steps=3000, start_step=500, threads=1)
ANSWER = {"library": "x", "threads": 1, "steps": 3000, "updates": 250, "parameters": 1000}


def test_the_peer_builds_the_environment_of_the_preset() -> None:
    """The peer's observation is what our agent is told to expect."""
    pytest.importorskip("ale_py")
    described = json.loads(json.dumps(pixels.environment()))
    env = pixel_setting.build(described)
    spec = pixels_ours.preset_spec()
    assert spec.obs.shapes == (env.observation_space.shape,)
    assert spec.action.branches == ((env.action_space.n),)
    assert env.reset(seed=0)[0].dtype == np.uint8
    env.close()


def test_wrappers_are_built_innermost_first() -> None:
    wrappers = [{"FlattenObservation": None}, {"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 7}}]
    env = pixel_setting.build({"name": "Pendulum-v1", "args": {"g": 9.0}, "wrappers": wrappers})
    assert type(env).__name__ == "TimeLimit"
    assert type(env.env).__name__ == "FlattenObservation"
    assert env.unwrapped.g == 9.0
    env.close()


def test_our_side_does_the_work_that_was_asked_for() -> None:
    changes = pixels_ours.overrides(steps=600, start_step=100, capacity=5000)
    config = load_config(pixels_ours.PRESET, None, changes).config
    sac = config.sac_config
    assert (config.base_config.max_step, config.base_config.n_envs) == (600, 1)
    assert (sac.batch_size, sac.start_step) == (pixel_setting.BATCH_SIZE, 100)
    assert sac.replay_ratio == pytest.approx(1 / pixel_setting.STEPS_PER_UPDATE)
    assert config.replay_config.capacity == 5000


@pytest.mark.parametrize("updates", [248, 250, 252])
def test_answers_of_the_same_work_are_compared(updates: int) -> None:
    pixels.check(ANSWER | {"updates": updates}, ASKED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": 2500}, "x made 2500 updates, not 250"),
        ({"steps": 2999}, "x reports steps 2999, not 3000"),
        ({"threads": 2}, "x reports threads 2, not 1"),
    ],
)
def test_other_work_is_not_compared(changes: dict[str, int], message: str) -> None:
    with pytest.raises(harness.WorkerError, match=message):
        pixels.check(ANSWER | changes, ASKED)


def test_the_line_goes_through_the_second_half() -> None:
    """500 MB are gained up to the middle; from there on 2 MB in 1000 steps."""
    samples = [(step, min(step, 5000) / 10 + max(step - 5000, 0) / 500) for step in range(0, 10_001, 500)]
    found = pixels.memory_trend(samples)
    assert found["mb_per_1000_steps"] == pytest.approx(2.0)
    assert (found["mb_at_half"], found["mb_at_end"], found["mb_largest"]) == (500.0, 510.0, 510.0)


def test_two_values_are_no_line() -> None:
    with pytest.raises(harness.WorkerError, match="2 values of memory"):
        pixels.memory_trend([(100, 1.0), (500, 1.0), (1000, 1.0)])


def test_a_replay_is_filled_with_whole_episodes() -> None:
    """Two episodes of 1000 transitions take 2002 rows, of 3 bytes and what every row has."""
    spec = AgentSpec(ObsSpec(("obs",), ((3,),), ("uint8",)), ActionSpec((2,), 0))
    replay, _ = pixels_ours.fill(spec, UniformSampler(), 2000)
    assert replay.num_transitions == 2000
    assert len(replay) == replay.capacity == 2002


def test_parts_are_kept_when_another_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "pixels.json"
    pixels.write_part(file, "memory", [1])
    pixels.write_part(file, "long", {"steps": 2})
    pixels.write_part(file, "memory", [3])
    written = json.loads(file.read_text())
    assert (written["memory"], written["long"]) == ([3], {"steps": 2})
    assert written["env"] == pixels.environment()


@pytest.mark.parametrize(
    "arguments", [["--long-capacity=20000"], ["--transitions=999"], ["--parts", "speeed"], ["--pairs=0"]]
)
def test_a_wrong_command_is_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pixels.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        pixels.parse_arguments()
    assert stop.value.code == 2


class FakeWorker(harness.Worker):
    """A worker that answers at once: ours 100 steps/s, a quarter of it acting; theirs 50, half of it."""

    def run(self, arguments: Any, *, threads: int = 1) -> dict[str, Any]:
        seconds = 30.0 if self.name == "ours" else 60.0
        act = 0.25 if self.name == "ours" else 0.5
        time = {"act": act * seconds, "update": (1 - act) * seconds}
        told = {"seconds": seconds, "time": time, "peak_rss_mb": 400.0}
        sizes = {"uniform": 10.0, "prioritised": 20.0, "default": 100.0, "optimize_memory_usage": 50.0}
        kind = next((one.removeprefix("--kind=") for one in arguments if "--kind=" in one), "uniform")
        return {**ANSWER, **told, "computed_bytes": sizes[kind], "measured_bytes": sizes[kind] + 1}


def test_measurements_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {"ours": FakeWorker("ours", Path(), Path()), "peer": FakeWorker("peer", Path(), Path())}
    monkeypatch.setattr(pixels, "workers", lambda _: sides)
    file = tmp_path / "pixels.json"
    monkeypatch.setattr(
        sys, "argv", ["pixels.py", "--parts", "speed", "memory", "--pairs=2", f"--json={file}"]
    )
    pixels.main()
    lines = render_pixels.speed(tmp_path).splitlines()
    assert lines[2] == "| this project, SAC | 100.0 | 2.50 | 7.50 | 400 | 1,000 |"
    assert lines[3] == "| Stable-Baselines3, DQN | 50.0 | 10.00 | 10.00 | 400 | 1,000 |"
    assert lines[-1] == "Ratio of steps/s, median of pairs: 2.00 (pairs: 2.00 2.00)."
    assert render_pixels.memory(tmp_path).splitlines()[2:] == [
        "| this project, uniform | 10 | 11 | 0.100 |",
        "| this project, prioritised | 20 | 21 | 0.200 |",
        "| Stable-Baselines3, default | 100 | 101 | 1.000 |",
        "| Stable-Baselines3, optimize_memory_usage | 50 | 51 | 0.500 |",
    ]
    with pytest.raises(render_pixels.MissingError, match="pixels"):
        render_pixels.long(tmp_path)


def test_a_long_run_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 1000 steps whose memory grows by 1 MB in that time, evaluated at its end."""

    def play(jobs: Any, folder: Path, **_: Any) -> list[str]:
        run = jobs[0].run_folder(folder)
        run.mkdir(parents=True)
        rows = [f"{step},{500 + step / 1000},{-21 if step == 1000 else ''}" for step in range(100, 1001, 100)]
        (run / "metrics.csv").write_text("\n".join(["step,sys/rss_mb,eval/return_mean", *rows]) + "\n")
        return []

    monkeypatch.setattr(pixels, "train_all", play)
    monkeypatch.setattr(
        pixels.Job, "read", lambda *_: Namespace(version="abc", seconds=20.0, final=-21.0, curve=())
    )
    asked = Namespace(long_steps=1000, long_capacity=400, start_step=100, folder=tmp_path)
    found = pixels.measure_long(asked)
    assert (found["last_evaluation"], found["mb_largest"]) == (-21.0, 501.0)
    pixels.write_part(tmp_path / "pixels.json", "long", found)
    assert render_pixels.long(tmp_path).splitlines()[2] == "| 1,000 | 400 | 50.0 | 500 | 501 | 501 | +1.000 |"


def test_a_long_run_that_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "train_all", lambda *_, **__: ["pong-long-1 ended with exit code 3"])
    asked = Namespace(long_steps=1000, long_capacity=400, start_step=100, folder=tmp_path)
    with pytest.raises(harness.WorkerError, match="exit code 3"):
        pixels.measure_long(asked)
