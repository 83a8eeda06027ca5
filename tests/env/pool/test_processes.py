"""What environments do to the processes they run in, and what is done to those: real ones, real signals."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

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
from algorithm.env.request import PoolOptions
from algorithm.experience.faults import Faults
from algorithm.train.signals import StoppedError, StopRequest


def make(name: str, faults: list[Fault], **options: object) -> VecEnv:
    """Copies of a toy of ``tests``. Options of the pool, and its ``env_args`` and ``n``."""
    own = {key: options.pop(key) for key in ("env_args", "n") if key in options}
    pool = PoolOptions(on_fault=faults.append, **options)
    return make_vec_env("GYM", f"tests.{name}", seed_of=lambda index, episode: 0, pool=pool, **own)


def step(env: VecEnv, n: int = 1) -> None:
    env.step({DEFAULT_BEHAVIOUR: np.zeros((n, 1), np.float32)})


@pytest.mark.fault("F22")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_start_that_takes_long_is_told_and_ends_with_the_first_signal(workers, monkeypatch):
    stop, told = StopRequest(), []
    faults = Faults(LineConsole(told.append, told.append), go_on=stop.check_start)
    monkeypatch.setattr(faults, "_told_at", 0.0)

    def waiting(text: str) -> None:
        faults.waiting(text)
        stop.signal = signal.SIGTERM
        faults.waiting(text)

    with pytest.raises(StoppedError, match="SIGTERM") as caught:
        make("toys:Counting-v0", [], n=5, workers=workers, waiting=waiting)
    assert caught.value.exit_code == 143
    assert told == ["worker_0 makes 2 of 5 environments" if workers else "0 of 5 environments are made"]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pids)


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


HANGS = """
import numpy as np
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
if __name__ == "__main__":
    args = {{"hangs": 1, "mark": {mark!r}}}
    env = make_vec_env("GYM", "tests.toys_processes:Slow-v0", env_args=args,
        pool=PoolOptions(timeout=1.0), seed_of=lambda index, episode: 0)
    env.reset()
    env.step({{"default": np.zeros((1, 1), np.float32)}})
