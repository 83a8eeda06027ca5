"""One process a run: who holds it, who may take it over, and what the others are told."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from algorithm.core.errors import StorageError, UsageError
from algorithm.store.copies import copy_run
from algorithm.store.lock import Holder, RunLock
from algorithm.store.rundir import RunDir
from tests.lib.small_disk import child

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.fault("F24")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.lock"


@pytest.fixture(params=["kernel locks", "none"])
def file_system(request, monkeypatch):
    """With locks of the kernel and without."""
    if request.param == "none":

        def flock(*_):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", flock)


def changed(holder, **changes):
    return holder.model_copy(update=changes)


def gone():
    """The holder that a process left behind which has ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        holder = changed(Holder.me(), pid=process.pid, started=psutil.Process(process.pid).create_time())
        process.kill()
    return holder


def refused(path):
    with pytest.raises(UsageError) as caught, RunLock(path, notice=pytest.fail):
        pass
    return str(caught.value)


def beside(path):
    """What else is in the folder."""
    return {entry.name for entry in path.parent.iterdir()} - {path.name}


def test_a_copy_of_a_run_takes_none_of_its_locks(tmp_path, file_system):
    run = RunDir("task", "run", tmp_path / "run", "task")
    run.path.mkdir()
    (run.path / "config.yaml").write_text("a: 1")
    copy_run(run, tmp_path / "copy", replace=False, notice=pytest.fail)
    assert {entry.name for entry in (tmp_path / "copy").iterdir()} == {"config.yaml"}


def test_the_lock_says_who_holds_it_and_goes_with_him(path, file_system):
    with pytest.raises(KeyboardInterrupt), RunLock(path, notice=pytest.fail):
        value = json.loads(path.read_text())
        assert value == Holder.me().model_dump()
        assert (value["pid"], value["host"]) == (os.getpid(), socket.gethostname())
        message = refused(path)
        for part in (f"process {os.getpid()} on", Holder.me().since, str(path), f"kill {os.getpid()}"):
            assert part in message
        raise KeyboardInterrupt
    assert not path.exists() and beside(path) == set()


@pytest.mark.fault("F39")
def test_a_folder_is_the_same_as_long_as_the_lock_in_it_is(path):
    folder = path.parent / "run"
    folder.mkdir()
    with RunLock(folder / "run.lock", notice=pytest.fail) as lock:
        text = (folder / "run.lock").read_text()
        lock._folder += 1  # as some network file systems do when they are mounted anew
        lock.check()
        lock._folder -= 1
        (folder / "run.lock").unlink()
        lock.check()
        folder.rename(path.parent / "other")
        folder.mkdir()
        with pytest.raises(StorageError, match="another folder is in its place"):
            lock.check()
        (folder / "run.lock").write_text(text.replace('"pid": ', '"pid": 1'))
        with pytest.raises(StorageError, match="another process has taken it"):
            lock.check()
    assert (folder / "run.lock").exists(), "somebody else's"


def test_whoever_removes_the_file_does_not_get_the_run(path, file_system, request):
    no_kernel_locks = request.node.callspec.params["file_system"] == "none"
    with RunLock(path, notice=pytest.fail):
        path.unlink()
        assert "it is not named there" in refused(path)
        path.write_text(gone().text)
        assert ("rm " in refused(path)) == no_kernel_locks, "those that are held are never removed"


def test_any_thread_may_release_it_and_twice(path, file_system):
    """As the watchdog does when the main thread hangs."""
    with RunLock(path, notice=pytest.fail) as held:
        thread = threading.Thread(target=held.release)
        thread.start()
        thread.join()
        with RunLock(path, notice=pytest.fail):
            held.release()
            assert f"process {os.getpid()} on" in refused(path)
    assert beside(path) == set()


def test_a_lock_of_another_machine_is_refused_with_the_way_out(path, file_system):
    holder = changed(gone(), host="elsewhere")
    path.write_text(holder.text)
    message = refused(path)
    assert "on elsewhere" in message and f"rm {path}" in message and f"kill {holder.pid}" not in message
    assert beside(path) == set()


