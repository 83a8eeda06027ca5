"""A run with worker processes that is ended from outside, a real one: nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def start() -> subprocess.Popen:
    """An endless run with two workers, in a session of its own as a terminal would give it."""
    flags = [
        "base_config.max_step=-1",
        "base_config.n_envs=2",
        "base_config.workers=2",
        "eval_config.per_step=-1",
    ]
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", "-n", "a"]
    return subprocess.Popen(
        [*command, *(part for flag in flags for part in ("-o", flag))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def family(process: subprocess.Popen, task: Path) -> list[psutil.Process]:
    """The run's child processes, as soon as it has saved for the first time."""
    for _ in range(600):
        if list(task.glob("a/checkpoints/*/manifest.json")):
            return psutil.Process(process.pid).children(recursive=True)
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.1)
    process.kill()
    raise AssertionError("it did not begin within a minute")


@pytest.mark.fault("F22")
def test_an_interrupt_for_the_whole_group_saves_and_leaves_no_process(task):
    """As Ctrl-C in a terminal: the workers get it as well, and are still needed."""
    process = start()
    children = family(process, task)
    assert len(children) >= 2
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 130, output
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert "saving and ending" in output and "Traceback" not in output
    assert (task / "a" / "result.json").exists()
