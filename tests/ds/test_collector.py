"""What actors send becomes steps of a training: stored at once, released step by step, every step counted."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.agents.roles import Collector, Episode
from algorithm.core.data import State
from algorithm.core.timing import Stopwatch
from algorithm.experience.collector import Iteration
from algorithm.runs.logs.metrics import METRICS
from ds import collector
from ds.collector import MAX_ROWS, RemoteCollector
from ds.ingest import IngestQueue
from ds.parameters import ParameterStore
from ds.protocol import PROTOCOL, Bye, Hello, Join, TrajectoryChunk
from ds.registry import ActorRegistry
from tests.ds.trajectories import Clock, chunk, chunks_of, trajectory

OF_ONE = 2**32
"""The first stream of actor 1."""


class Log:
    """Takes down what it is told to store."""

    def __init__(self) -> None:
        self.told: list[tuple] = []
        self.lags: list[int] = []

    def add(self, segment) -> None:
        self.lags.append(segment.lag)
        self.told.append(("add", segment.stream, segment.start_step, segment.length))

    def close(self, stream) -> None:
        self.told.append(("close", stream))


class Scene:
    """A collector, and actors whose trajectories are put into its queue by hand."""

    def __init__(self, *, silence=100, whole=False, max_lag=None, state=None) -> None:
        self.clock, self.queue = Clock(), IngestQueue(100)
        self.actors = ActorRegistry(
            run="r", seed=1, limit=-1, synchronous=False, heartbeat=2.0, max_lag=-1, clock=self.clock
        )
        self.parameters = ParameterStore({})
        self.logs = {"vector": Log(), "camera": Log()}
        self.watch = Stopwatch(Clock())
        self.published = 0
        self.collector = RemoteCollector(
            self.queue,
            self.actors,
            self.parameters,
            self.logs,
            before_step=self._publish,
            watch=self.watch,
            wait=0.0,
            whole=whole,
            max_lag=max_lag,
            silence=silence,
        )
        self._numbers: dict[str, int] = {}
        if state is not None:
            meta = json.loads(json.dumps(state.meta, allow_nan=False))
            self.notices = self.collector.load_state(State(meta=meta))

    def _publish(self) -> None:
        self.published += 1

    def come(self, *names):
        for name in names:
            self.actors.hello(Hello(protocol=PROTOCOL, actor=name, host="here", pid=1, versions={}))
            self.actors.joined(
                Join(actor=name, agreed="{}", digest="", version=0, channels=(0,), taken_steps=0)
            )
        return self

    def send(self, *chunks, actor="a", **changes):
        number = self._numbers[actor] = self._numbers.get(actor, 0) + 1
        one = trajectory(*chunks, actor=actor, number=number, **changes)
        assert self.actors.accept(one, 0) == "new"
        assert asyncio.run(self.queue.put(self.actors.number(actor), one, timeout=0))
        self.actors.queued(one, 0)
        return self

    def leave(self, actor):
        self.queue.left(self.actors.bye(Bye(actor=actor, reason="done")))

    def steps(self, n):
        """The count of steps and the episodes after each of ``n`` steps."""
        return [(episodes, self.collector.steps) for episodes in (self.collector.step() for _ in range(n))]


def test_it_is_a_collector():
    collector: Collector = Scene().collector
    assert collector.steps == 0 and collector.agents == frozenset() and collector.rows() == []
    collector.truncate()
    assert Scene().steps(2) == [([], 0), ([], 0)], "nothing comes, and nobody waits for ever"


@pytest.mark.parametrize(("whole", "released"), [(False, [1, 2, 3, 4]), (True, [4, 4, 4, 4])])
def test_all_is_stored_at_once_and_released_one_by_one_or_as_a_step_of_all(whole, released):
    scene = Scene(whole=whole).come("a")
    both = (chunk(agent=0, length=3, truncated=True), chunk("camera", agent=1, length=1))
    scene.send(*both, episodes=(("vector", 0, 2.5, 10),))
    found = []
    for steps in released:
        found += scene.collector.step()
        assert scene.collector.steps == steps
        assert scene.logs["vector"].told == [("add", 0, 0, 3)]
        assert bool(found) == (steps == 4), "the episode comes with the last step"
    assert found == [Episode("vector", 0, 2.5, 10)]
    assert scene.collector.behaviour_steps == {"vector": 3, "camera": 1}
    assert scene.published == 4, "asked before every step"


def test_a_trajectory_of_no_steps_brings_its_episodes():
    scene = Scene().come("a").send(chunks=(), episodes=(("vector", 7, 1.0, 3),))
    assert scene.steps(1) == [([Episode("vector", 7, 1.0, 3)], 0)]


def test_what_is_too_old_for_a_behaviour_is_left_out_and_counted():
    """By the versions that are newest when it is stored, not when it came."""
    scene = Scene(max_lag={"vector": 1, "camera": None}).come("a")
    scene.send(chunk(), version=3).send(chunk(start=3), chunk("camera", agent=1), version=3)
    scene.send(chunk(start=6), version=5, episodes=(("vector", 0, 1.0, 9),))
    scene.parameters.publish(4, [])
    scene.steps(3)
    scene.parameters.publish(5, [])
    assert scene.steps(6)[-1] == ([Episode("vector", 0, 1.0, 9)], 9)
    assert scene.logs["vector"].told == [("add", 0, 0, 3), ("close", 0), ("add", 0, 6, 3)]
    assert scene.logs["vector"].lags == [1, 0] and scene.logs["camera"].lags == [2]
    assert scene.collector.behaviour_steps == {"vector": 6, "camera": 3}
    assert scene.actors.metrics()["ds/stale"] == 3
    again = scene.actors.state()["members"][0]
    assert again["stored_steps"] == 12, "they have come, and the actor has not lost them"


def test_streams_of_actors_do_not_mix():
    scene = Scene().come("a", "b")
    scene.send(chunk(agent=3), actor="b", episodes=(("vector", 3, 1.0, 3),))
    scene.send(chunk("camera", agent=3), actor="a")
    assert scene.steps(3)[-1] == ([Episode("vector", OF_ONE + 3, 1.0, 3)], 3)
    scene.steps(1)
    assert scene.logs["vector"].told == [("add", OF_ONE + 3, 0, 3)]
    assert scene.logs["camera"].told == [("add", 3, 0, 3)]
    assert scene.collector.agents == {("vector", OF_ONE + 3), ("camera", 3)}


def test_who_leaves_ends_its_open_episodes_as_truncated():
    scene = Scene().come("a", "b")
    scene.send(chunk(agent=0), chunk(agent=1, terminated=True), chunk(agent=2), chunk("camera", agent=1))
    scene.send(TrajectoryChunk("vector", 2, None))
    scene.send(chunk(agent=0), actor="b")
    scene.leave("a")
    scene.steps(20)
    assert [told for told in scene.logs["vector"].told if told[0] == "close"] == [("close", 2), ("close", 0)]
    assert scene.logs["camera"].told[-1] == ("close", 1)
    assert scene.collector.agents == {("vector", OF_ONE)}


def test_who_is_silent_has_left():
    scene = Scene().come("a").send(chunk(agent=5))
    scene.steps(3)
    scene.clock.now += 6.1
    scene.steps(1)
    assert scene.logs["vector"].told[-1] == ("close", 5) and scene.collector.agents == frozenset()


def test_an_agent_that_is_not_heard_of_is_not_waited_for():
    """Two agents: after 2 · 3 transitions without any of its own one has left, even if nobody said so."""
    scene = Scene(silence=3).come("a")
    scene.send(chunk(agent=0, length=1, terminated=True), chunk(agent=1, length=1, terminated=True))
    scene.send(chunk(agent=0, length=5, terminated=True))
    scene.steps(3)
    assert scene.collector.agents == {("vector", 0), ("vector", 1)}
    scene.send(chunk(agent=0, length=1, terminated=True)).steps(6)
    assert scene.collector.agents == {("vector", 0)}


def test_an_agent_that_is_gone_is_not_waited_for():
    scene = Scene().come("a", "b")
    scene.send(chunk(agent=0), chunk(agent=1, terminated=True)).send(chunk(agent=1), actor="b")
    scene.send(chunk(agent=0), gone=(("vector", 1), ("camera", 9)))
    scene.steps(20)
    assert scene.collector.agents == {("vector", 0), ("vector", OF_ONE + 1)}


def test_iterations_end_when_all_have_finished_an_episode():
    scene = Scene(whole=True).come("a")
    iteration, both = Iteration(scene.collector), (chunk(agent=0), chunk(agent=1))
    ended = []
    for finished in ([0], [0], [1], [0, 1]):
        scene.send(*both, episodes=tuple(("vector", agent, 1.0, 3) for agent in finished))
        ended.append(iteration.ends(scene.collector.step()))
    assert ended == [False, False, True, True]


def test_a_trajectory_is_done_with_when_the_next_one_is_asked_for():
    """In synchronous mode its actor waits until all updates that it brought have been made."""

    async def scenario():
        scene = Scene().come("a")
        one = trajectory(chunk(length=2), actor="a")
        scene.actors.accept(one, 0)
        await scene.queue.put(0, one, timeout=0)
        answered = asyncio.create_task(scene.queue.processed(one))
        states = []
        for _ in range(3):
            scene.collector.step()
            await asyncio.sleep(0.01)
            states.append((scene.collector.steps, answered.done()))
        return states

    assert asyncio.run(scenario()) == [(1, False), (2, False), (2, True)]


lengths = st.lists(st.integers(0, 30), max_size=8)


@given(lengths, st.integers(0, 60))
@settings(max_examples=60)
def test_every_step_is_counted_also_over_a_restart(sizes, stop):
    scene = Scene().come("a")
    for steps in sizes:
        scene.send(chunks=chunks_of(steps), episodes=(("vector", 0, 0.0, 1),))
    found, before = [], 0
    for k in range(260):
        if k == stop:
            waiting = scene.queue
            scene = Scene(state=scene.collector.state())
            scene.collector._queue = waiting  # nothing of what waited is lost here
        found += scene.collector.step()
        assert 0 <= scene.collector.steps - before <= 1
        before = scene.collector.steps
    assert before == sum(sizes)
    assert len(found) == len(sizes)


def test_state_round_trip():
    scene = Scene().come("a", "b")
    long = chunk(agent=2, length=6, terminated=True)
    scene.send(chunk(agent=1), long, episodes=(("vector", 2, 1.5, 3),))
    scene.send(chunk(agent=4), actor="b")
    scene.steps(4)
    state = scene.collector.state()
    other = Scene(state=state)
    assert len(other.notices) == 1
    assert other.collector.state().meta == state.meta and other.collector.steps == 4
    assert other.collector.agents == scene.collector.agents == {("vector", 1), ("vector", 2)}
    assert other.steps(6)[4:] == [([Episode("vector", 2, 1.5, 3)], 9), ([], 9)]
    other.come("b")
    other.clock.now += 3.1 * 2.0
    other.steps(1)
    assert other.logs["vector"].told == [], "both may still be about to come: one is here, one was awaited"
    other.steps(1)
    with pytest.raises(KeyError):
        Scene(state=State(meta={"steps": 1}))


def test_streams_of_who_does_not_come_back_are_closed():
    scene = Scene().come("a").send(chunk(agent=1)).send(chunk(agent=6, terminated=True))
    scene.steps(6)
    other = Scene(state=scene.collector.state())
    other.steps(1)
    assert other.logs["vector"].told == []
    other.clock.now += 6.1
    other.steps(1)
    assert other.logs["vector"].told == [("close", 1)]
    assert Scene(state=Scene().collector.state()).notices == []


def test_who_had_left_before_the_checkpoint_is_not_waited_for_after_it():
    """What the queue held at that moment is gone with it, and so is the word that the actor has left."""
    scene = Scene().come("a").send(chunk(agent=1))
    scene.leave("a")
    scene.steps(1)  # its steps are handed out before anybody looks at what came next
    other = Scene(state=scene.collector.state())
    assert other.collector.agents == {("vector", 1)}
    other.steps(4)
    assert other.logs["vector"].told == [("close", 1)] and other.collector.agents == frozenset()


def test_what_is_shown_and_logged():
    scene = Scene().come(*map(str, range(MAX_ROWS + 4)))
    scene.send(actor="0")
    assert scene.collector.metrics()["ds/actors"] == 20.0 and scene.collector.metrics()["ds/waiting"] == 1.0
    rows = scene.collector.rows()
    assert len(rows) == MAX_ROWS + 1 and rows[-1] == ("actors", "and 4 more")
    assert len(Scene().come("a").collector.rows()) == 1


def test_waiting_and_storing_are_charged_apart():
    scene = Scene().come("a").send()
    clock = scene.watch._clock = Clock()
    scene.watch.skip()
    take, add = scene.queue.take, scene.logs["vector"].add

    def slow(call, seconds):
        def run(*args):
            clock.now += seconds
            return call(*args)

        return run

    scene.queue.take, scene.logs["vector"].add = slow(take, 5.0), slow(add, 2.0)
    scene.collector.step()
    assert (scene.watch.seconds["wait"], scene.watch.seconds["store"]) == (5.0, 2.0)


def test_what_is_logged_is_explained():
    scene = Scene().come("a").send()
    assert scene.collector.metrics().keys() <= METRICS.keys()
    assert "ds/lag" in scene.collector.metrics()


@pytest.mark.fault("F32")
def test_trajectories_of_no_steps_do_not_make_ever_more_agents(monkeypatch):
    monkeypatch.setattr(collector, "MAX_STREAMS", 8)
    scene = Scene().come("a")
    for agent in range(30):
        scene.send(chunk(agent=agent, length=1))
        scene.steps(1)
    assert scene.collector.agents == {("vector", agent) for agent in range(22, 30)}
    closed = [told[1] for told in scene.logs["vector"].told if told[0] == "close"]
    assert closed == list(range(22)), "their episodes end where they are, the oldest first"
