"""Simulators that raise, die, hang or change: real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.outputs import as_bool, as_number
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.signals import StopRequest
from tests.lib.processes import comes_true

SEEDS = episode_seeds(7, "train")


class Faulty:
    """``n`` environments that do ``fault`` once, in the third step of an episode or elsewhere."""

    def __init__(self, folder: Path, fault: str, *, n: int = 4, workers: int = 2, **options: Any) -> None:
        self.n, self.mark = n, folder / "mark"
        self.faults: list[Fault] = []
        own = {key: options.pop(key) for key in ("where", "wide") if key in options}
        self.env = make_vec_env(
            EnvRequest(
                "GYM",
                "tests.lib.toys_faults:Faulty-v0",
                env_args={"fault": fault, "mark": str(self.mark), **own},
                n=n,
                seed_of=SEEDS,
                workers=workers,
                on_fault=self.faults.append,
                **options,
            )
        )

    def step(self) -> Any:
        return step(self.env, self.n)

    def begin(self, episode: int, *indices: int) -> list[list[float]]:
        """The first observations of an episode."""
        return [[SEEDS(i, episode) % 1000, 0.0] for i in indices]

    def close(self) -> None:
        self.env.close()


def step(env: VecEnv, n: int) -> Any:
    return env.step({DEFAULT_BEHAVIOUR: np.zeros((n, 1), np.float32)})[DEFAULT_BEHAVIOUR]


@pytest.mark.fault("F12")
@pytest.mark.fault("F13")
@pytest.mark.fault("F36")
@pytest.mark.parametrize(
    ("fault", "workers", "what", "why", "trace"),
    [
        ("raise", 0, "failed in step", "RuntimeError: the wheel came off", "in _raise"),
        ("raise", 2, "failed in step", "RuntimeError: the wheel came off", "in _raise"),
        ("leave", 0, "failed in step", "SystemExit(0) would end the program", "in _leave"),
        ("interrupt", 0, "failed in step", "KeyboardInterrupt() would end the program", "in _interrupt"),
        ("interrupt", 2, "failed in step", "KeyboardInterrupt() would end the program", "in _interrupt"),
        ("die", 2, "died in step", "SIGSEGV", "in _die"),
        ("hang", 2, "hangs in step", "no answer for 1 s", "in _hang"),
        ("seize", 2, "hangs in step", "no answer for 1 s", "in _seize"),
    ],
)
def test_a_fault_ends_the_episodes_of_its_process_and_no_other(tmp_path, fault, workers, what, why, trace):
    """One environment where it raises, both of a worker that is lost."""
    timeout = 1.0 if workers else -1
    with StopRequest(), closing(Faulty(tmp_path, fault, workers=workers, timeout=timeout)) as run:
        run.env.reset()
        assert [run.step().skipped for _ in range(2)] == [None, None]
        third = run.step()
        lost = np.flatnonzero(third.skipped).tolist()
        assert lost in ([0, 1], [2, 3]) if "failed" not in what else len(lost) == 1
        others = [i for i in range(4) if i not in lost]
        assert third.reward.tolist() == [0.0 if i in lost else 3.0 for i in range(4)]
        assert third.obs["obs"][lost].tolist() == run.begin(1, *lost)
        assert third.obs["obs"][others, 1].tolist() == [3.0] * len(others)
        run.step()
        fifth = run.step()
        assert (np.flatnonzero(fifth.terminated).tolist(), fifth.skipped) == (others, None)
    (told,) = run.faults
    assert what in told.what and why in told.why
    assert trace in told.trace
    assert fault != "raise" or "env_group.py" not in told.trace, "the environment's own frames"
    place = f"environment {lost[0]}, episode 0, seed {SEEDS(lost[0], 0)}, step 3 of the episode, action [0]"
    assert place in told.where


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_reset_loses_no_step(tmp_path, workers):
    """The mark appears while the first episode runs, so that only the reset after it fails."""
    with closing(Faulty(tmp_path, "raise", n=2, workers=workers, where="reset")) as run:
        run.mark.touch()
        run.env.reset()
        for _ in range(4):
            run.step()
        run.mark.unlink()
        last = run.step()
    assert (last.terminated.tolist(), last.skipped, last.reward.tolist()) == ([True] * 2, None, [5.0] * 2)
    assert last.final.obs["obs"][:, 1].tolist() == [5.0, 5.0]
    assert last.obs["obs"].tolist() == run.begin(2, 0) + run.begin(1, 1)
    (told,) = run.faults
    assert told.where == f"environment 0, episode 1, seed {SEEDS(0, 1)}, step 0 of the episode"


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 1])
def test_more_failures_than_the_budget_end_the_run_with_the_environments_traceback(tmp_path, workers):
    with closing(Faulty(tmp_path, "raise", n=1, workers=workers, restarts=2)) as run:
        run.env.reset()
        with pytest.raises(EnvError) as caught:
            for _ in range(20):
                run.step()
                run.mark.unlink(missing_ok=True)  # it happens again and again
    assert len(run.faults) == 2
    assert "in _raise" in str(caught.value) and "env_restarts" in caught.value.fix


@pytest.mark.fault("F15")
@pytest.mark.parametrize(("workers", "fault"), [(0, "raise"), (1, "die")])
def test_spaces_that_change_with_a_restart_are_refused(tmp_path, workers, fault):
    with closing(Faulty(tmp_path, fault, n=1, workers=workers, wide=True)) as run:
        run.env.reset()
        with pytest.raises(EnvError, match="different spaces") as caught:
            for _ in range(4):
                run.step()
    assert "obs 3 float32" in str(caught.value)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("fault", "said"), [
    ("raise", "the wheel came off"),
    ("exit", "the licence has expired"),
    ("hang", "no answer for 1 s"),
])  # fmt: skip
def test_workers_that_cannot_make_their_environments_say_why(tmp_path, monkeypatch, fault, said):
    monkeypatch.setattr("algorithm.env.pool.child_process.START_TIMEOUT", 1.0 if fault == "hang" else 60.0)
    with pytest.raises(EnvError) as caught:
        Faulty(tmp_path, fault, where="make", timeout=1.0)
    assert said in str(caught.value) and "worker_0.log" not in str(caught.value), "which is gone by then"
    assert no_worker_is_left()


def no_worker_is_left() -> bool:
    """Return whether all children are those that stay as long as this process does."""
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    stay = ("resource_tracker", "forkserver")
    return all(any(name in command for name in stay) for command in commands)


@pytest.mark.fault("F13")
def test_closing_does_not_wait_for_a_worker_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr("algorithm.env.pool.executor.CLOSE_TIMEOUT", 0.5)
    run = Faulty(tmp_path, "hang", where="close", workers=1)
    run.env.reset()
    maps = Path(f"/proc/{run.env._executor._workers[0].pid}/maps").read_text()
    assert "numpy" in maps and "torch" not in maps, "a worker is light"
    with pytest.raises(EnvError, match="hangs in close"):
        run.close()
    assert no_worker_is_left()


GUARD = 'if __name__ == "__main__":'

SCRIPT = """
import sys, time
import numpy as np
import algorithm.env.pool.watchdog as w
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
{guard}
    env = make_vec_env(EnvRequest("GYM", {name!r}, env_args={args!r}, n=2,
        workers={workers}, timeout={timeout}, seed_of=lambda index, episode: 0))
    env.reset()
    print(*(worker.pid for worker in env._executor._workers) if {workers} else (), flush=True)
    for _ in range(5):
        env.step({{"default": np.zeros((2, 1), np.float32)}})
    {end}
