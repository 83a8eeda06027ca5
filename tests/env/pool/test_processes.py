"""What environments do to the processes they run in, and what is done to those: real ones, real signals."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from algorithm.app.console.base import LineConsole
from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.pool import watchdog, worker
from algorithm.env.pool.process_exit import as_exception
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.faults import Faults
from algorithm.run.signals import StoppedError, StopRequest
from tests.env.pool.test_faults import gone, script
from tests.lib.processes import comes_true


def make(name: str, *, n: int = 1, env_args: Any = None, **pool: Any) -> VecEnv:
    """Environments of a toy of ``tests``, with options of the pool."""
    seed_of = lambda index, episode: 0  # noqa: E731
    return make_vec_env(EnvRequest("GYM", name, env_args=env_args or {}, n=n, seed_of=seed_of, **pool))


def step(env: VecEnv, times: int = 1) -> None:
    for _ in range(times):
        env.step({DEFAULT_BEHAVIOUR: np.zeros((1, 1), np.float32)})


@pytest.mark.fault("F22")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_start_that_takes_long_is_told_and_ends_with_the_first_signal(workers, monkeypatch):
    stop, told = StopRequest(), []
    faults = Faults(LineConsole(told.append, told.append), go_on=stop.check_start)
    monkeypatch.setattr(faults, "_shown_at", 0.0)

    def waiting(text: str) -> None:
        faults.waiting(text)
        stop.signal = signal.SIGTERM
        faults.waiting(text)

    with pytest.raises(StoppedError) as caught:
        make("toys:Counting-v0", n=5, workers=workers, waiting=waiting)
    assert caught.value.exit_code == 143
    assert told == ["worker_0 makes 2 of 5 environments" if workers else "0 of 5 environments are made"]


@pytest.mark.fault("F34")
def test_time_in_which_a_process_stood_still_does_not_count(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock[0])
    ran = ActiveTime(0.5)
    for gap in (0.5, 0.7, 3600.0, 0.5):
        clock[0] += gap
        ran.update()
    assert ran.seconds == pytest.approx(0.5 + 0.7 + 1.0 + 0.5)
    assert ran.since(clock[0] - 0.4) == 0.0, "it may have begun before the stop, or after it"
    assert ran.since(90.0) == pytest.approx(ran.seconds)


@pytest.mark.fault("F35")
@pytest.mark.parametrize("ends", [True, False])
def test_simulators_of_a_worker_end_with_it(tmp_path, ends):
    """Those that it ends itself, which they do not ignore, and those that it forgets."""
    pids = tmp_path / "pids"
    env = make("tests.env.pool.toys:Housed-v0", workers=1, env_args={"pids": str(pids), "ends": ends})
    env.reset()
    for number in (signal.SIGINT, signal.SIGTERM):  # as to the whole group
        os.kill(env._executor._workers[0].pid, number)
    step(env)
    simulators = [int(line) for line in pids.read_text().split()]
    ignored = [Path(f"/proc/{pid}/status").read_text().partition("SigIgn:\t")[2] for pid in simulators]
    began = time.monotonic()
    env.close()
    assert time.monotonic() - began < 5, "they did not ignore being ended"
    assert gone(simulators)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert not any(int(mask[:16], 16) >> (number - 1) & 1 for mask in ignored)


@pytest.mark.fault("F35")
@pytest.mark.parametrize("kernel", [True, False])
def test_simulators_of_a_worker_end_with_the_main_process(tmp_path, kernel):
    """The kernel ends those of a worker that holds the GIL; elsewhere a thread ends those of any other."""
    args, name = {"pids": str(tmp_path / "pids"), "seizes": kernel}, "tests.env.pool.toys:Housed-v0"
    if not kernel:
        (tmp_path / "sitecustomize.py").write_text("import os\nos.O_ASYNC = 0\n")
    with script(tmp_path, name=name, args=args, workers=1, end="time.sleep(600)") as main:
        workers = [int(pid) for pid in main.stdout.readline().split()]
        simulators = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert len(simulators) == 4 and not gone(simulators, 0.0)
        main.kill()
    assert gone([*workers, *simulators])


def ran(code: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.fault("F35")
def test_a_fork_of_a_worker_can_be_ended():
    """It inherits the handlers, which are not meant for it."""
    done = ran(
        "import os, signal, time\nfrom algorithm.env.pool.worker import ignore_stop_signals\n"
        "ignore_stop_signals()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\npid = os.fork()\n"
        "if not pid: time.sleep(60)\n"
        "time.sleep(0.1)\nos.kill(pid, signal.SIGTERM)\nprint(os.waitpid(pid, 0)[1])"
    )
    assert done.stdout.strip() == str(int(signal.SIGTERM))


@pytest.mark.fault("F36")
@pytest.mark.parametrize("where", ["make", "reset", "close"])
def test_wherever_it_would_end_the_program(tmp_path, where):
    args = {"fault": "leave", "mark": str(tmp_path / "mark"), "where": where}
    with pytest.raises(EnvError, match="SystemExit"):
        env = make("tests.lib.toys_faults:Faulty-v0", env_args=args, restarts=0)
        env.reset()
        env.close()


@pytest.mark.fault("F36")
def test_where_nothing_handles_the_signal_an_interrupt_is_the_users():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            as_exception(KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.fault("F37")
def test_a_worker_that_forked_and_died_has_died_and_its_fork_with_it(tmp_path):
    """The fork holds all pipes open: only the process itself tells that it is gone."""
    faults: list[Fault] = []
    args = {"fault": "fork", "mark": str(tmp_path / "mark")}
    pool = {"workers": 1, "timeout": 60.0, "on_fault": faults.append}
    with closing(make("tests.lib.toys_faults:Faulty-v0", env_args=args, **pool)) as env:
        env.reset()
        (group,) = (worker.pid for worker in env._executor._workers)
        step(env, 3)
        assert "died in step" in faults[0].what and faults[0].why == "exit code 3"
        assert gone([process.pid for process in psutil.process_iter() if _group_of(process.pid) == group])


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.mark.fault("F38")
def test_a_worker_that_prints_to_a_full_disk_has_not_failed(tmp_path):
    faults: list[Fault] = []
    pool = {"workers": 1, "log": tmp_path, "on_fault": faults.append}
    with closing(make("tests.env.pool.toys:Chatty-v0", **pool)) as env:
        env.reset()
        resource.prlimit(env._executor._workers[0].pid, resource.RLIMIT_FSIZE, (64, 64))
        step(env, 3)
    assert not faults


@pytest.mark.fault("F38")
def test_what_workers_print_does_not_fill_the_disk(tmp_path):
    file = tmp_path / "worker_0.log"
    left_out = re.compile(rb"\(\d+ bytes left out here\)\n")  # more may have come before it was written

    def is_cut() -> bool:
        text = file.read_bytes()
        return len(text) <= worker.LOG_BYTES and left_out.search(text) is not None

    with closing(make("tests.env.pool.toys:Chatty-v0", workers=1, log=tmp_path)) as env:
        env.reset()
        step(env, 3)
        assert comes_true(is_cut, 10.0)
