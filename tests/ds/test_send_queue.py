"""Messages arrive in order and at least once; what does not is counted; there are never too many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ds.send_queue
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from ds.errors import Busy, LearnerRefused, Unreachable
from ds.protocol import TrajectoryChunk
from ds.send_queue import SendQueue
from ds.trajectory import TrajectoryWriter
from tests.ds.learners import Actor, FakeLearner, packed, until
from tests.ds.trajectories import transitions_of
from tests.oracles_replay import VECTOR, make_segment


@contextmanager
def sending(
    learner: FakeLearner, *, channels: int = 1, size: int = 4, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[SendQueue, Actor]]:
    """A send queue that is sending to ``learner``."""
    actor = Actor(learner, stopped=stopped)
    send_queue = SendQueue(actor.link, channels=channels, size=size)
    actor.link.start()
    actor.link.join({}, "", send_queue)
    send_queue.start()
    try:
        yield send_queue, actor
    finally:
        learner.gate.set()
        send_queue.finish(0.0)
        actor.link.close("done")


def numbers(trajectories, channel: int = 0) -> list[int]:
    return [trajectory.number for trajectory in trajectories if trajectory.channel == channel]


def apart(put: Callable[[], object]) -> threading.Thread:
    """What the main thread would do, so that it can be seen to wait."""
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    return thread


def test_trajectories_are_numbered_from_one_in_each_lane_and_keep_their_order():
    learner = FakeLearner()
    with sending(learner, channels=2) as (send_queue, _):
        for i in range(20):
            send_queue.put(packed(i % 2, steps=i))
        until(lambda: not send_queue.waiting)
    for channel in (0, 1):
        assert numbers(learner.stored, channel) == list(range(1, 11))
        assert [p.steps for p in learner.stored if p.channel == channel] == list(range(channel, 20, 2))
    assert (
        send_queue.taken == (10, 10) and send_queue.taken_steps == sum(range(20)) and send_queue.dropped == 0
    )
    assert learner.came == learner.stored and {p.actor for p in learner.came} == {"a1"}


def test_a_trajectory_without_room_is_sent_again_at_once():
    learner = FakeLearner()
    learner.answers += ["again", "again"]
    with sending(learner) as (send_queue, actor):
        learner.on_deliver = lambda: setattr(actor.clock, "time", actor.clock.time + 2)
        send_queue.hand_over(packed())
        assert send_queue.waiting == 0, "the learner has it"
        send_queue.hand_over(packed())
        assert actor.clock.waits == []
    assert numbers(learner.came) == [1, 1, 1, 2]


def test_a_learner_that_does_not_wait_for_room_is_not_asked_without_a_pause():
    learner = FakeLearner()
    learner.answers += ["again", "again"]
    with sending(learner) as (send_queue, actor):
        send_queue.hand_over(packed())
        assert actor.clock.waits == [0.1, 0.1]


def test_a_learner_with_no_hand_free_is_not_away():
    learner = FakeLearner()
    learner.answers += [Busy("no hand free"), Busy("no hand free")]
    with sending(learner) as (send_queue, actor):
        send_queue.hand_over(packed())
        assert actor.clock.waits == [0.1, 0.2] and actor.lines == []


def test_a_trajectory_that_did_not_arrive_is_sent_again_after_growing_pauses():
    learner = FakeLearner()
    learner.answers += [Unreachable("gone")] * 7 + ["", Unreachable("gone")]
    with sending(learner) as (send_queue, actor):
        send_queue.hand_over(packed())
        send_queue.hand_over(packed())
        assert actor.clock.waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 0.1])
    assert numbers(learner.came) == [1] * 8 + [2, 2] and numbers(learner.stored) == [1, 2]


def test_a_trajectory_whose_receipt_was_lost_arrives_twice_and_counts_once():
    learner = FakeLearner()
    learner.answers += ["taken but lost"]
    with sending(learner) as (send_queue, _):
        send_queue.hand_over(packed(steps=7))
    assert numbers(learner.came) == [1, 1] and numbers(learner.stored) == [1] and send_queue.taken_steps == 7


def test_a_learner_started_anew_gets_the_same_trajectory_with_its_number():
    learner = FakeLearner()
    with sending(learner) as (send_queue, _):
        for _ in range(3):
            send_queue.hand_over(packed(steps=5))
        learner.restart()
        send_queue.hand_over(packed(steps=5))
    assert numbers(learner.came) == [1, 2, 3, 4, 4] and numbers(learner.stored) == [1, 2, 3, 4]
    join = learner.said[-2]
    assert (join.channels, join.taken_steps) == ((3,), 15), "what a learner has taken of it"


def test_an_actor_that_stays_unknown_does_not_ask_without_a_pause():
    learner = FakeLearner()
    learner.answers += ["unknown"] * 3
    with sending(learner) as (send_queue, actor):
        send_queue.hand_over(packed())
        assert actor.clock.waits == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("stale", "9 steps were not used: made with weights too old (because it is stale)"),
        ("rejected", "9 steps were rejected (because it is rejected)"),
    ],
)
def test_what_the_learner_does_not_want_is_counted_and_told_at_most_once_a_minute(state, line):
    learner = FakeLearner()
    learner.answers += [state] * 5 + [""]
    with sending(learner) as (send_queue, actor):
        for i in range(5):
            actor.clock.time += 60 * (i == 4)
            send_queue.hand_over(packed(steps=9))
        send_queue.hand_over(packed(steps=1))
        until(lambda: len(actor.lines) == 2)
        assert actor.lines == [line, f"{line} (3 more like this before)"]
    assert getattr(send_queue, state) == 45 and send_queue.taken_steps == 1 and send_queue.taken == (6,)
    assert send_queue.dropped == 0 and numbers(learner.came) == [1, 2, 3, 4, 5, 6]


def test_an_actor_waits_for_a_slow_learner_instead_of_running_ahead():
    """A message of each channel may be on its way; the second one of a channel waits, whatever the size."""
    learner = FakeLearner()
    learner.gate.clear()
    with sending(learner, channels=2, size=50) as (send_queue, _):
        send_queue.put(packed(0))
        send_queue.put(packed(1))
        done = threading.Event()
        thread = apart(lambda: (send_queue.put(packed(0)), done.set()))
        until(lambda: send_queue.waiting == 3)
        assert not done.wait(0.5), "nothing has been taken yet"
        learner.gate.set()
        thread.join(10)
        assert done.is_set() and send_queue.dropped == 0
        until(lambda: not send_queue.waiting)
    assert numbers(learner.stored, 0) == [1, 2] and numbers(learner.stored, 1) == [1]


def test_while_the_learner_is_away_the_oldest_unsent_trajectories_are_given_up():
    """TrajectoryMessage 1 is on its way when the learner goes; of the others the last two are kept."""
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
        assert send_queue.waiting == 3
        dropped = send_queue.dropped
        until(lambda: actor.lines)
        learner.up = True
        until(lambda: not send_queue.waiting)
        until(lambda: len(actor.lines) == 2)
    assert numbers(learner.stored) == [1, 6, 7], "the numbers of the others never come"
    assert dropped == 1000 * (2 + 3 + 4 + 5) and send_queue.taken_steps == 1 + 6000 + 7000
    assert actor.lines[1].endswith("s · 14,000 steps given up")
    assert [trajectory.dropped for trajectory in learner.stored] == [0, dropped, dropped]


def test_the_oldest_is_the_oldest_of_all_channels():
    learner = FakeLearner()
    with sending(learner, channels=2, size=4) as (send_queue, actor):
        learner.up = False
        for channel in (1, 0):
            send_queue.put(packed(channel))
        until(lambda: actor.link.away and not any(channel.queue for channel in send_queue._channels))
        for channel in (0, 1, 1, 0, 1):
            send_queue.put(packed(channel))
        learner.up = True
        until(lambda: not send_queue.waiting)
    assert numbers(learner.stored, 0) == [1, 3] and numbers(learner.stored, 1) == [1, 4]


def test_a_spool_full_of_trajectories_on_their_way_gives_up_the_new_one():
    learner = FakeLearner()
    with sending(learner, size=1) as (send_queue, actor):
        learner.up = False
        send_queue.put(packed(steps=1))
        until(lambda: actor.link.away and not send_queue._channels[0].queue)
        send_queue.put(packed(steps=8))
        assert (send_queue.waiting, send_queue.dropped) == (1, 8)


def chunks(*agents: int) -> tuple[TrajectoryChunk, ...]:
    return tuple(
        TrajectoryChunk(
            "b", agent, transitions_of(make_segment(VECTOR, stream=agent, episode=0, start=0, length=2))
        )
        for agent in agents
    )


def test_what_follows_lost_transitions_begins_with_the_end_of_their_episodes():
    learner = FakeLearner()
    learner.answers += ["rejected", "", "stale", "", ""]
    with sending(learner, channels=2) as (send_queue, _):
        for agents in ((1, 3), (1,), (3, 5), (5,), (7,)):
            send_queue.hand_over(packed(1, chunks=chunks(*agents)))
    came = [[(p.agent, p.transitions is not None) for p in trajectory.chunks] for trajectory in learner.came]
    assert came[1] == [(1, False), (3, False), (1, True)]
    assert came[3] == [(3, False), (5, False), (5, True)]
    assert came[4] == [(7, True)], "said once"


def test_episodes_that_lost_their_pieces_are_not_taken_for_one():
    """Of two episodes in pieces of 4, the end of the first and the beginning of the second are lost.

    What is left stands at steps 0 to 3 and 4 to 7: without a word the one would seem to go on in the other.
    """
    writer, found = TrajectoryWriter(max_length=4, channels=1), []
    for episode in (1, 2):
        for t in range(8):
            end = {"truncated": t == 7}
            writer.add("b", make_segment(VECTOR, stream=0, episode=episode, start=t, length=1, **end))
            found += writer.flush(agents=frozenset(), episodes=[], version=0)
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
        until(lambda: not send_queue.waiting)
    assert numbers(learner.stored) == [1, 4]
    replay = ReplayBuffer(
        VECTOR, capacity=50, batch_size=1, learn=8, carry_shape=(0,), sampler=UniformSampler()
    )
    for chunk in (chunk for trajectory in learner.stored for chunk in trajectory.chunks):
        if chunk.transitions is None:
            replay.close(0)
        else:
            replay.add(chunk.transitions.segment(chunk.agent))
    batch = replay.windows(np.array([0, 1, 2, 3, 5, 6, 7, 8]))
    for seen, there in zip(batch.obs["obs"].numpy(), batch.obs_valid.numpy(), strict=True):
        assert len(set(seen[there][:, 1].tolist())) == 1, "one episode in a window"


PLAN = st.lists(
    st.sampled_from(("put", "put", "put", "down", "up", "restart", "again", "unknown", "lost", "wait")),
    max_size=40,
)


@settings(max_examples=25)
@example(plan=["down", *["put"] * 9], channels=3, size=1)
@given(plan=PLAN, channels=st.integers(1, 3), size=st.integers(1, 5))
def test_whatever_happens_order_is_kept_and_every_step_is_accounted_for(plan, channels, size):
    learner, put = FakeLearner(), 0
    with sending(learner, channels=channels, size=size) as (send_queue, _):
        for event in plan:
            if event == "put":
                put += 1
                send_queue.put(packed(put % channels, steps=put))
                assert send_queue.waiting <= max(size, channels)
            elif event in ("down", "up"):
                learner.up = event == "up"
            elif event == "restart":
                learner.restart()
            elif event == "wait":
                until(lambda: not learner.up or not send_queue.waiting)
            else:
                learner.answers.append("taken but lost" if event == "lost" else event)
        learner.up = True
        until(lambda: not send_queue.waiting)
    assert send_queue.taken_steps + send_queue.dropped == sum(range(put + 1))
    assert sum(trajectory.steps for trajectory in learner.stored) == send_queue.taken_steps
    given = [0] * channels
    for channel in range(channels):
        stored = numbers(learner.stored, channel)
        assert stored == sorted(set(stored))
        given[channel] = sum(i % channels == channel for i in range(1, put + 1))
        assert all(number <= given[channel] for number in stored)
    lost = sum(given) - len(learner.stored)
    assert (lost == 0) == (send_queue.dropped == 0), "no gap but for what was given up"


@pytest.mark.parametrize("error", [LearnerRefused("too large"), ValueError("a bug")])
def test_what_ends_a_lane_is_raised_where_the_actor_puts(error):
    learner = FakeLearner()
    learner.answers += [error]
    with sending(learner) as (send_queue, _):
        with pytest.raises(type(error), match=str(error)):
            send_queue.hand_over(packed())
        with pytest.raises(type(error)):
            send_queue.put(packed())


def test_waiting_for_a_slow_learner_does_not_keep_an_actor_that_is_to_end():
    learner, stop = FakeLearner(), threading.Event()
    learner.gate.clear()
    with sending(learner, size=1, stopped=stop.is_set) as (send_queue, _):
        send_queue.put(packed())
        thread = apart(lambda: send_queue.put(packed()))
        until(lambda: send_queue.waiting == 2)
        assert thread.is_alive()
        stop.set()
        thread.join(10)
        assert not thread.is_alive() and send_queue.dropped == 0, "it may still be sent"


def test_the_end_of_the_training_empties_nothing_and_takes_nothing():
    learner = FakeLearner()
    with sending(learner, size=1) as (send_queue, actor):
        learner.finished = True
        send_queue.hand_over(packed())
        assert actor.link.finished
        before = send_queue.waiting
        for _ in range(5):
            send_queue.put(packed())
        assert send_queue.waiting == before, "nobody wants it any more"
    assert learner.stored == [] and send_queue.taken_steps == 0


def test_what_waits_at_the_end_is_sent():
    learner = FakeLearner()
    learner.gate.clear()
    with sending(learner, channels=5, size=5) as (send_queue, _):
        for channel in range(5):
            send_queue.put(packed(channel))
        until(lambda: learner.inside)
        thread = apart(lambda: send_queue.finish(3.0))
        learner.gate.set()
        thread.join(10)
        assert not thread.is_alive() and send_queue.waiting == 0
    assert sorted(trajectory.channel for trajectory in learner.stored) == [0, 1, 2, 3, 4]


def test_at_the_end_nobody_waits_for_a_learner_that_is_away():
    learner = FakeLearner()
    with sending(learner) as (send_queue, actor):
        learner.up = False
        send_queue.put(packed(steps=1))
        until(lambda: actor.link.away)
        send_queue.put(packed(steps=5))
        send_queue.finish(1e9)
        assert send_queue.dropped == 5 and send_queue.waiting == 1, "one is on its way"


@pytest.mark.parametrize("wrong", [{"channels": 0, "size": 1}, {"channels": 1, "size": 0}])
def test_a_spool_needs_a_lane_and_room(wrong):
    with pytest.raises(ValueError, match="needs a channel"):
        SendQueue(Actor(FakeLearner()).link, **wrong)


def test_of_many_torn_episodes_some_are_told_with_the_next_trajectory(monkeypatch):
    """Those of its own agents must be; a trajectory has room for so many others."""
    monkeypatch.setattr(ds.send_queue, "MAX_INTERRUPTED", 2)
    learner = FakeLearner()
    learner.answers += ["rejected", "", "", ""]
    with sending(learner, channels=1) as (send_queue, _):
        for agents in ((1, 2, 3, 4, 5), (5,), (6,), (7,)):
            send_queue.hand_over(packed(0, chunks=chunks(*agents)))
    interrupted = [
        [p.agent for p in trajectory.chunks if p.transitions is None] for trajectory in learner.came
    ]
    assert interrupted == [[], [1, 2, 5], [3, 4], []]
