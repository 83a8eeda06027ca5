"""The faults of ``test_faults.py`` for as long as they last in life, and those of a network.

``-s`` shows the figures.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import psutil
import pytest

from algorithm.runs.logs.metrics import read_metrics
from tests.ds import networks
from tests.ds.processes import finish
from tests.ds.scene import LENGTH, Scene, missing, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


class Memory:
    """MiB of each process twice a second, of those that run."""

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self._processes = [psutil.Process(process.pid) for process in processes]
        self.samples: list[list[float]] = []

    @contextmanager
    def watched(self) -> Iterator[Memory]:
        """While this lasts."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,))
        thread.start()
        yield self
        over.set()
        thread.join()

    def spread(self, process: int) -> float:
        """Largest minus smallest MiB of a process in the second half of the time."""
        column = [row[process] for row in self.samples[len(self.samples) // 2 :]]
        return max(column) - min(column)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.5):
            try:
                self.samples.append([one.memory_info().rss / 2**20 for one in self._processes])
            except psutil.NoSuchProcess:
                return


@pytest.mark.fault("F34")
def test_a_learner_and_an_actor_that_were_stopped_go_on(scene: Scene) -> None:
    """Their time-out is far shorter than the stop, and the learner evaluates nearly all the time."""
    timeout = ("-o", "base_config.env_timeout=1")
    slow = ("-o", f"base_config.env_args={{length: {LENGTH}, pause: 0.02}}")
    often = ("-o", "eval_config.per_step=40", "-o", "base_config.max_step=400")
    learner = scene.learner(*timeout, *slow, *often)
    actor = scene.actor("actor", *timeout, *slow, *often)
    scene.until_said("learner", "in slot 0")
    scene.until_steps(LENGTH)
    for process in (learner, actor):
        os.kill(process.pid, signal.SIGSTOP)
    time.sleep(12.0)
    for process in (learner, actor):
        os.kill(process.pid, signal.SIGCONT)
    assert [finish(learner), finish(actor)] == [0, 0]
    assert "hangs" not in scene.said("learner") + scene.said("actor")


@pytest.mark.fault("F04")
def test_weights_never_become_older_when_a_learner_is_killed(scene):
    learner = scene.learner("-o", "net_config.spool_size=4")
    names = [f"actor_{number}" for number in range(4)]
    actors = [scene.actor(name, "-o", "net_config.spool_size=4") for name in names]
    for name in names:
        scene.until(lambda name=name: len(versions(scene, name)) >= 2, f"{name} tells nothing")
    assert scene.end(learner, signal.SIGKILL) == -signal.SIGKILL
    time.sleep(15)  # the spools are full
    resumed = scene.learner("--resume", name="resumed")
    begun = time.monotonic()
    scene.until(lambda: len(scene.lines("resumed", "is back")) >= 4, "not all are back")
    back = time.monotonic() - begun
    told = {name: len(versions(scene, name)) for name in names}
    for name in names:
        scene.until(lambda name=name: len(versions(scene, name)) >= told[name] + 2, f"{name} tells nothing")
    limit = int(scene.metric("step"))
    assert scene.end(resumed, signal.SIGINT) == 130
    last = scene.learner("--resume", "-o", f"base_config.max_step={limit + 400}", name="last")
    assert [finish(each) for each in (last, *actors)] == [0] * 5
    for name in names:
        seen = versions(scene, name)
        assert seen == sorted(seen) and seen[-1] > seen[0]
    stored, dropped = scene.stored(), scene.metric("ds/dropped")
    print(f"back after {back:.1f} s, lost {scene.metric('ds/lost'):.0f}, dropped {dropped:.0f}")
    show(scene, "resumed", *names)
    assert dropped > 0
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH <= dropped + scene.metric("ds/lost")


def versions(scene: Scene, name: str) -> list[int]:
    """Of the weights that an actor acted with, in order."""
    lines = scene.lines(name, " · weights ")
    return [int(line.split(" · weights ")[1].split()[0]) for line in lines]


@pytest.mark.fault("F05")
def test_an_actor_that_stands_still_for_half_a_minute(scene):
    flags = ("-o", "net_config.heartbeat=2")
    learner = scene.learner(*flags, "-o", "net_config.max_lag=20")
    actors = [scene.actor(f"actor_{number}", *flags) for number in range(3)]
    scene.until_stored(*(actor.pid for actor in actors))
    before = rate_of_each(scene, 15.0, actors)
    os.kill(actors[2].pid, signal.SIGSTOP)
    time.sleep(6.0)
    during = rate_of_each(scene, 24.0, actors)
    os.kill(actors[2].pid, signal.SIGCONT)
    scene.until_said("learner", "is back")
    after = rate_of_each(scene, 15.0, actors)
    assert scene.end(learner, signal.SIGINT) == 130
    stored = scene.stored()
    assert all(whole(made) for made in stored.values())
    late = [missing(stored[actor.pid]) for actor in actors]
    assert late[2] > 0 and sum(late) * LENGTH == scene.metric("ds/stale")
    print(f"steps/s of each before {before}, during {during}, after {after}")
    print(f"stale {scene.metric('ds/stale'):.0f}")
    show(scene, "learner", "actor_2")


def rate_of_each(scene: Scene, seconds: float, actors: Sequence[BaseProcess]) -> list[int]:
    """Steps per second that are stored of each."""
    then = [len(scene.stored()[actor.pid]) for actor in actors]
    time.sleep(seconds)
    now = [len(scene.stored()[actor.pid]) for actor in actors]
    return [round((b - a) / seconds) for a, b in zip(then, now, strict=True)]


@pytest.mark.fault("F06")
def test_memory_stays_as_it_is_while_actors_wait_for_their_learner(scene):
    flags = ("-c", "slow_learner", "-o", "sac_config.replay_ratio=8")
    learner = scene.learner(*flags)
    actors = [scene.actor(name, *flags) for name in ("first", "second")]
    memory = Memory([learner, *actors])
    with memory.watched():
        codes = [finish(each, limit=600.0) for each in (learner, *actors)]
    assert codes == [0, 0, 0]
    assert all(whole(made) and not missing(made) for made in scene.stored().values())
    assert max(read_metrics(scene.run / "metrics.jsonl")["ds/waiting"]) == 5
    spread = [memory.spread(number) for number in range(3)]
    assert max(spread[1:]) < 8.0 and spread[0] < 32.0, spread  # the learner draws its curve at the end
    print(f"MiB {memory.samples[-1]}, spread {spread}, updates {scene.metric('step') * 8:.0f}")
    show(scene, "first")


@pytest.mark.fault("F27")
@pytest.mark.skipif(not networks.possible(), reason="no network namespaces and tunnels for this user")
def test_a_network_that_is_late_lossy_and_gone_for_a_while(scene):
    flags = ["-o", "net_config.insecure=true", "-o", "net_config.heartbeat=1", "--learner_host=10.99.7.1"]
    line = networks.Line(delay=0.1, loss=0.05)  # each way
    try:
        learner = scene.learner(*flags, namespace=line.spaces[0])
        names = ["first", "second"]
        actors = [scene.actor(name, *flags, namespace=line.spaces[1]) for name in names]
        scene.until_stored(*(actor.pid for actor in actors))
        with Memory([learner, *actors]).watched() as memory:
            calm = rate_of_each(scene, 20.0, actors)
            line.cut = True
            scene.until(lambda: len(scene.lines("learner", "silent")) >= 2, "the cut is not noticed")
            time.sleep(12.0)
            line.cut, begun = False, time.monotonic()
            scene.until(
                lambda: (
                    scene.lines("learner", f"pid {actors[0].pid}) is back")
                    and scene.lines("learner", f"pid {actors[1].pid}) is back")
                ),
                "not all are back",
            )
            back = time.monotonic() - begun
            scene.until_steps(40 * LENGTH)
        assert scene.end(learner, signal.SIGINT) == 130
        limit = int(scene.metric("step")) + 10 * LENGTH
        flags += ["--resume", "-o", f"base_config.max_step={limit}"]
        last = scene.learner(*flags, name="last", namespace=line.spaces[0])
        assert [finish(each) for each in (last, *actors)] == [0, 0, 0]
    finally:
        scene.close()
        line.close()
    stored, gone = scene.stored(), scene.metric("ds/lost") + scene.metric("ds/dropped")
    print(f"steps/s {calm}; back after {back:.1f} s; packets lost {line.lost} of {line.passed + line.lost}")
    print(
        {name: scene.metric(f"ds/{name}") for name in ("lost", "dropped", "duplicates", "gaps", "rejected")}
    )
    print(f"MiB {memory.samples[0]} then {memory.samples[-1]}")
    show(scene, "learner", "last", *names)
    assert all(whole(made) for made in stored.values())
    assert sum(missing(made) for made in stored.values()) * LENGTH <= gone, "the rest was never to come"


def show(scene: Scene, *names: str) -> None:
    """What was said besides the tables."""
    for name in names:
        print(f"== {name}")
        print("\n".join(text[:200] for text in scene.said(name).splitlines() if not text.startswith("  ")))