"""


@pytest.mark.fault("F34")
def test_a_hang_ends_the_process_where_nobody_can_be_told(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(HANGS.format(mark=str(tmp_path / "mark")))
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, str(file)], stderr=full, env=environment, timeout=60)
    assert done.returncode == 4


MAIN = """
import sys, time
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
if __name__ == "__main__":
    env = make_vec_env("GYM", "tests.toys_processes:Housed-v0", env_args={{"pids": {pids!r}, "ends": False}},
        pool=PoolOptions(workers=1), seed_of=lambda index, episode: 0)
    env.reset()
    print(*env._executor.pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.fault("F35")
@pytest.mark.parametrize("ends", [True, False])
def test_simulators_of_a_worker_end_with_it(tmp_path, ends):
    """Those that it ends itself, which they do not ignore, and those that it forgets."""
    pids = tmp_path / "pids"
    env = make("toys_processes:Housed-v0", [], workers=1, env_args={"pids": str(pids), "ends": ends})
    env.reset()
    simulators = [int(line) for line in pids.read_text().split()]
    ignored = [int(_status(pid, "SigIgn"), 16) for pid in simulators]
    began = time.monotonic()
    env.close()
    assert time.monotonic() - began < 5, "they did not ignore being ended"
    assert gone(simulators)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert not any(mask >> (number - 1) & 1 for mask in ignored)


def _status(pid: int, field: str) -> str:
    found = re.search(rf"^{field}:\s+(\S+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return found[1]


@pytest.mark.fault("F35")
def test_simulators_of_a_worker_end_with_the_main_process(tmp_path):
    pids = tmp_path / "pids"
    file = tmp_path / "script.py"
    file.write_text(MAIN.format(pids=str(pids)))
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    main = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=environment)
    workers = [int(pid) for pid in main.stdout.readline().split()]
    simulators = [int(line) for line in pids.read_text().split()]
    assert len(simulators) == 2 and not gone(simulators, 0.0)
    main.kill()
    main.communicate()
    assert gone([*workers, *simulators])


@pytest.mark.fault("F35")
def test_a_fork_of_a_worker_can_be_ended():
    """It inherits the handlers, which are not meant for it."""
    code = (
        "import os, signal, time\nfrom algorithm.env.pool.worker import ignore_stop_signals\n"
        "ignore_stop_signals()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\npid = os.fork()\n"
        "if not pid: time.sleep(60)\n"
        "time.sleep(0.1)\nos.kill(pid, signal.SIGTERM)\nprint(os.waitpid(pid, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == str(int(signal.SIGTERM)), done.stderr


@pytest.mark.fault("F36")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("fault", ["leave", "interrupt"])
def test_an_environment_that_would_end_the_program_has_failed(tmp_path, fault, workers):
    faults: list[Fault] = []
    args = {"fault": fault, "mark": str(tmp_path / "mark")}
    with StopRequest():
        env = make("toys_faults:Faulty-v0", faults, env_args=args, workers=workers)
        env.reset()
        for _ in range(4):
            step(env)
        env.close()
    (told,) = faults
    assert told.what == "Faulty-v0 failed in step"
    assert "would end the program, which an environment may not do" in told.why


@pytest.mark.fault("F36")
@pytest.mark.parametrize("where", ["make", "reset", "close"])
def test_wherever_it_would_end_the_program(tmp_path, where):
    args = {"fault": "leave", "mark": str(tmp_path / "mark"), "where": where}
    with pytest.raises(EnvError, match="SystemExit") as caught:
        env = make("toys_faults:Faulty-v0", [], env_args=args, restarts=0)
        env.reset()
        env.close()
    assert caught.value.exit_code == 4


@pytest.mark.fault("F36")
@pytest.mark.parametrize(("end", "said"), [
    ("os._exit(0)", True),
    ("monitor_process().run_finished(); os._exit(0)", False),
    ("exit_now(0)", False),
])  # fmt: skip
def test_who_leaves_at_once_without_a_word_is_told_of(end, said):
    """However soon: the process that tells of it may still be starting."""
    begin = (
        "import os\nfrom algorithm.env.pool.monitor_process import exit_now, monitor_process\n"
        "monitor_process().run_started('run a')\n"
    )
    done = subprocess.run([sys.executable, "-c", begin + end], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert ("error: run a has ended without a message" in done.stderr) is said


@pytest.mark.fault("F36")
def test_where_nothing_handles_the_signal_an_interrupt_is_the_users():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            as_exception(KeyboardInterrupt())
        with StopRequest():
            assert "KeyboardInterrupt()" in str(as_exception(KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.fault("F37")
def test_a_worker_that_forked_and_died_has_died_and_its_fork_with_it(tmp_path):
    """The fork holds all pipes open: only the process itself tells that it is gone."""
    faults: list[Fault] = []
    args = {"fault": "fork", "mark": str(tmp_path / "mark")}
    env = make("toys_faults:Faulty-v0", faults, env_args=args, workers=1, timeout=60.0)
    env.reset()
    (group,) = env._executor.pids
    began = time.monotonic()
    for _ in range(3):
        step(env)
    assert time.monotonic() - began < 30
    assert "died in step" in faults[0].what and faults[0].why == "exit code 3"
    assert gone([process.pid for process in psutil.process_iter() if _group_of(process.pid) == group])
    env.close()


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.mark.fault("F38")
def test_a_worker_that_prints_to_a_full_disk_has_not_failed(tmp_path):
    faults: list[Fault] = []
    env = make("toys_processes:Chatty-v0", faults, workers=1, log=tmp_path)
    env.reset()
    resource.prlimit(env._executor.pids[0], resource.RLIMIT_FSIZE, (64, 64))
    for _ in range(3):
        step(env)
    env.close()
    assert not faults


@pytest.mark.fault("F38")
def test_what_workers_print_does_not_fill_the_disk(tmp_path):
    env = make("toys_processes:Chatty-v0", [], workers=1, log=tmp_path)
    env.reset()
    for _ in range(8):
        step(env)
    file, deadline = tmp_path / "worker_0.log", time.monotonic() + 10
    left_out = re.compile(rb"\(\d+ bytes left out here\)\n")  # more may have come before it was written

    def cut() -> bool:
        text = file.read_bytes()
        return len(text) <= worker.LOG_BYTES and left_out.search(text) is not None

    while not (done := cut()) and time.monotonic() < deadline:
        time.sleep(0.05)
    env.close()
    assert done
