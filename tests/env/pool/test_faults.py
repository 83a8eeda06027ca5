"""Simulators that raise, die, hang or change: real processes, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import Fault, VecEnv
from algorithm.env.pool.watchdog import CLOSE_TIMEOUT
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from algorithm.env.single import as_bool, as_number
from tests.toys_vector import diary_seed

SEEDS = episode_seeds(7, "train")


_made: list[VecEnv] = []


@pytest.fixture(autouse=True)
def _close_what_was_made():
    yield
    while _made:
        _made.pop().close()


def make(tmp_path: Path, fault: str, *, n: int = 4, workers: int = 2, **options: object):
    """The environments, and the list that faults are told to. Options of the toy and of the pool."""
    faults: list[Fault] = []
    toy = {key: options.pop(key) for key in ("where", "wide") if key in options}
    env = make_vec_env(
        "GYM",
        "tests.toys_faults:Faulty-v0",
        env_args={"fault": fault, "mark": str(tmp_path / "mark"), **toy},
        n=n,
        seed_of=SEEDS,
        pool=PoolOptions(workers=workers, on_fault=faults.append, **options),
    )
    _made.append(env)
    return env, faults


def step(env: VecEnv, n: int = 4):
    return env.step({DEFAULT_BEHAVIOUR: np.zeros((n, 1), np.float32)})[DEFAULT_BEHAVIOUR]


def seeds(env: VecEnv, *episodes: int) -> list[int]:
    return [SEEDS(i, episode) % 1000 for i, episode in enumerate(episodes)]


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_copy_that_raises_is_made_anew_and_the_others_do_not_notice(tmp_path, workers):
    env, faults = make(tmp_path, "raise", workers=workers)
    env.reset()
    for _ in range(2):
        assert step(env).skipped is None
    third = step(env)
    (failed,) = np.flatnonzero(third.skipped).tolist()  # whichever process was first
    others = [i for i in range(4) if i != failed]
    assert third.reward[others].tolist() == [3.0] * 3
    assert third.reward[failed] == 0.0
    assert third.obs["obs"][others, 1].tolist() == [3.0] * 3
    assert third.obs["obs"][failed].tolist() == [SEEDS(failed, 1) % 1000, 0.0]
    (fault,) = faults
    assert fault.what == "Faulty-v0 failed in step"
    assert fault.why == "RuntimeError: the wheel came off"
    assert f"environment {failed}, episode 0, seed {SEEDS(failed, 0)}, step 3 of the episode" in fault.where
    assert "action [0]" in fault.where
    assert "in _raise" in fault.trace and "env_group.py" not in fault.trace
    step(env)
    fifth = step(env)  # the others end here; the one that failed is in its second step
    assert fifth.terminated.tolist() == [i != failed for i in range(4)]
    assert fifth.skipped is None


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_reset_loses_no_step(tmp_path, workers):
    """The mark appears while the first episode runs, so that only the reset after it fails."""
    env, faults = make(tmp_path, "raise", n=2, workers=workers, where="reset", restarts=5)
    (tmp_path / "mark").touch()
    env.reset()
    for _ in range(4):
        step(env, 2)
    (tmp_path / "mark").unlink()
    last = step(env, 2)
    assert last.terminated.tolist() == [True, True]
    assert last.skipped is None
    assert last.reward.tolist() == [5.0, 5.0]
    assert last.final.obs["obs"][:, 1].tolist() == [5.0, 5.0]
    assert last.obs["obs"].tolist() == [[SEEDS(0, 2) % 1000, 0], [SEEDS(1, 1) % 1000, 0]]
    (fault,) = faults
    assert fault.what == "Faulty-v0 failed in reset"
    place = f"environment 0, episode 1, seed {SEEDS(0, 1)}, step 0 of the episode"
    assert fault.where == place, "no action: none was taken"


@pytest.mark.fault("F13")
def test_a_worker_that_dies_is_replaced(tmp_path):
    env, faults = make(tmp_path, "die", log=tmp_path / "workers")
    env.reset()
    for _ in range(2):
        step(env)
    third = step(env)
    lost = np.flatnonzero(third.skipped).tolist()
    assert lost in ([0, 1], [2, 3])  # the environments of one process
    kept = [i for i in range(4) if i not in lost]
    assert third.obs["obs"][kept, 1].tolist() == [3.0, 3.0]
    assert third.obs["obs"][lost].tolist() == [[SEEDS(i, 1) % 1000, 0] for i in lost]
    (fault,) = faults
    assert "died in step" in fault.what and "SIGSEGV" in fault.why
    assert (
        f"environment {lost[0]}, episode 0" in fault.where
        and f"environment {lost[1]} in the same" in fault.where
    )
    assert "Segmentation fault" in fault.trace and "in _die" in fault.trace
    assert "about to fail" in (tmp_path / "workers" / f"worker_{lost[0] // 2}.log").read_text()
    for _ in range(5):
        result = step(env)
    assert result.skipped is None


@pytest.mark.fault("F13")
@pytest.mark.parametrize(("fault", "where"), [("hang", "step"), ("seize", "reset")])
def test_a_worker_that_hangs_is_replaced_and_says_where_it_hung(tmp_path, fault, where):
    env, faults = make(tmp_path, fault, n=2, timeout=1.0, where=where)
    env.reset()
    for _ in range(6):
        step(env, 2)
    (told,) = faults
    assert f"hangs in {where}" in told.what and "no answer for 1 s" in told.why
    assert f"in _{fault}" in told.trace


def test_a_worker_that_is_killed_between_two_steps_is_replaced(tmp_path):
    (tmp_path / "mark").touch()
    env, faults = make(tmp_path, "raise")
    env.reset()
    step(env)
    os.kill(env._executor.pids[1], signal.SIGKILL)
    second = step(env)
    assert second.skipped.tolist() == [False, False, True, True]
    assert "SIGKILL" in faults[0].why


def test_a_worker_lost_in_an_explicit_reset_takes_its_other_copies_along(tmp_path):
    """The caller asked for environment 0 only; that environment 1 began anew it learns with the next step."""
    (tmp_path / "mark").touch()
    env, faults = make(tmp_path, "exit", n=2, workers=1, where="reset")
    env.reset()
    step(env, 2)
    (tmp_path / "mark").unlink()
    first = env.reset([0])[DEFAULT_BEHAVIOUR]
    assert first.obs["obs"].tolist() == [[SEEDS(0, 2) % 1000, 0]]  # episode 1 was the one that failed
    assert "exit code 7" in faults[0].why and "the licence has expired" in faults[0].trace
    after = step(env, 2)
    assert after.skipped.tolist() == [False, True]
    assert after.obs["obs"][0].tolist() == [SEEDS(0, 2) % 1000, 1]
    assert after.obs["obs"][1, 1] == 0
    assert step(env, 2).skipped is None


@pytest.mark.fault("F12")
@pytest.mark.parametrize("workers", [0, 1])
def test_more_failures_than_the_budget_end_the_run_with_the_environments_traceback(tmp_path, workers):
    env, faults = make(tmp_path, "raise", n=1, workers=workers, restarts=2)
    env.reset()
    with pytest.raises(EnvError) as caught:
        for _ in range(20):
            step(env, 1)
            (tmp_path / "mark").unlink(missing_ok=True)  # it happens again and again
    assert len(faults) == 2
    assert "the wheel came off" in str(caught.value) and "in _raise" in str(caught.value)
    assert "env_restarts" in caught.value.fix


@pytest.mark.fault("F15")
@pytest.mark.parametrize(("workers", "fault"), [(0, "raise"), (1, "raise"), (1, "die")])
def test_spaces_that_change_with_a_restart_are_refused(tmp_path, workers, fault):
    env, _ = make(tmp_path, fault, n=1, workers=workers, wide=True)
    env.reset()
    with pytest.raises(EnvError, match="Faulty-v0") as caught:
        for _ in range(4):
            step(env, 1)
    assert "other spaces" in str(caught.value) and "(3,)" in str(caught.value)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("fault", "said"), [
    ("raise", "the wheel came off"),
    ("exit", "the licence has expired"),
    ("hang", "no answer for 3 s"),
])  # fmt: skip
def test_workers_that_cannot_make_their_environments_say_why(tmp_path, monkeypatch, fault, said):
    monkeypatch.setattr("algorithm.env.pool.worker_process.START_TIMEOUT", 3.0 if fault == "hang" else 60.0)
    with pytest.raises(EnvError) as caught:
        make(tmp_path, fault, where="make", timeout=1.0, log=tmp_path)
    assert said in str(caught.value)
    assert not psutil.Process().children(recursive=True) or _only_trackers()


def _only_trackers() -> bool:
    """What stays as long as this process does: for shared memory, for forks of other tests, beside it."""
    children = psutil.Process().children(recursive=True)
    commands = [" ".join(child.cmdline()) for child in children]
    stay = ("resource_tracker", "forkserver", "monitor_process.py")
    return all(any(name in command for name in stay) for command in commands)


@pytest.mark.fault("F13")
def test_closing_does_not_wait_for_a_worker_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr("algorithm.env.pool.worker_executor.CLOSE_TIMEOUT", 0.5)
    env, _ = make(tmp_path, "hang", where="close")
    env.reset()
    env.close()
    assert _only_trackers()


SCRIPT = """
import sys, time
import numpy as np
import algorithm.env.pool.watchdog as w
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
if __name__ == "__main__":
    w._SLACK = {slack}
    env = make_vec_env("GYM", "tests.toys_faults:Faulty-v0",
        env_args={{"fault": {fault!r}, "mark": {mark!r}, "where": {where!r}}},
        n=2, pool=PoolOptions(workers={workers}, timeout={timeout}), seed_of=lambda index, episode: 0)
    env.reset()
    print(*(env._executor.pids if {workers} else ()), flush=True)
    for _ in range({steps}):
        env.step({{"default": np.zeros((2, 1), np.float32)}})
        time.sleep({pause})
    {end}
