"""Several processes that train the same networks: each of their parts in this process, and real ones."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from typing_extensions import override

from algorithm.agents.on_policy.family import AsyncAgent
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.seeding import stream_seed
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import Stopwatch
from algorithm.env.pool.child_process import WorkerLostError
from algorithm.extras.a3c.messages import GRANT, Job
from algorithm.extras.a3c.process import TrainingProcess
from algorithm.extras.a3c.runtime import AsyncCollector
from algorithm.extras.a3c.worker import Relay, Worker
from algorithm.run.experience.faults import Faults
from algorithm.run.runtime import num_processes
from tests.lib.on_policy import make, train, weights
from tests.lib.processes import Program
from tests.lib.sessions import result

SAC = {"use_normalization": True, "reward_scaling": True}
OWN: dict[str, Any] = {"rollout_step": 5, "learning_rate": 1e-3, "max_grad_norm": 0.5}


def a3c(n: int = 1, **own: Any) -> tuple[AsyncAgent, Any]:
    agent, collector = make(n=n, algorithm="A3C", sac=SAC, **{**OWN, "num_processes": 1, **own})
    assert isinstance(agent, AsyncAgent)
    return agent, collector


def test_one_process_is_a2c_with_one_environment() -> None:
    ours, own_steps = a3c()
    theirs, their_steps = make(n=1, algorithm="A2C", sac=SAC, use_vtrace=False, **OWN)
    for agent, collector in ((ours, own_steps), (theirs, their_steps)):
        train(agent, collector, 100)
    assert ours.updates == theirs.updates == 20
    found, expected = weights(ours), weights(theirs)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_copy_steps_where_the_shared_weights_are_by_then() -> None:
    """Its gradient is that of the weights that acted; another copy's steps in the meantime stay."""
    (alone, alone_steps), (copy, steps), (owner, begun) = a3c(), a3c(), a3c()
    shared = [one.clone() for one in copy.weights()]
    copy.join(shared)
    own = copy.weights()[0].clone()
    shared[0].add_(1.0)
    train(alone, alone_steps, 5)
    train(copy, steps, 5)
    assert alone.updates == copy.updates == 1
    assert torch.equal(copy.weights()[0], own), "read at the beginning of a rollout, and not before"
    moved = alone.weights()[0] - own
    assert moved.abs().max() > 1e-4
    assert torch.allclose(shared[0] - 1.0, own + moved, atol=1e-6)
    assert torch.equal(shared[1], alone.weights()[1])
    work = copy.contribution(lambda stream: 2 * stream + 1, [3])
    assert {stream for stream, *_ in work.returns} == {1} and len(work.rows["obs"]) == len(work.returns) == 5
    owner.take_in(work)
    assert (owner.updates, owner.own_metrics(5)["a3c/staleness"]) == (1, 3.0)
    assert copy.contribution(int, []).updates == 0
    known = owner.statistics()
    assert known[0] == 5, "of observations come count, mean, square, shift and scale, then those of returns"
    torch.testing.assert_close(known, alone.statistics(), rtol=1e-6, atol=0)
    other = known.clone()
    other[1:5] = 7.0
    other[-4:] = torch.tensor([1.0, 0.0, 4.0, 2.0])
    copy.renew(other)
    assert copy.learner.return_scale.factor == 0.5, "1 / σ, and σ = √4"
    assert torch.equal(copy.weights()[0], shared[0])
    assert torch.equal(copy.statistics(), other)
    begun.step()
    owner.take_in(work)
    assert owner._ring._num_new == 0, "weights of long ago would have acted in it"


TASK = """\
default:
  algorithm: A3C
  base_config: {env_type: GYM, env_name: CartPole-v1, max_step: -1}
  nn_config: {policy: {dense_n: 8}, v: {dense_n: 8}}
  a3c_config: {rollout_step: 5, learning_rate: 0.001}
  sac_config: {write_summary_per_step: 100, save_model_per_step: 200}
  eval_config: {per_step: -1, episodes: 1}
mixed:
  ma_config: {B: {algorithm: A2C}}
"""


# ---- workers in this process


