"""Whole runs on environments that are wrapped, fail, or live in other processes."""

from pathlib import Path

import pytest

from algorithm.core.errors import EnvError
from algorithm.run.context import RunContext
from algorithm.store.logs.metrics import read_metrics
from tests.lib.callbacks import watch
from tests.lib.sessions import result, run

FLAKY = """\
import gymnasium as gym
from tests.lib.toys import Endless

class Flaky(Endless):
    steps = 0  # of all copies together

    def step(self, action):
        Flaky.steps += 1
        if Flaky.steps in (23, 130):
            raise RuntimeError("the wheel came off")
        return super().step(action)

gym.register("Flaky-v0", entry_point=Flaky)
"""


@pytest.mark.fault("F12")
def test_a_failing_environment_is_started_anew_and_the_run_goes_on(task, capsys):
    (Path("task") / "flaky.py").write_text(FLAKY)
    assert run("-c", "endless", "-n", "a", "-o", "base_config.env_name=task.flaky:Flaky-v0") == 0
    found = result(task / "a")
    assert found["steps"] == 260 and found["updates"] == 40, "a failed step does not count"
    assert found["faults"]["env_restarts"] == 2
    metrics = read_metrics(task / "a" / "metrics.jsonl")
    assert metrics["fault/env_restarts"][:2] == [1.0, 2.0]
    assert metrics["replay/size"][1] == 200 + 6, "200 transitions; episodes of 22, 50, 50, 6, 50 and 22 steps"
    said = capsys.readouterr().out
    warnings = [line for line in said.splitlines() if line.startswith("warning:")]
    assert len(warnings) == 4 and all("the wheel came off" in line for line in warnings)  # each once again
    assert "flaky.py" not in said
    assert (task / "a" / "train.log").read_text().count('flaky.py", line') == 2


def test_the_environment_of_evaluations_is_made_at_the_start(task, monkeypatch):
    def see(context, purpose, *_, **__):
        if purpose == "evaluate":
            raise EnvError("no second display")

    watch(monkeypatch, RunContext, "env", see)
    assert run("-n", "a", "--quiet") == 4
    assert not (task / "a").exists()


@pytest.mark.fault("F13")
@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_does_not_close_ends_neither_its_run_nor_the_next(
    task, tmp_path, monkeypatch, capsys, workers
):
    monkeypatch.setattr("algorithm.env.pool.watchdog.CLOSE_TIMEOUT", 0.5)
    monkeypatch.setattr("algorithm.env.pool.executor.CLOSE_TIMEOUT", 0.5)
    args = f"base_config.env_args={{fault: hang, where: close, mark: {tmp_path / 'mark'}}}"
    toy = ("-o", "base_config.env_name=tests.lib.toys_faults:Faulty-v0", "-o", args)
    assert run("-n", "a", "--repeat=2", "--max_step=20", "-o", f"base_config.workers={workers}", *toy) == 0
    assert "Faulty-v0 hangs in close" in capsys.readouterr().out
    assert [result(task / name)["steps"] for name in ("a", "a_2")] == [20, 20]
