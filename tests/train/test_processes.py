"""Whole runs whose processes are stopped, hang, or are left by their environment without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from algorithm.runs.logs.metrics import read_metrics
from tests.run.sessions import result, run

ROOT = Path(__file__).resolve().parents[2]
SLOW = ("-c", "endless", "-o", "base_config.env_name=tests.toys_processes:Slow-v0")
SHORT = ("-o", "base_config.env_timeout=1", "-o", "eval_config.per_step=-1", "-o", "sac_config.start_step=20")


_started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def _end_what_was_started():
    yield
    while _started:
        _started.pop().kill()


def start(*flags: str) -> subprocess.Popen:
    """``main.py`` in the folder of the fixture ``task``."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,  # as a terminal gives it
    )
    _started.append(process)
    return process


@pytest.mark.fault("F22")
def test_an_interrupt_for_the_whole_group_saves_and_leaves_no_process(task):
    """As Ctrl-C in a terminal: the workers get it as well, and are still needed."""
    workers = ("-o", "base_config.workers=2", "-o", "eval_config.per_step=-1")
    process = start("-n", "a", "--agents=2", "--max_step=-1", *workers)
    while not list(task.glob("a/checkpoints/*/manifest.json")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 130, output
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert "saving and ending" in output and "Traceback" not in output
    assert (task / "a" / "result.json").exists()


@pytest.mark.fault("F34")
@pytest.mark.slow
def test_runs_that_were_stopped_go_on_as_if_nothing_had_been(task):
    """Two at a time, nearly always in a step; each, its workers too, stands still beyond its time-out."""
    steps = {"max_step": 16, "max_step_each_iter": 4, "env_timeout": 2, "env_args": "{naps: 25}"}
    flags = [part for key, value in steps.items() for part in ("-o", f"base_config.{key}={value}")]
    runs = {
        name: start("-n", name, *SLOW, *SHORT, "-o", "eval_config.episodes=1", *flags, *more)
        for name, more in {"a": (), "b": ("-o", "base_config.workers=1")}.items()
    }
    for name, process in runs.items():
        while not _has_begun(task / name / "train.log"):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
    processes = [psutil.Process(process.pid) for process in runs.values()]
    everybody = [one for each in processes for one in (each, *each.children()) if "outside" not in _line(one)]
    time.sleep(0.2)
    for one in everybody:
        one.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    for one in reversed(everybody):
        one.send_signal(signal.SIGCONT)
    for name, process in runs.items():
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 0, output
        assert result(task / name)["steps"] == 16
        assert result(task / name)["faults"]["env_restarts"] == 0, output


def _has_begun(log: Path) -> bool:
    return log.exists() and "step=1 " in log.read_text()


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


@pytest.mark.fault("F34")
@pytest.mark.slow
def test_a_hang_in_the_main_process_loses_nothing_that_was_learned(task, capsys):
    args = f"base_config.env_args={{hangs: 47, mark: {task.parent.parent / 'mark'}}}"
    hang = start("-n", "a", *SLOW, *SHORT, "-o", args)
    output = hang.communicate(timeout=60)[0]
    assert hang.returncode == 4, output
    assert "in step" in output and "error: Slow-v0 hangs in step or reset" in output
    assert (task / "a/checkpoints/step_000000046/manifest.json").exists()
    assert "the run failed" in (task / "a/train.log").read_text()
    assert (
        run("-n", "a", "--resume", "-o", "base_config.max_step=80", "-o", "base_config.env_timeout=60") == 0
    )
    said = capsys.readouterr().out
    assert "environment 0: its last step was interrupted; its open episode ends as truncated" in said
    assert "lock is taken over" not in said
    assert result(task / "a")["steps"] == 80
    assert read_metrics(task / "a" / "metrics.jsonl")["step"][-1] == 80


LEAVING = """\
import os, sys
import gymnasium as gym
from tests.toys import Endless

class Leaving(Endless):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def step(self, action):
        if self._step == 30:
            os._exit(0) if self.how == "at once" else sys.exit(0)
        return super().step(action)

gym.register("Leaving-v0", entry_point=Leaving)
"""


@pytest.mark.fault("F36")
def test_an_environment_that_leaves_ends_no_training_in_silence(task, capsys):
    (Path("task") / "leaving.py").write_text(LEAVING)
    leaving = ("-c", "endless", "-o", "base_config.env_name=leaving.py:Leaving-v0")
    flags = (*leaving, "-o", "base_config.env_args={how: politely}", "-o", "base_config.env_restarts=2")
    assert run("-n", "a", *flags) == 4
    error = capsys.readouterr().err
    assert "Leaving-v0 failed in step" in error
    assert "EnvExitError: SystemExit(0) would end the program" in error
    assert list((task / "a/checkpoints").glob("step_*")), "what was learned is saved"
    # Nobody in the process can do anything about os._exit. Who stands beside it says so, and the lock stays.
    gone = start("-n", "b", *leaving, "-o", "base_config.env_args={how: at once}")
    output = gone.communicate(timeout=60)[0]
    assert gone.returncode == 0
    assert "error: run b of task has ended without a message" in output and "os._exit" in output
    assert not (task / "b" / "result.json").exists()
    assert run("-n", "b", "--resume") == 6, "it was not saved yet"
    assert "was not ended properly" in capsys.readouterr().out


@pytest.mark.fault("F36")
def test_an_environment_that_leaves_when_it_is_imported_cannot_be_made(task, capsys):
    (Path("task") / "gone.py").write_text("raise SystemExit(0)\n")
    assert run("-n", "a", "-o", "base_config.env_name=gone.py:Gone-v0") == 4
    assert "EnvExitError: SystemExit(0) would end the program" in capsys.readouterr().err


@pytest.mark.fault("F37")
@pytest.mark.slow
def test_what_an_environment_leaves_behind_takes_nothing_from_a_finished_run(task):
    """A thread that would keep the process for ten minutes, and a ``close`` that raises; in a worker too."""
    untidy = ("-o", "base_config.env_args={untidy: true}", "-o", "base_config.workers=1")
    process = start("-n", "a", *SLOW, *SHORT, *untidy, "-o", "base_config.max_step=30")
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output
    assert result(task / "a")["steps"] == 30
    assert "Slow-v0 failed in close · RuntimeError: the door does not close" in output
    left = "warning: threads that an environment left are abandoned: simulator"
    assert left in output and left in (task / "a/workers/worker_0.log").read_text()
