"""Standard output that is closed, full, without a reader, or without our letters."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithm.app.console.output import open_console
from algorithm.core.streams import Lasting
from algorithm.train.signals import StopRequest
from tests.run.sessions import result

ROOT = Path(__file__).resolve().parents[2]
SAYS = """
import os, sys
from algorithm.core.streams import mend_streams
mend_streams()
for _ in range(3):
    print("1 · 2 ± 3", flush=True)
print("an error", file=sys.stderr)
from algorithm.app.console.output import open_console
with open_console() as console:
    console.message("α")
number = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
print("lost or shown, never in a file")
assert number > 2, "a file got the number of a closed stream"
sys.exit(7)
"""


def says(tmp_path: Path, redirection: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-c", SAYS, str(tmp_path / "file")],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.fault("F38")
@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-", "2>/dev/full", ">&- 2>&-"])
def test_no_output_ends_a_program(tmp_path, redirection):
    done = says(tmp_path, redirection)
    assert done.returncode == 7, done.stderr
    assert b"Traceback" not in done.stderr
    if (tmp_path / "file").exists():
        assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.fault("F38")
def test_a_reader_that_is_gone_ends_no_program(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", SAYS, str(tmp_path / "file")],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 7 and b"the reader of the output is gone" in done.stderr


@pytest.mark.fault("F38")
def test_a_stream_without_our_letters_shows_their_codes(tmp_path):
    done = says(tmp_path, "", PYTHONIOENCODING="ascii")
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[0] == rb"1 \xb7 2 \xb1 3" and rb"\u03b1" in done.stdout


@pytest.mark.fault("F38")
def test_a_terminal_that_is_gone_ends_no_console():
    """As after SIGHUP: every write fails then, also those of the live panel."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, open_console(stream=terminal) as console:
        console.message("there")
        os.close(ours)
        console.message("gone")
        console.warn("still going on")
        console.finish([("steps", "1")], [("go on", "python main.py")])


@pytest.mark.fault("F38")
def test_what_cannot_be_written_is_told_once_in_the_log(caplog):
    with Path("/dev/full").open("w") as full:
        stream = Lasting(full)
        for _ in range(3):
            print("x", file=stream, flush=True)
    (record,) = caplog.records
    assert "No space left on device" in record.message


@pytest.mark.fault("F38")
def test_who_closes_the_output_or_leaves_no_descriptor_ends_nobody_else(tmp_path, monkeypatch):
    with (tmp_path / "out.txt").open("w") as file:
        stream = Lasting(file)
        print("one", file=stream)
        stream.close()
        print("two", file=stream, flush=True)
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(os, "dup2", lambda *_: os.open("/proc/none", 0))  # as where none is left
        print("lost", file=Lasting(full), flush=True)
        patch.undo()
        print("lost too", file=Lasting(full), flush=True)


@pytest.mark.fault("F38")
def test_a_disk_that_becomes_full_under_the_output_ends_no_run(task):
    """For a while nothing can be written, the log neither; afterwards it says what was missed."""
    flags = ("-n=a", "-o", "base_config.max_step=-1", "-o", "eval_config.per_step=20")
    with Path("out.txt").open("w") as file:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", *flags],
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        _until(lambda: "eval step=20 " in Path("out.txt").read_text(), process)
        output = Path(f"/proc/{process.pid}/fd/1")
        for limit in (64, resource.RLIM_INFINITY):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            _until(lambda: str(output.readlink()) == os.devnull, process)
        missed = "lines that could not be written here"
        _until(lambda: missed in (task / "a/train.log").read_text(), process)
        process.terminate()
        assert process.wait(60) == 143
    finally:
        process.kill()
    assert result(task / "a")["steps"] > 20 and list((task / "a/checkpoints").glob("step_*"))


def _until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, Path("out.txt").read_text()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.fault("F38")
def test_a_whole_run_needs_no_output(task):
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", "-n=a"]
    process = subprocess.run(
        ["sh", "-c", '"$@" >&- 2>&-', "sh", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert process.returncode == 0
    assert result(task / "a")["steps"] == 260


@pytest.mark.fault("F35")
def test_a_fork_of_the_main_process_can_be_ended():
    """It inherits the handler, which is not meant for it."""
    with StopRequest() as stop:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGINT)  # from the terminal, for the run
            os.write(writing, b"still here")
            time.sleep(60)
            os._exit(0)
        assert os.read(reading, 10) == b"still here"
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM and not stop
    os.close(reading)
    os.close(writing)


@pytest.mark.fault("F38")
def test_a_terminal_that_hangs_up_twice_asks_once():
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal is signal.SIGHUP and stop.exit_code == 129
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, former)