def test_the_lock_of_a_killed_process_is_taken_over(path, file_system):
    (theirs, ours), told = os.pipe(), []

    def killed() -> None:
        with RunLock(path, notice=pytest.fail):
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            os.read(theirs, 1)  # such as a simulator, which goes on for a while
            os._exit(0)

    assert child(killed) == signal.SIGKILL
    holder = Holder.read(path.read_text())
    with RunLock(path, notice=told.append):
        assert path.read_text() == Holder.me().text
    os.write(ours, b"x")
    (notice,) = told
    assert f"process {holder.pid}" in notice and "taking over" in notice
    assert not path.exists() and beside(path) == set()


def test_who_of_this_machine_lives(path):
    """A number used again is another process; one that nobody has buried is gone."""
    with subprocess.Popen(["sleep", "60"]) as process:
        holder = changed(Holder.me(), pid=process.pid, started=psutil.Process(process.pid).create_time())
        assert holder.is_running and not changed(holder, started=1e9).is_running
        path.write_text(holder.text)  # and the file of its kernel lock was removed
        assert f"kill {process.pid}" in refused(path) and path.read_text() == holder.text
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not holder.is_running
    assert not holder.is_running and changed(holder, host="elsewhere").is_running


def forged(**changes: object) -> str:
    """A lock of this machine in which somebody has changed something."""
    return json.dumps({**json.loads(Holder.me().text), **changes})


DAMAGED = ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "host": 1}', "[" * 100_000, '{"pid": 1e999}']
DAMAGED += [forged(pid=-1), forged(pid=0), forged(pid=2**40), forged(pid=True), forged(pid=1.0)]
DAMAGED += [
    forged(started=1e300),
    forged(started="x"),
    forged(started=-1e18),
    forged(host=[]),
    forged(command=3),
]


@pytest.mark.fault("F42")
@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))  # texts name this process
def test_a_damaged_lock_is_taken_over(path, text):
    path.write_text(text)
    told = []
    with RunLock(path, notice=told.append):
        assert path.read_text() == Holder.me().text
    assert told[0].endswith("it cannot be read")


@pytest.mark.fault("F42")
def test_a_lock_that_is_no_plain_file_is_named_and_not_waited_for(path):
    os.mkfifo(path)
    link, absent = path.with_name("link"), path.parent / "absent" / "run.lock"
    link.symlink_to(path.parent / "nowhere")
    for place in (path, link, absent):
        with pytest.raises(StorageError, match="the run cannot be locked"):
            RunLock(place, notice=pytest.fail).__enter__()
    assert not absent.parent.exists()


def test_what_stands_in_a_lock_does_nothing_to_a_terminal():
    assert "\x1b" not in str(Holder.read(forged(command="\x1b[2J")))


RACER = """\
import os, signal, sys
from pathlib import Path
from algorithm.core.errors import UsageError
from algorithm.store.lock import RunLock

path, inside, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
held = refused = 0
for turn in range(rounds):
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 1, -signal.SIGKILL), code
        held, refused = held + (code != 1), refused + (code == 1)
        continue
    try:
        with RunLock(path, notice=lambda text: None):
            inside.touch(exist_ok=False)  # nobody else is in here
            inside.unlink()
            if not turn % 3:
                os.kill(os.getpid(), signal.SIGKILL)
    except UsageError:
        os._exit(1)
    except BaseException:
        os._exit(2)
    os._exit(0)
print(held, refused)
"""


def test_of_many_that_take_over_at_once_one_does(path, tmp_path):
    folder = tmp_path / "aside"
    folder.mkdir()
    path.write_text(gone().text)
    arguments = [str(path), str(folder / "inside"), "20"]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    said = [racer.communicate()[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 3
    assert sum(int(held) for held, _ in said) > 20
    with RunLock(path, notice=lambda _: None):
        assert refused(path)
    assert beside(path) == {"aside"}
