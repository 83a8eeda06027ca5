"""Standard output that is closed, full, without a reader, or without our letters."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from algorithm.app.console.output import open_console
from algorithm.core.system.output import SafeOutput
from algorithm.run.signals import StopRequest

ROOT = Path(__file__).resolve().parents[2]
SAYS = """
import os, sys
from algorithm.core.system.output import make_output_safe
make_output_safe()
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


@pytest.mark.fault("F38")
def test_no_output_ends_a_program(tmp_path):
    """Closed, full, without a reader, or without our letters; all at once."""
    redirections = (">&-", ">/dev/full", "2>&-", "2>/dev/full", ">&- 2>&-", "| true", "")
    started = {}
    for number, redirection in enumerate(redirections):
        file = tmp_path / f"file{number}"
        shell = f'"$@" {redirection}' if redirection[:1] != "|" else 'exec 3>&1; ("$@"; echo $? >&3) | true'
        command = ["sh", "-c", shell, "sh", sys.executable, "-c", SAYS, str(file)]
        environment = {**os.environ, **({} if redirection else {"PYTHONIOENCODING": "ascii"})}
        pipe = subprocess.PIPE
        started[redirection, file] = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
        )
    for (redirection, file), process in started.items():
        out, err = process.communicate(timeout=60)
        gone = redirection == "| true"
        assert (int(out) if gone else process.returncode) == 7, (redirection, err)
        assert b"Traceback" not in err
        assert not file.exists() or file.read_bytes() == b""
        assert (b"the reader of the output has exited" in err) == gone
        if not redirection:
            assert out.splitlines()[0] == rb"1 \xb7 2 \xb1 3" and rb"\u03b1" in out


@pytest.mark.fault("F38")
def test_a_terminal_that_is_gone_ends_no_console():
    """As after SIGHUP: every write fails then, also those of the live panel."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, open_console(output=terminal) as console:
        console.message("there")
        assert b"there" in os.read(ours, 4096)
        os.close(ours)
        console.message("gone")
        console.warn("still going on")
        console.finish([("steps", "1")], [("go on", "python main.py")])
        assert os.path.samestat(os.fstat(theirs), Path(os.devnull).stat()), "what follows is discarded"


@pytest.mark.fault("F38")
def test_what_cannot_be_written_is_told_once_in_the_log(caplog):
    with Path("/dev/full").open("w") as full:
        stream = SafeOutput(full)
        for _ in range(3):
            print("x", file=stream, flush=True)
    (record,) = caplog.records
    assert "No space left on device" in record.message


@pytest.mark.fault("F38")
def test_who_closes_the_output_or_leaves_no_descriptor_ends_nobody_else(tmp_path, monkeypatch):
    with (tmp_path / "out.txt").open("w") as file:
        stream = SafeOutput(file)
        print("one", file=stream)
        stream.close()
        print("two", file=stream, flush=True)
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(os, "dup2", lambda *_: os.open("/proc/none", 0))  # as where none is left
        print("lost", file=SafeOutput(full), flush=True)
        patch.undo()
        print("lost too", file=SafeOutput(full), flush=True)


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