"""


def script(tmp_path: Path, **values: object) -> subprocess.Popen:
    settings = {"mark": str(tmp_path / "mark"), "where": "step", "workers": 2, "timeout": -1, "steps": 5}
    settings |= {"fault": "hang", "slack": 5.0}
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(**{**settings, "pause": 0, "end": "env.close()", **values}))
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if psutil.pid_exists(pid)]:
        if time.monotonic() > deadline:
            return not [pid for pid in alive if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
        time.sleep(0.05)
    return True


@pytest.mark.fault("F23")
@pytest.mark.parametrize("where", ["nowhere", "step"])
def test_killing_the_main_process_leaves_no_worker_and_no_memory_behind(tmp_path, where):
    """Idle workers leave by themselves; one that hangs in a call is killed by the system."""
    memory = set(Path("/dev/shm").glob("psm_*"))
    main = script(tmp_path, where=where, steps=1000, pause=0.05)
    pids = [int(pid) for pid in main.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.5)
    main.kill()
    main.communicate()
    assert gone(pids)
    deadline = time.monotonic() + 5
    while (left := set(Path("/dev/shm").glob("psm_*")) - memory) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def test_a_main_process_that_forgets_to_close_ends_all_the_same(tmp_path):
    main = script(tmp_path, where="nowhere", end="pass")
    pids = [int(pid) for pid in main.stdout.readline().split()]
    _, errors = main.communicate(timeout=30)
    assert main.returncode == 0, errors
    assert gone(pids)


@pytest.mark.fault("F13")
@pytest.mark.parametrize(("where", "said"), [("step", "hangs in step or reset"), ("close", "hangs in close")])
def test_a_hang_in_the_main_process_ends_it_with_the_stack(tmp_path, where, said):
    """Ten seconds are granted for closing; here the patience is shortened from outside."""
    main = script(tmp_path, where=where, workers=0, timeout=1.0, end="w.CLOSE_TIMEOUT = 1.5; env.close()")
    _, errors = main.communicate(timeout=60)
    assert main.returncode == 4
    assert said in errors and "in _hang" in errors and "base_config.workers" in errors
    assert CLOSE_TIMEOUT == 10.0


@pytest.mark.fault("F13")
@pytest.mark.fault("F34")
@pytest.mark.parametrize("where", ["step", "close"])
def test_a_hang_that_keeps_every_other_thread_waiting_ends_as_well(tmp_path, where):
    """No thread of it can do that; the process beside it does."""
    end = "w.CLOSE_TIMEOUT = 1.5; env.close()"
    main = script(tmp_path, fault="seize", where=where, workers=0, timeout=1.0, slack=1.0, end=end)
    assert main.wait(60) == -signal.SIGABRT
    _, errors = main.communicate(timeout=60)
    assert "ProcessLookupError" not in errors, "who waits for it may be faster than the process beside it"
    assert "error: the environment hangs and keeps the interpreter's lock" in errors
    assert "in _seize" in errors and "base_config.workers" in errors


def test_workers_load_no_torch(tmp_path):
    (tmp_path / "mark").touch()
    env, _ = make(tmp_path, "raise", n=1, workers=1)
    maps = Path(f"/proc/{env._executor.pids[0]}/maps").read_text()
    assert "numpy" in maps and "torch" not in maps


def test_signals_for_the_whole_group_do_not_reach_workers(tmp_path):
    (tmp_path / "mark").touch()
    env, faults = make(tmp_path, "raise")
    env.reset()
    for pid in env._executor.pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    step(env)
    assert not faults


@pytest.mark.fault("F14")
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("how", "said"), [
    ("shape", "observation 'speed' has shape (3,), its space says (2,)"),
    ("broadcast", "observation 'camera' has shape (1, 2), its space says (2, 2)"),
    ("nothing", "observation 'speed' is object, its space has real numbers"),
    ("text", "observation 'speed' is <U4, its space has real numbers"),
    ("complex", "observation 'speed' is complex128, its space has real numbers"),
    ("object", "observation 'speed' is object, its space has real numbers"),
    ("ragged", "observation 'speed' is not an array of numbers"),
    ("object of whole numbers", "observation 'camera' is object"),
    ("fraction", "observation 'gear' is float64, its space has whole numbers"),
    ("choice", "observation 'gear' holds 3, its space has 0 to 2"),
    ("overflow", "observation 'camera' has numbers of int64 that do not fit uint8"),
    ("missing", "observation 'gear' is missing"),
])  # fmt: skip
def test_what_a_space_does_not_allow_ends_the_run_where_it_is_first_seen(how, said, at, workers=0):
    faults: list[Fault] = []
    args, pool = {"how": how, "at": at}, PoolOptions(workers=workers, on_fault=faults.append)
    env = make_vec_env("GYM", "tests.toys_faults:Untrue-v0", env_args=args, seed_of=SEEDS, pool=pool)
    _made.append(env)
    with pytest.raises(EnvError, match=f"Untrue-v0 failed in {'step' if at else 'reset'}") as caught:
        env.reset()
        step(env, 1)
    assert said in caught.value.why and "a restart would fail alike" in caught.value.fix
    assert f"environment 0, episode 0, seed {SEEDS(0, 0)}, step {at} of the episode" in caught.value.where
    assert caught.value.exit_code == 4 and not faults


@pytest.mark.fault("F14")
@pytest.mark.fault("F45")
@pytest.mark.parametrize(("how", "said"), [
    ("reward", "the reward is '1.5', a str, not a number"),
    ("complex reward", "the reward is 1j, a complex, not a number"),
    ("terminated", "terminated is 'False', a str, not a number"),
    ("truncated", "truncated is '', a str, not a number"),
    ("undefined", "terminated is nan, neither true nor false"),
])  # fmt: skip
def test_rewards_and_ends_that_are_text_end_the_run_at_the_first_step(how, said):
    test_what_a_space_does_not_allow_ends_the_run_where_it_is_first_seen(how, said, 1)


@pytest.mark.fault("F45")
def test_rewards_and_ends_that_numpy_hands_out_are_taken():
    for value in (1, 1.0, True, np.float32(1), np.int8(1), np.bool_(True), np.array(1.0), np.array([1])):
        assert as_number(value, "x") == 1.0 and as_bool(value, "x") is True


@pytest.mark.fault("F14")
@pytest.mark.fault("F45")
@pytest.mark.parametrize("workers", [0, 2])
def test_what_lies_outside_of_its_bounds_is_told_once_and_trained_on(workers):
    told: list[Fault] = []
    args, pool = {"how": "outside", "at": 1}, PoolOptions(workers=workers, restarts=0, on_fault=told.append)
    env = make_vec_env("GYM", "tests.toys_faults:Untrue-v0", env_args=args, n=4, seed_of=SEEDS, pool=pool)
    _made.append(env)
    env.reset()
    for _ in range(3):
        result = env.step({DEFAULT_BEHAVIOUR: np.zeros((4, 1), np.float32)})[DEFAULT_BEHAVIOUR]
    (fault,) = told
    assert fault.fix and fault.what == "observation 'speed' of Untrue-v0 lies outside its bounds"
    assert (
        fault.why == "speed[1] = 2.5 in [-1, 1]"
        and "environment 0" in fault.where
        and "step 1" in fault.where
    )
    assert result.obs["speed"][0, 1] == 4.5 and result.skipped is None and not result.truncated.any()


@pytest.mark.fault("F14")
@pytest.mark.parametrize("workers", [0, 1])
def test_an_observation_that_is_changed_in_place_afterwards_does_no_harm(workers):
    """The same array every time, with the episode, the step and the position in it."""
    args, pool = {"reuse": True}, PoolOptions(workers=workers)
    env = make_vec_env("GYM", "tests.toys_vector:Diary-v0", env_args=args, seed_of=diary_seed, pool=pool)
    _made.append(env)
    handed = [env.reset(episode=1)[DEFAULT_BEHAVIOUR].obs["obs"]]
    action = {DEFAULT_BEHAVIOUR: np.zeros((1, 2), np.float32)}
    for _ in range(5):
        result = env.step(action)[DEFAULT_BEHAVIOUR]
        handed.append((result.final or result).obs["obs"])
    assert result.terminated.all(), "the position has left its range"
    assert [rows[0].tolist() for rows in handed] == [[0, 1, t, t] for t in range(6)]
