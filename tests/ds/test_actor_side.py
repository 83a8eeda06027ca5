"""A learner that comes late, refuses, is slow, dies, comes back, or has finished; nothing is unaccounted."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ds.send_queue
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from ds import link as link_module
from ds.contact import Backoff, Clock, Sent, WeightFetcher
from ds.protocol import (
    Beat,
    Busy,
    Bye,
    Hello,
    Join,
    LearnerAway,
    LearnerRefused,
    TrajectoryChunk,
    Unreachable,
    WeightRequest,
)
from ds.send_queue import SendQueue
from ds.trajectory import TrajectoryWriter
from tests.ds.learners import Actor, FakeLearner, packed, until
from tests.ds.trajectories import chunk, trajectory
from tests.oracles_replay import VECTOR, make_segment, step_batch

MESSAGE = trajectory(actor="a1", chunks=())


# ---- a learner that does not answer


def test_it_waits_for_a_learner_that_comes_late_and_says_so_once():
    """Tries at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 and 16.3 s; with a user who ends it, none."""
    learner = FakeLearner()
    learner.up = False
    actor = Actor(learner)
    actor.clock.at(12.0, lambda: setattr(learner, "up", True))
    welcome = actor.link.start()
    assert (welcome.seed, welcome.slot, welcome.number) == (5, 0, 0)
    there = ["waiting for the learner at host:1 (connection refused)", "the learner is there after 16 s"]
    assert actor.lines == there
    learner.up = False
    other = Actor(learner, stopped=lambda: other.clock.time > 3)
    assert other.link.start() is None
    assert other.clock.time < 3.5, "noticed in the middle of a pause"
    for one in (actor, other):
        one.link.close("done")


def test_pauses_differ_between_actors():
    even, uneven = Backoff(lambda: 0.0), Backoff(lambda: 0.5)
    assert [even.pause() for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [uneven.pause() for _ in range(2)] == [0.1 * 0.75, 0.2 * 0.75]


def test_patience_ends_at_the_start_and_while_acting():
    learner = FakeLearner()
    learner.up = False
    with pytest.raises(LearnerAway, match="no learner answered for 11 s") as caught:
        Actor(learner, patience=10).link.start()
    assert caught.value.exit_code == 3 and "net_config.patience" in str(caught.value)
    assert "host:1" in str(caught.value) and "connection refused" in str(caught.value)
    learner.up = True
    actor = Actor(learner, patience=10)
    link = actor.join()
    learner.answers.append(Busy("no hand free"))
    with pytest.raises(Busy):
        link.deliver(MESSAGE)
    assert not link.away, "it is there all the same"
    learner.up = False
    for call, seconds in ((link.beat, 9), (lambda: link.deliver(MESSAGE), 1)):
        with pytest.raises(Unreachable):
            call()
        actor.clock.time += seconds
    with pytest.raises(LearnerAway):
        link.beat()
    learner.up = True
    link.close("away")
    assert learner.of(Bye) == [], "goodbye is not said to nobody"


def test_a_person_is_told_when_it_begins_and_ends_but_not_too_often():
    learner = FakeLearner()
    actor = Actor(learner)
    link = actor.join(dropped=100)

    def fails(seconds: float = 0) -> None:
        learner.up = False
        with pytest.raises(Unreachable):
            link.beat()
        actor.clock.time += seconds

    def comes_back() -> None:
        learner.up = True
        link.beat()

    fails(0.5)
    comes_back()
    assert actor.lines == [], "a hiccup"
    fails(2)
    fails()
    assert link.away
    fails(10)
    link.sent.dropped = 3500
    comes_back()
    assert not link.away
    away = "no answer from the learner (connection refused): trying again"
    expected = [away, "the learner is back after 12 s · 3,400 steps given up"]
    assert actor.lines == expected
    actor.clock.time -= 5
    fails(2)
    fails(2)
    comes_back()
    assert actor.lines == expected, "too soon after the last time"
    fails(6)
    fails(1)
    comes_back()
    assert actor.lines[2:] == [away, "the learner is back after 7 s"], "told late"
    link.close("done")
    learner.up = False
    with pytest.raises(Unreachable):
        link.deliver(MESSAGE)
    assert len(actor.lines) == 4 and not link.away, "hanging up is no fault of the learner"


# ---- a learner that refuses, or is another one


def test_a_refusal_ends_the_actor_at_once():
    learner = FakeLearner()
    learner.refusal = "wrong token"
    actor = Actor(learner)
    with pytest.raises(LearnerRefused, match="wrong token"):
        actor.link.start()
    assert actor.clock.waits == [] and LearnerRefused.exit_code == 3


@pytest.mark.parametrize("ask", ["report", "weights", "wait_newer"])
def test_what_a_thread_meets_is_raised_in_the_main_thread(ask):
    learner = FakeLearner(heartbeat=1.0)
    link = Actor(learner).join()
    learner.refusal = "another configuration"
    until(link.halted.is_set)
    calls = {"report": lambda: link.report(steps=1, version=1), "weights": link.weights}
    with pytest.raises(LearnerRefused, match="another configuration"):
        calls.get(ask, lambda: link.wait_newer(1))()
    link.close("refused")


def test_beats_begin_before_the_actor_has_joined_and_say_how_it_is():
    """Building environments takes longer than three heartbeats."""
    learner = FakeLearner(heartbeat=1.0)
    actor = Actor(learner)
    actor.link.start()
    until(lambda: len(learner.of(Beat)) > 3)
    assert learner.of(Join) == []
    actor.link.close("done")
    learner = FakeLearner()
    link = Actor(learner).join(2, taken_steps=60, waiting=3, dropped=40)
    link.report(steps=120, version=7, faults=(1, 2))
    link.beat()
    beat = Beat(actor="a1", version=7, steps=120, waiting=3, dropped=40, faults=(1, 2))
    assert learner.of(Beat) == [beat]
    (join,) = learner.of(Join)
    assert (join.channels, join.taken_steps, join.version, join.digest) == ((0, 0), 60, 0, "digest")
    assert learner.open == 3, "a connection for each channel, and one"
    link.close("done")
    assert learner.of(Bye) == [Bye(actor="a1", reason="done")] and learner.closed == 3


@pytest.mark.fault("F04")
def test_a_learner_started_anew_is_greeted_and_joined_again():
    learner = FakeLearner()
    actor = Actor(learner)
    actor.link.start()
    learner.restart()  # while environments are built
    actor.link.join({}, "digest", Sent(taken=[0]))
    assert actor.link.deliver(MESSAGE).state == "taken"
    learner.restart()
    learner.said.clear()
    actor.link.beat()
    assert [type(m) for m in learner.said if not isinstance(m, WeightRequest)] == [Beat, Hello, Join]
    assert actor.lines == ["the learner was started anew (run r)"] * 2 and learner.joined == {"a1"}
    learner.known.clear(), learner.joined.clear()  # it was stopped for long, and the same learner forgot it
    assert [actor.link.deliver(MESSAGE).state for _ in range(2)] == ["unknown", "taken"]
    assert len(actor.lines) == 2
    learner.restart()
    learner.synchronous = True
    with pytest.raises(LearnerRefused, match="synchronous"):
        actor.link.beat()
    actor.link.close("done")


def test_however_many_notice_it_hello_is_said_once():
    learner = FakeLearner()
    link = Actor(learner).join(3)
    learner.joined.clear()
    learner.gate.clear()
    messages = [trajectory(actor="a1", channel=channel, chunks=()) for channel in range(3)]
    threads = [threading.Thread(target=link.deliver, args=(message,)) for message in messages]
    for thread in threads:
        thread.start()
    until(lambda: learner.inside == 3)
    hear = learner.hear

    def slowly(message: object) -> None:
        """All three have been answered with unknown before the first hello is."""
        if isinstance(message, Hello):
            until(lambda: len(learner.came) == 3)
        hear(message)

    learner.hear = slowly
    learner.gate.set()
    for thread in threads:
        thread.join()
    assert len(learner.of(Hello)) == 2 and len(learner.of(Join)) == 2
    link.close("done")


@pytest.mark.parametrize("how", ["beat", "deliver", "join"])
def test_the_end_of_the_training_ends_the_actor(how, monkeypatch):
    learner = FakeLearner()
    learner.finished = how == "join"
    link = Actor(learner).join()
    learner.finished = True
    if how == "beat":
        link.beat()
    elif how == "deliver":
        assert link.deliver(MESSAGE).state == "finished"
    assert link.finished and link.halted.is_set()
    link.report(steps=1, version=1)  # raises nothing
    gate = threading.Event()
    monkeypatch.setattr(link_module, "BYE_S", 0.01)
    learner.hear = lambda message: gate.wait()
    link.close("finished")  # goodbye takes no longer than it may
    gate.set()
    assert learner.closed == 2


# ---- weights


def test_newer_weights_are_fetched_and_only_the_newest_are_kept():
    learner = FakeLearner()
    actor = Actor(learner)
    link = actor.join()
    until(lambda: link._fetcher.version == 1)
    for version in (2, 3):
        learner.version = version
        link.beat()
        until(lambda version=version: link._fetcher.version == version)
    assert link.weights() == [b"weights", b"3"] and link.weights() is None
    assert link.warming_up == {"": False}
    link.beat()
    assert [wanted.newer_than for wanted in learner.of(WeightRequest)] == [0, 1, 2], "each once"
    learner.restart()
    link.beat()
    assert learner.of(Join)[-1].version == 3, "so that versions never fall"
    learner.up = False
    link._fetcher.announce(4)
    until(lambda: link.away)
    learner.version, learner.up = 4, True
    until(lambda: link._fetcher.version == 4)
    link.close("done")


def test_weights_that_are_not_there_or_known_are_not_asked_for_again_and_again():
    asked, found = [], []
    fetcher = WeightFetcher(lambda than: asked.append(than) or list(found))
    for announced in (5, 5):
        fetcher.announce(announced)
        fetcher.fetch()
    assert asked == [0] and fetcher.take() is None and fetcher.version == 0
    fetcher.retry_missing()
    fetcher.fetch()
    found.append(b"7")  # newer than was known
    fetcher.announce(6)
    fetcher.fetch()
    fetcher.mark_loaded(7)
    fetcher.announce(7)
    fetcher.fetch()
    assert asked == [0, 0, 0] and fetcher.version == 7


def test_in_step_with_the_learner_the_main_thread_fetches():
    learner, before = FakeLearner(synchronous=True), set(threading.enumerate())
    actor = Actor(learner)
    link = actor.join()
    assert link.wait_newer(0)[1] == b"1"
    assert link.wait_newer(1) is None, "at once: there are no newer ones"
    learner.version = 2
    link.beat()
    assert link.wait_newer(1) is None and link.warming_up == {"": True}
    learner.version = 3
    link.deliver(MESSAGE)
    learner.up = False
    actor.clock.at(actor.clock.time + 20, lambda: setattr(learner, "up", True))
    assert link.wait_newer(1)[1] == b"3", "it waits for a learner that is away"
    assert link.warming_up == {"": False}
    assert "weights" not in {thread.name for thread in set(threading.enumerate()) - before}
    link.close("done")


# ---- messages


@contextmanager
def sending(
    learner: FakeLearner, *, channels: int = 1, size: int = 4, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[SendQueue, Actor]]:
    """A send queue that is sending to ``learner``."""
    actor = Actor(learner, stopped=stopped)
    send_queue = SendQueue(actor.link, channels=channels, size=size)
    actor.link.start()
    actor.link.join({}, "digest", send_queue.sent)
    send_queue.start()
    try:
        yield send_queue, actor
    finally:
        learner.gate.set()
        send_queue.finish(0.0)
        actor.link.close("done")


def numbers(trajectories, channel: int = 0) -> list[int]:
    return [trajectory.number for trajectory in trajectories if trajectory.channel == channel]


def put_all(send_queue: SendQueue, *messages) -> None:
    """And wait until the learner has them."""
    for message in messages:
        send_queue.put(message)
    until(lambda: not send_queue.sent.waiting)


def apart(put: Callable[[], object]) -> threading.Thread:
    """What the main thread would do, so that it can be seen to wait."""
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    return thread


def test_trajectories_are_numbered_from_one_in_each_lane_and_keep_their_order():
    learner = FakeLearner()
    with sending(learner, channels=2) as (send_queue, _):
        put_all(send_queue, *(packed(i % 2, steps=i) for i in range(20)))
    for channel in (0, 1):
        assert numbers(learner.stored, channel) == list(range(1, 11))
        assert [p.steps for p in learner.stored if p.channel == channel] == list(range(channel, 20, 2))
    assert send_queue.sent == Sent(taken=[10, 10], taken_steps=sum(range(20)))
    assert learner.came == learner.stored and {p.actor for p in learner.came} == {"a1"}


@pytest.mark.parametrize(
    ("answers", "slow", "waits"),
    [
        (["again", "again"], 2, []),  # the learner has waited for room already
        (["again", "again"], 0, [0.1, 0.1]),
        ([Busy("no hand free")] * 2, 0, [0.1, 0.2]),
        ([Unreachable("gone")] * 7, 0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]),
        (["unknown"] * 3, 0, [0.1, 0.2, 0.4]),
    ],
)
def test_what_is_not_taken_is_sent_again_and_takes_turns_with_pauses(answers, slow, waits):
    learner = FakeLearner()
    learner.answers += answers
    with sending(learner) as (send_queue, actor):
        learner.on_deliver = lambda: setattr(actor.clock, "time", actor.clock.time + slow)
        send_queue.hand_over(packed())
        assert send_queue.sent.waiting == 0, "the learner has it"
        assert actor.clock.waits == pytest.approx(waits)
        assert (
            all(isinstance(one, Unreachable) and not isinstance(one, Busy) for one in answers)
            or not actor.lines
        )
        send_queue.hand_over(packed())
    assert numbers(learner.came) == [1] * (len(answers) + 1) + [2] and numbers(learner.stored) == [1, 2]


@pytest.mark.fault("F04")
def test_a_lost_receipt_or_a_learner_started_anew_gets_the_same_number_again():
    learner = FakeLearner()
    learner.answers += ["taken but lost"]
    with sending(learner) as (send_queue, _):
        for _ in range(3):
            send_queue.hand_over(packed(steps=5))
        learner.restart()
        send_queue.hand_over(packed(steps=5))
    assert numbers(learner.came) == [1, 1, 2, 3, 4, 4] and numbers(learner.stored) == [1, 2, 3, 4]
    join = learner.said[-2]
    assert (join.channels, join.taken_steps) == ((3,), 15), "what a learner has taken of it"


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("stale", "9 steps were not used: made with weights too old (because it is stale)"),
        ("rejected", "9 steps were rejected (because it is rejected)"),
    ],
)
def test_what_the_learner_does_not_want_is_told_at_most_once_a_minute(state, line):
    learner = FakeLearner()
    learner.answers += [state] * 5 + [""]
    with sending(learner) as (send_queue, actor):
        for i in range(5):
            actor.clock.time += 60 * (i == 4)
            send_queue.hand_over(packed(steps=9))
        send_queue.hand_over(packed(steps=1))
        until(lambda: len(actor.lines) == 2)
        assert actor.lines == [line, f"{line} (3 more like this before)"]
    assert send_queue.sent == Sent(taken=[6], taken_steps=1)
    assert numbers(learner.came) == [1, 2, 3, 4, 5, 6]


@pytest.mark.fault("F06")
def test_an_actor_waits_for_a_slow_learner_instead_of_running_ahead():
    """A message of each channel may be on its way; the second one waits for it, or the end."""
    learner, stop = FakeLearner(), threading.Event()
    learner.gate.clear()
    with sending(learner, channels=2, size=50, stopped=stop.is_set) as (send_queue, _):
        send_queue.put(packed(0))
        send_queue.put(packed(1))
        thread = apart(lambda: send_queue.put(packed(0)))
        until(lambda: send_queue.sent.waiting == 3)
        thread.join(0.3)
        assert thread.is_alive(), "nothing has been taken yet"
        learner.gate.set()
        thread.join(10)
        until(lambda: not send_queue.sent.waiting)
        learner.gate.clear()
        send_queue.put(packed(0))
        thread = apart(lambda: send_queue.put(packed(0)))
        until(lambda: send_queue.sent.waiting == 2)
        stop.set()
        thread.join(10)
        assert not thread.is_alive() and send_queue.sent.dropped == 0, "it may still be sent"
    assert numbers(learner.stored, 0)[:2] == [1, 2] and numbers(learner.stored, 1) == [1]


def test_while_the_learner_is_away_the_oldest_unsent_trajectories_are_given_up():
    """Message 1 is on its way when the learner goes; of the others the last two are kept."""
    learner = FakeLearner()
    with sending(learner, size=3) as (send_queue, actor):
        learner.gate.clear()
        send_queue.put(packed(steps=1))
        until(lambda: learner.inside)
        learner.up = False
        learner.gate.set()
        until(lambda: actor.link.away)
        for i in range(2, 8):
            send_queue.put(packed(steps=1000 * i))
        assert send_queue.sent.waiting == 3
        dropped = send_queue.sent.dropped
        until(lambda: actor.lines)
        learner.up = True
        until(lambda: not send_queue.sent.waiting)
        until(lambda: len(actor.lines) == 2)
    assert numbers(learner.stored) == [1, 6, 7], "the numbers of the others never come"
    assert dropped == 1000 * (2 + 3 + 4 + 5) and send_queue.sent.taken_steps == 1 + 6000 + 7000
    assert actor.lines[1].endswith("s · 14,000 steps given up")
    assert [trajectory.dropped for trajectory in learner.stored] == [0, dropped, dropped]


@pytest.mark.parametrize(("channels", "size", "puts", "left"), [(2, 4, (0, 1, 1, 0, 1), 4), (1, 1, (0,), 1)])
def test_the_oldest_is_the_oldest_of_all_channels_that_is_not_on_its_way(channels, size, puts, left):
    learner = FakeLearner()
    with sending(learner, channels=channels, size=size) as (send_queue, actor):
        learner.up = False
        for channel in range(channels):
            send_queue.put(packed(channel))
        until(lambda: actor.link.away and not any(channel.queue for channel in send_queue._channels))
        for channel in puts:
            send_queue.put(packed(channel))
        assert send_queue.sent.waiting == left
        learner.up = True
        until(lambda: not send_queue.sent.waiting)
    kept = {0: numbers(learner.stored, 0), 1: numbers(learner.stored, 1)}
    assert kept == ({0: [1, 3], 1: [1, 4]} if channels == 2 else {0: [1], 1: []})


def test_what_follows_lost_transitions_begins_with_the_end_of_their_episodes():
    learner = FakeLearner()
    learner.answers += ["rejected", "", "stale", "", ""]
    with sending(learner, channels=2) as (send_queue, _):
        for agents in ((1, 3), (1,), (3, 5), (5,), (7,)):
            send_queue.hand_over(packed(1, chunks=tuple(chunk(agent=agent) for agent in agents)))
    came = [[(p.agent, p.transitions is not None) for p in one.chunks] for one in learner.came]
    assert came[1] == [(1, False), (3, False), (1, True)]
    assert came[3] == [(3, False), (5, False), (5, True)]
    assert came[4] == [(7, True)], "said once"


def test_ever_so_many_interrupted_episodes_go_in_several_messages(monkeypatch):
    monkeypatch.setattr(ds.send_queue, "MAX_INTERRUPTED", 3)
    learner = FakeLearner()
    learner.answers += ["rejected"]
    with sending(learner) as (send_queue, _):
        send_queue.hand_over(packed(chunks=tuple(TrajectoryChunk("b", agent, None) for agent in range(8))))
        for _ in range(4):
            send_queue.hand_over(packed(chunks=(TrajectoryChunk("b", 7, None),)))
    told = [[piece.agent for piece in one.chunks] for one in learner.came[1:]]
    assert told == [[0, 1, 2, 7, 7], [3, 4, 5, 7], [6, 7], [7]]


def test_episodes_that_lost_their_pieces_are_not_taken_for_one():
    """Of two episodes in pieces of 4, the end of the first and the beginning of the second are lost.

    What is left stands at steps 0 to 3 and 4 to 7: without a word the one would seem to go on in the other.
    """
    writer, found = TrajectoryWriter(max_length=4, channels=1), []
    for episode in (1, 2):
        for t in range(8):
            one = make_segment(VECTOR, stream=0, episode=episode, start=t, length=1, truncated=t == 7)
            writer.add("b", step_batch([one]))
            found += writer.flush(agents=frozenset(), episodes=[])
    assert len(found) == 4
    learner = FakeLearner()
    learner.gate.clear()
    with sending(learner, size=2) as (send_queue, actor):
        send_queue.put(found[0])
        until(lambda: learner.inside)
        learner.up = False
        learner.gate.set()
        until(lambda: actor.link.away)
        for one in found[1:]:
            send_queue.put(one)
        learner.up = True
        until(lambda: not send_queue.sent.waiting)
    assert numbers(learner.stored) == [1, 4]
    replay = ReplayBuffer(
        VECTOR, capacity=50, batch_size=1, learn=8, carry_shape=(0,), sampler=UniformSampler()
    )
    for piece in (piece for one in learner.stored for piece in one.chunks):
        if piece.transitions is None:
            replay.close(0)
        else:
            replay.add(piece.transitions.segment(piece.agent))
    batch = replay.windows(np.array([0, 1, 2, 3, 5, 6, 7, 8]))
    for seen, there in zip(batch.obs["obs"].numpy(), batch.obs_valid.numpy(), strict=True):
        assert len(set(seen[there][:, 1].tolist())) == 1, "one episode in a window"


PLAN = st.lists(
    st.sampled_from(("put", "put", "put", "down", "up", "restart", "again", "unknown", "lost", "wait")),
    max_size=40,
)


@settings(max_examples=15)
@example(plan=["down", *["put"] * 9], channels=3, size=1)
@given(plan=PLAN, channels=st.integers(1, 3), size=st.integers(1, 5))
def test_whatever_happens_order_is_kept_and_every_step_is_accounted_for(plan, channels, size):
    learner, put = FakeLearner(), 0
    with sending(learner, channels=channels, size=size) as (send_queue, _):
        sent = send_queue.sent
        for event in plan:
            if event == "put":
                put += 1
                send_queue.put(packed(put % channels, steps=put))
                assert sent.waiting <= max(size, channels)
            elif event in ("down", "up"):
                learner.up = event == "up"
            elif event == "restart":
                learner.restart()
            elif event == "wait":
                until(lambda: not learner.up or not sent.waiting)
            else:
                learner.answers.append("taken but lost" if event == "lost" else event)
        learner.up = True
        until(lambda: not sent.waiting)
    assert sent.taken_steps + sent.dropped == sum(range(put + 1))
    assert sum(trajectory.steps for trajectory in learner.stored) == sent.taken_steps
    for channel in range(channels):
        stored = numbers(learner.stored, channel)
        assert stored == sorted(set(stored))
    assert (put == len(learner.stored)) == (sent.dropped == 0), "no gap but for what was given up"


@pytest.mark.parametrize("error", [LearnerRefused("too large"), ValueError("a bug")])
def test_what_ends_a_lane_is_raised_where_the_actor_puts(error):
    learner = FakeLearner()
    learner.answers += [error]
    with sending(learner) as (send_queue, _):
        for put in (send_queue.hand_over, send_queue.put):
            with pytest.raises(type(error), match=str(error)):
                put(packed())


def test_the_end_of_the_training_takes_nothing():
    learner = FakeLearner()
    with sending(learner, size=1) as (send_queue, actor):
        learner.finished = True
        send_queue.hand_over(packed())
        assert actor.link.finished
        before = send_queue.sent.waiting
        for _ in range(5):
            send_queue.put(packed())
        assert send_queue.sent.waiting == before, "nobody wants it any more"
    assert learner.stored == [] and send_queue.sent.taken_steps == 0


@pytest.mark.parametrize("answers", [True, False])
def test_what_waits_at_the_end_is_sent_or_given_up(answers):
    learner = FakeLearner()
    with sending(learner, size=9) as (send_queue, actor):
        learner.up = False
        send_queue.put(packed(steps=1))
        until(lambda: actor.link.away)
        for _ in range(3):
            send_queue.put(packed(steps=5))
        if answers:
            learner.up = True
            until(lambda: not actor.link.away)
        send_queue.finish(60.0)
        assert send_queue.sent.dropped == (0 if answers else 15)
    assert len(learner.stored) == (4 if answers else 0)


def test_what_sends_needs_neither_torch_nor_the_network():
    code = "import sys, ds.trajectory, ds.send_queue, ds.link\nassert not {'torch', 'grpc'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_real_clock_waits_for_the_event():
    event, clock = threading.Event(), Clock()
    before = clock.now()
    assert not clock.wait(event, 0.001) and clock.now() > before
    event.set()
    assert clock.wait(event, 1e6)