@pytest.fixture
def loaded(cwd: Path) -> LoadedConfig:
    Path("task").mkdir()
    Path("task/config.yaml").write_text(TASK)
    return load_config("./task", seed=1)


class Inside:
    """A worker in this process, which does a rollout when it is asked for its report."""

    def __init__(self, index: int, loaded: LoadedConfig, stack: ExitStack) -> None:
        self.index, self.name, self.lost = index, f"worker_{index}", False
        self.agents: frozenset[tuple[str, int]] = frozenset()
        self._stack = stack
        self._job = Job(
            index=index,
            n=2,
            loaded=loaded,
            seed=stream_seed(1, index),
            networks=Path("task"),
            task="./task",
            files=Path.cwd(),
            render=False,
        )
        self._ready, self._end = Pipe()
        self._end.close()
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.worker, self.lost = Worker(self._job, self._stack), False
        self.granted = 0
        self.starts += 1

    @property
    def waits_on(self) -> tuple[Any]:
        return (self._ready,)

    def send(self, shares: Any) -> None:
        self.worker.begin(shares)

    def grant(self) -> None:
        self.granted += 1

    def take(self, progress: int, now: float, timeout: float) -> object:
        if self.lost:
            raise WorkerLostError("died", "killed by SIGKILL", "its last words")
        self.granted -= 1
        assert self.granted >= 0
        return self.worker.rollout()


@pytest.fixture
def crew(loaded: LoadedConfig) -> Iterator[tuple[AsyncCollector, list[Inside], AsyncAgent, Relay]]:
    with ExitStack() as stack:
        workers = [Inside(index, loaded, stack) for index in range(2)]
        agent, _ = make(algorithm="A3C", sac=SAC, sizes={"dense_n": 8}, rep={}, **OWN)
        assert isinstance(agent, AsyncAgent)
        console = Relay()
        collector = AsyncCollector(
            workers,  # type: ignore[arg-type]
            {DEFAULT_BEHAVIOUR: agent},
            Faults(console),
            timeout=1.0,
            restarts=1,
            ready=lambda _: None,
            watch=Stopwatch(),
        )
        yield collector, workers, agent, console


def test_what_workers_do_adds_up_and_a_lost_one_is_replaced(crew: Any) -> None:
    collector, workers, agent, console = crew
    collector.behaviour_steps[DEFAULT_BEHAVIOUR] = 50  # of a checkpoint
    collector.begin()
    shared = collector._shared
    try:
        episodes = [one for _ in range(40) for one in collector.step()]
        assert collector.steps == 450 == shared.run_step
        assert agent.updates == int(shared.updates[DEFAULT_BEHAVIOUR].sum()) > 70
        assert torch.equal(agent.weights()[0], shared.weights[DEFAULT_BEHAVIOUR][0])
        assert collector.agents == {(DEFAULT_BEHAVIOUR, 0), (DEFAULT_BEHAVIOUR, 1)}
        assert {one.agent for one in episodes} == {0, 1} and sum(one.length for one in episodes) > 350
        assert agent.statistics()[0] == shared.statistics[DEFAULT_BEHAVIOUR][0] == 400
        first = workers[0].worker._read_at[DEFAULT_BEHAVIOUR]
        assert first == shared.updates[DEFAULT_BEHAVIOUR][1] - 1, "of the other one"
        workers[1].lost = True
        collector.step()
        assert workers[1].starts == 2 and "restarted" in console.lines[0]
        collector.step()
        assert collector.steps == 465 and agent.updates == int(shared.updates[DEFAULT_BEHAVIOUR].sum())
        workers[0].lost = True
        with pytest.raises(EnvError, match="worker_0 died"):
            collector.step()
    finally:
        for worker in workers:
            del worker.worker


