"""Runs whose terminal misbehaves, and what is read once for several runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.run.sessions import result, run

ROOT = Path(__file__).parents[2]


def start(task: Path, *flags: str, **options: object) -> subprocess.Popen:
    """``main.py`` as a process of its own, in the folder of the fixture ``task``."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_run_outlives_the_reader_of_its_output(task):
    main = start(task, "-n", "a", stdout=subprocess.PIPE)
    main.stdout.readline()
    main.stdout.close()
    assert main.wait(60) == 0, main.stderr.read()
    assert result(task / "a")["steps"] == 260
    assert "the reader of the output is gone" in (task / "a" / "train.log").read_text()


def test_a_signal_while_a_line_waits_for_its_reader_saves_and_ends(task):
    """The pipe is filled from outside, so that the run soon hangs in a print; then the signal comes."""
    reading, writing = os.pipe()
    main = start(task, "-n", "a", "-c", "endless", "-o", "base_config.max_step=-1", stdout=writing)
    while not (task / "a" / "train.log").exists():
        assert main.poll() is None
        time.sleep(0.05)
    # Opened anew, since not to block belongs to what is opened, which the process shares.
    filling = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            os.write(filling, b" " * 4096)
        time.sleep(0.01)
    main.send_signal(signal.SIGINT)
    time.sleep(0.5)
    os.close(writing)
    os.close(filling)
    with os.fdopen(reading, "rb") as pipe:
        pipe.read()
    errors = main.communicate(timeout=60)[1]
    assert main.returncode == 130, errors
    assert "reentrant" not in errors


def test_a_replay_that_can_never_hold_a_batch_is_refused(task, capsys):
    """Episodes of 3 to 7 steps: 40 rows hold at most 35 transitions."""
    flags = ["replay_config.capacity=40", "sac_config.batch_size=38", "base_config.max_step=-1"]
    assert run("-n", "a", "-c", "counting", *(part for flag in flags for part in ("-o", flag))) == 2
    error = capsys.readouterr().err
    assert "fewer than a batch of 38" in error and "raise replay_config.capacity" in error


def test_a_simulator_that_crashes_in_the_main_process_leaves_its_stack(task):
    toy = f"base_config.env_args={{fault: die, mark: {task.parent.parent / 'mark'}}}"
    name = "base_config.env_name=tests.toys_faults:Faulty-v0"
    main = start(task, "-n", "a", "-o", name, "-o", toy, stdout=subprocess.DEVNULL)
    errors = main.communicate(timeout=60)[1]
    assert main.returncode == -signal.SIGSEGV
    assert "in _die" in errors