"""


def script(tmp_path: Path, *, stderr: Any = subprocess.PIPE, **values: Any) -> subprocess.Popen[str]:
    """Start a program with two environments; ``values`` of :data:`SCRIPT`."""
    file = tmp_path / "script.py"
    plain = {
        "name": "tests.lib.toys_faults:Faulty-v0",
        "args": None,
        "timeout": -1,
        "guard": GUARD,
        "end": "",
    }
    file.write_text(SCRIPT.format(**plain | values))
    path = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    command = [sys.executable, str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=path)


def faulty(tmp_path: Path, fault: str, where: str) -> dict[str, Any]:
    return {"fault": fault, "mark": str(tmp_path / "mark"), "where": where}


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    """Return whether these processes end within so many seconds."""
    return comes_true(lambda: not [*running(pids)], seconds)


def running(pids: list[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                yield pid


def test_a_script_that_works_when_it_is_imported_is_told_once(tmp_path):
    main = script(tmp_path, name="tests.lib.toys:Counting-v0", workers=2, guard="if True:")
    _, said = main.communicate()
    assert main.returncode == 1 and said.count("Traceback") == 1, said
    assert "UsageError" in said and GUARD in said


@pytest.mark.fault("F23")
def test_killing_the_main_process_leaves_no_worker_and_no_memory_behind(tmp_path):
    """Not even a worker that hangs in a call; idle ones: ``test_processes``."""
    memory = set(Path("/dev/shm").glob("psm_*"))
    main = script(tmp_path, args=faulty(tmp_path, "hang", "step"), workers=2, end="")
    pids = [int(pid) for pid in main.stdout.readline().split()]
    assert comes_true((tmp_path / "mark").exists, 60.0), "one hangs"
    main.kill()
    main.communicate()
    assert len(pids) == 2 and gone(pids)
    assert comes_true(lambda: set(Path("/dev/shm").glob("psm_*")) <= memory)


def test_a_main_process_that_forgets_to_close_ends_all_the_same(tmp_path):
    main = script(tmp_path, args=faulty(tmp_path, "hang", "nowhere"), workers=2, end="pass")
    output, errors = main.communicate(timeout=30)
    assert main.returncode == 0, errors
    assert gone([int(pid) for pid in output.split()])


@pytest.mark.fault("F13")
@pytest.mark.fault("F34")
@pytest.mark.parametrize(
    ("fault", "where", "said", "fix"),
    [
        ("hang", "step", "hangs in step or reset", "raise base_config.env_timeout"),
        ("block", "close", "hangs in close", "make its close() return"),
    ],
)
def test_a_hang_in_the_main_process_ends_it_with_the_stack(tmp_path, fault, where, said, fix):
    args, end = faulty(tmp_path, fault, where), "w.CLOSE_TIMEOUT = 1.5; env.close()"
    main = script(tmp_path, args=args, workers=0, timeout=1.0, end=end)
    _, errors = main.communicate(timeout=60)
    assert main.returncode == 4
    assert (
        said in errors
        and f"in _{fault}" in errors
        and f"base_config.workers: a worker that hangs is replaced; or {fix}" in errors
    )


@pytest.mark.fault("F34")
def test_the_watchdog_does_not_count_time_in_which_the_process_is_stopped(tmp_path):
    args, name = {"naps": 10}, "tests.lib.toys_processes:Slow-v0"
    main = script(tmp_path, name=name, args=args, workers=0, timeout=0.5, end="env.close()")
    main.stdout.readline()
    main.send_signal(signal.SIGSTOP)
    time.sleep(3.0)
    main.send_signal(signal.SIGCONT)
    _, errors = main.communicate(timeout=60)
    assert main.returncode == 0, errors


@pytest.mark.fault("F34")
def test_a_hang_ends_the_process_where_nobody_can_be_told(tmp_path):
    with Path("/dev/full").open("w") as full:
        args, name = {"hangs": 1, "mark": str(tmp_path / "mark")}, "tests.lib.toys_processes:Slow-v0"
        main = script(tmp_path, name=name, args=args, workers=0, timeout=1.0, end="", stderr=full)
        assert main.wait(60) == 4


UNTRUE = {
    "shape": "observation 'speed' has shape (3,), its space has (2,)",
    "broadcast": "observation 'camera' has shape (1, 2), its space has (2, 2)",
    "text": "observation 'speed' is <U4, its space has real numbers",
    "complex": "observation 'speed' is complex128, its space has real numbers",
    "object": "observation 'speed' is object, its space has real numbers",
    "ragged": "observation 'speed' is not an array of numbers",
    "fraction": "observation 'gear' is float64, its space has whole numbers",
    "choice": "observation 'gear' holds 3, its space has 0 to 2",
    "overflow": "observation 'camera' has numbers of int64 that do not fit uint8",
    "missing": "observation 'gear' is missing",
    "reward": "the reward is '1.5', a str, not a number",
    "complex reward": "the reward is 1j, a complex, not a number",
    "terminated": "terminated is 'False', a str, not a number",
    "truncated": "truncated is '', a str, not a number",
    "undefined": "terminated is nan, neither true nor false",
}


def untrue(how: str, at: int, **options: Any) -> VecEnv:
    return make_vec_env(
        EnvRequest(
            "GYM",
            "tests.env.pool.toys:Untrue-v0",
            env_args={"how": how, "at": at},
            n=2,
            seed_of=SEEDS,
            **options,
        )
    )


@pytest.mark.fault("F14")
@pytest.mark.fault("F45")
@pytest.mark.parametrize(("how", "at"), [*((how, 1) for how in UNTRUE), ("shape", 0)])
def test_what_a_space_does_not_allow_ends_the_run_where_it_is_first_seen(how, at):
    faults: list[Fault] = []
    call = "step" if at else "reset"
    env = untrue(how, at, on_fault=faults.append)
    with closing(env), pytest.raises(EnvError, match=f"Untrue-v0 failed in {call}") as caught:
        env.reset()
        step(env, 2)
    assert UNTRUE[how] in caught.value.why and "a restart would fail in the same way" in caught.value.fix
    assert f"environment 0, episode 0, seed {SEEDS(0, 0)}, step {at} of the episode" in caught.value.where
    assert not faults


@pytest.mark.fault("F45")
def test_rewards_and_ends_that_numpy_hands_out_are_taken():
    for value in (1, 1.0, True, np.float32(1), np.int8(1), np.bool_(True), np.array(1.0), np.array([1])):
        assert as_number(value, "x") == 1.0 and as_bool(value, "x") is True