def test_one_that_is_lost_as_it_begins_is_replaced_as_any_other(
    crew: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, workers, _, console = crew

    def lost(_: Any) -> None:
        workers[1].lost = True
        raise WorkerLostError("died", "killed by SIGKILL", "")

    try:
        with monkeypatch.context() as first:
            first.setattr(workers[1], "send", lost)
            collector.begin()
        collector.step()
        assert workers[1].starts == 2 and len(console.lines) == 1
        collector.step()
        assert collector.steps == 15
    finally:
        for worker in workers:
            del worker.worker


def test_counts_go_on_from_any_number_of_processes(crew: Any) -> None:
    collector, _, _, _ = crew
    several = collector.state()
    _, alone = make(n=1)
    train_steps = 7
    for _ in range(train_steps):
        alone.step()
    (line,) = collector.load_state(alone.state())
    assert collector.steps == train_steps and line.startswith("1 environment became 2; ")
    (line,) = collector.load_state(collector.state())
    assert collector.steps == train_steps and line.startswith("2 processes are not reproducible")
    assert alone.load_state(several) == ["2 processes became one: all open episodes end as truncated"]
    assert alone.steps == 0


class Silent(TrainingProcess):
    """A process that is there and sends nothing."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self._granted, self._progress, self._moved_at = 0, -1, 0.0

    @override
    def send(self, message: object) -> None:
        self.sent.append(message)

    @override
    def _arrived(self, seconds: float) -> bool:
        return False

    @override
    def hangs(self, timeout: float) -> WorkerLostError:
        return WorkerLostError("hangs", f"no answer for {timeout} s", "")


def test_a_worker_has_two_rollouts_to_do_and_hangs_without_progress() -> None:
    worker = Silent()
    for _ in range(2):
        worker.grant()
    assert worker.sent == [GRANT, GRANT]
    for progress, now in ((5, 0.0), (5, 0.9), (6, 1.8), (6, 2.7)):
        assert worker.take(progress, now, 1.0) is None
    with pytest.raises(WorkerLostError, match="no answer for"):
        worker.take(6, 2.9, 1.0)
    assert worker.take(6, 9.9, -1.0) is None


def test_behaviours_have_the_same_number_of_processes(loaded: LoadedConfig) -> None:
    assert num_processes(loaded) == 2
    with pytest.raises(UsageError, match="different numbers of processes"):
        num_processes(load_config("./task", "mixed", seed=1))


# ---- real processes


def gone(processes: list[psutil.Process]) -> bool:
    """Return whether processes are gone after five seconds."""
    _, alive = psutil.wait_procs(processes, timeout=5.0)
    return not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.fault("F13")
def test_a_run_survives_a_killed_worker_and_leaves_nothing(loaded: LoadedConfig) -> None:
    program = Program(Path.cwd(), "-n", "a", "--seed=1", "-o", "sac_config.use_normalization=false")
    try:
        program.until(lambda: "checkpoint of step" in program.said)
        everybody = program.children()
        next(one for one in everybody if any("spawn_main" in word for word in one.cmdline())).kill()
        program.until(lambda: "killed by SIGKILL · restarted" in program.said)
        everybody += program.children()
        at = len(program.said)
        program.until(lambda: program.said.find("step=", at) >= 0)
        program.send(signal.SIGINT, group=True)
        assert program.end() == 130, program.said
    finally:
        program.kill()
    assert gone(everybody)
    done = result(Path("models/task/a"))
    assert done["steps"] == 5 * done["updates"] and done["faults"]["env_restarts"] == 1


STARTS = 100
MAIN = Path(__file__).resolve().parents[3] / "main.py"


@pytest.mark.fault("F23")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_starts_and_ends_leave_nothing(loaded: LoadedConfig) -> None:
    """Half of them are killed, at any moment."""
    rng = np.random.default_rng(0)
    for number in range(STARTS):
        killed = number % 2
        words = ["./task", "--device=cpu", "-n", f"a{number}", "--seed=1"]
        with Path("said.txt").open("w") as said:
            program = subprocess.Popen([sys.executable, str(MAIN), *words], stdout=said, stderr=said)
        everybody: dict[int, psutil.Process] = {}
        until = time.monotonic() + rng.uniform(0.0, 8.0)
        while time.monotonic() < until if killed else "checkpoint of" not in Path("said.txt").read_text():
            assert program.poll() is None, Path("said.txt").read_text()
            everybody |= {one.pid: one for one in psutil.Process(program.pid).children(recursive=True)}
            time.sleep(0.02)
        program.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
        assert program.wait(60) == (-signal.SIGKILL if killed else 143), Path("said.txt").read_text()
        assert gone([*everybody.values()]), number
