"""A learner that comes late, refuses, is slow, dies, comes back, or has finished; nothing is unaccounted."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ds.net.contact import Sent
from ds.net.protocol import (
    Beat,
    Busy,
    Bye,
    Join,
    LearnerAway,
    LearnerRefused,
    Unreachable,
)
from ds.net.send_queue import SendQueue
from tests.ds.learners import Actor, FakeLearner, gathered, until
from tests.ds.messages import step_message

MESSAGE = step_message(actor="a1")


@pytest.fixture
def learner():
    return FakeLearner()


@pytest.fixture
def actor(learner):
    return Actor(learner)


# ---- a learner that does not answer


def test_it_waits_for_a_learner_that_comes_late_and_says_so_once(learner, actor):
    """Tries at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 and 16.3 s; with a user who ends it, none."""
    learner.up = False
    actor.clock.at(12.0, lambda: setattr(learner, "up", True))
    assert actor.link.start().seed == 5
    there = ["waiting for the learner at host:1 (connection refused)", "the learner is there after 16 s"]
    assert actor.lines == there
    actor.link.close("done")
    learner.up = False
    other = Actor(learner, stopped=lambda: other.clock.time > 3)
    assert other.link.start() is None and other.clock.time < 3.5, "noticed in the middle of a pause"


def test_patience_ends_at_the_start_and_while_acting(learner):
    learner.up = False
    with pytest.raises(LearnerAway, match="no learner answered for 11 s"):
        Actor(learner, patience=10).link.start()
    learner.up = True
    actor = Actor(learner, patience=10)
    link = actor.join()
    learner.up = False
    with pytest.raises(Unreachable):
        link.beat()
    actor.clock.time += 10
    with pytest.raises(LearnerAway):
        link.deliver(MESSAGE)
    link.close("away")


@pytest.mark.parametrize(("seconds", "told"), [((0.5,), 0), ((2.0, 10.0), 2)])
def test_a_person_is_told_when_it_begins_and_ends_but_of_no_hiccup(learner, actor, seconds, told):
    """The learner misses a call, and another one after each of these times; then it is back."""
    link = actor.join(dropped=100)
    learner.up = False
    for pause in (0.0, *seconds):
        actor.clock.time += pause
        with pytest.raises(Unreachable):
            link.beat()
    link.sent.dropped += 3400
    learner.up = True
    link.beat()
    link.close("done")
    expected = [
        "no answer from the learner (connection refused): trying again",
        "the learner is back after 12 s · 3,400 steps dropped",
    ]
    assert actor.lines == expected[:told]


# ---- a learner that refuses, or is another one


@pytest.mark.parametrize("ask", ["start", "report", "weights", "wait_newer"])
def test_a_refusal_ends_the_actor_also_where_another_thread_meets_it(ask):
    learner = FakeLearner(heartbeat=1.0)
    actor = Actor(learner)
    link = actor.link if ask == "start" else actor.join()
    learner.refusal = "another configuration"
    calls = {
        "start": link.start,
        "report": lambda: link.report(steps=1, version=1),
        "weights": link.weights,
        "wait_newer": lambda: link.wait_newer(1),
    }
    if ask != "start":
        until(link.halted.is_set)
    with pytest.raises(LearnerRefused, match="another configuration"):
        calls[ask]()
    link.close("refused")


def test_beats_begin_before_the_actor_has_joined_and_say_how_it_is():
    """Building environments takes longer than three heartbeats."""
    learner = FakeLearner(heartbeat=1.0)
    actor = Actor(learner)
    actor.link.start()
    until(lambda: len(learner.of(Beat)) > 3)
    assert learner.of(Join) == []
    link = actor.join(taken=7, taken_steps=60, waiting=3, dropped=40)
    link.report(steps=120, version=7, faults=(1, 2))
    beat = Beat(actor="a1", version=7, steps=120, waiting=3, dropped=40, faults=(1, 2))
    until(lambda: beat in learner.of(Beat))
    (join,) = learner.of(Join)
    assert (join.number, join.taken_steps, join.version, join.agreed) == (7, 60, 0, '{"a.b": 1}')
    link.close("done")
    assert learner.of(Bye) == [Bye(actor="a1", reason="done")]


@pytest.mark.parametrize("how", ["beat", "deliver", "join"])
def test_the_end_of_the_training_ends_the_actor(learner, how):
    learner.finished = how == "join"
    link = Actor(learner).join()
    learner.finished = True
    {"beat": link.beat, "deliver": lambda: link.deliver(MESSAGE), "join": lambda: None}[how]()
    assert link.finished and link.halted.is_set()
    link.report(steps=1, version=1)  # raises nothing
    link.close("finished")
    assert learner.closed == 1


# ---- messages


@contextmanager
def sending(
    learner: FakeLearner,
    *,
    size: int = 4,
    ahead: int = 1,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[SendQueue, Actor]]:
    """A send queue that is sending to ``learner``."""
    actor = Actor(learner, stopped=stopped)
    send_queue = SendQueue(actor.link, size=size, ahead=ahead)
    actor.link.start()
    actor.link.join({})
    send_queue.start()
    try:
        yield send_queue, actor
    finally:
        learner.gate.set()
        send_queue.finish(0.0)
        actor.link.close("done")


def numbers(messages) -> list[int]:
    return [message.number for message in messages]


def apart(put: Callable[[], object]) -> threading.Thread:
    """What the main thread would do, so that it can be seen to wait."""
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answers", "slow", "waits"),
    [
        (["again", "again"], 2, []),  # the learner has waited for room already
        (["again", "again"], 0, [0.1, 0.1]),
        ([Busy("it is busy")] * 2, 0, [0.1, 0.2]),
        ([Unreachable("gone")] * 7, 0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]),
        (["unknown"] * 3, 0, [0.1, 0.2, 0.4]),
    ],
)
def test_what_is_not_taken_is_sent_again_and_takes_turns_with_pauses(learner, answers, slow, waits):
    learner.answers += answers
    with sending(learner) as (send_queue, actor):
        learner.on_deliver = lambda: setattr(actor.clock, "time", actor.clock.time + slow)
        send_queue.put(gathered(), until_taken=True)
        assert send_queue.sent.waiting == 0, "the learner has it"
        assert actor.clock.waits == pytest.approx(waits)
        send_queue.put(gathered(), until_taken=True)
    assert numbers(learner.came) == [1] * (len(answers) + 1) + [2] and numbers(learner.stored) == [1, 2]


def test_what_the_learner_does_not_want_is_counted_and_told_once_a_minute(learner):
    learner.answers += ["rejected"] * 4
    with sending(learner) as (send_queue, actor):
        for steps in (9, 9, 9, 9, 1):
            send_queue.put(gathered(steps=steps), until_taken=True)
    assert send_queue.sent == Sent(taken=5, taken_steps=1)
    assert actor.lines == ["9 steps were rejected (because it is rejected)"]


@pytest.mark.fault("F06")
@pytest.mark.parametrize("ahead", [1, 3])
def test_an_actor_waits_for_a_slow_learner_instead_of_running_ahead(ahead):
    """So many messages may be on their way; the next one waits for the first, or the end."""
    learner, stop = FakeLearner(), threading.Event()
    learner.gate.clear()
    with sending(learner, size=50, ahead=ahead, stopped=stop.is_set) as (send_queue, _):
        for _ in range(ahead):
            send_queue.put(gathered())
        thread = apart(lambda: send_queue.put(gathered()))
        until(lambda: send_queue.sent.waiting == ahead + 1)
        thread.join(0.3)
        assert thread.is_alive(), "nothing has been taken yet"
        stop.set()
        thread.join(10)
        assert not thread.is_alive() and send_queue.sent.dropped == 0, "it may still be sent"
        learner.gate.set()
        until(lambda: not send_queue.sent.waiting)
    assert numbers(learner.stored) == list(range(1, ahead + 2))


def test_while_the_learner_is_away_the_oldest_unsent_messages_are_given_up(learner):
    """Message 1 is on its way when the learner goes; of the others the last two are kept."""
    with sending(learner, size=3) as (send_queue, actor):
        learner.gate.clear()
        send_queue.put(gathered(steps=1))
        until(lambda: learner.inside)
        learner.up = False
        learner.gate.set()
        until(lambda: actor.link.away)
        for i in range(2, 8):
            send_queue.put(gathered(steps=1000 * i))
        learner.up = True
        until(lambda: not send_queue.sent.waiting)
    assert numbers(learner.stored) == [1, 6, 7], "the numbers of the others never come"
    assert [message.dropped for message in learner.stored] == [0, 14_000, 14_000]


PLAN = st.lists(
    st.sampled_from(("put", "put", "put", "down", "up", "restart", "again", "unknown", "lost", "wait")),
    max_size=40,
)


@settings(max_examples=15)
@example(plan=["down", *["put"] * 9], size=1)
@given(plan=PLAN, size=st.integers(1, 5))
def test_whatever_happens_order_is_kept_and_every_step_is_accounted_for(plan, size):
    learner, put = FakeLearner(), 0
    with sending(learner, size=size) as (send_queue, actor):
        sent = send_queue.sent
        for event in plan:
            if event == "put":
                put += 1
                send_queue.put(gathered(steps=put))
                assert sent.waiting <= size
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
        learner.restart()
        actor.link.beat()
        join = learner.of(Join)[-1]
        assert (join.number, join.taken_steps) == (sent.taken, sent.taken_steps)
    assert sent.taken_steps + sent.dropped == sum(range(put + 1))
    assert sum(message.num_steps for message in learner.stored) == sent.taken_steps
    stored = numbers(learner.stored)
    assert stored == sorted(set(stored))
    assert (put == len(learner.stored)) == (sent.dropped == 0), "no gap but for what was given up"


@pytest.mark.parametrize("error", [LearnerRefused("too large"), ValueError("a bug")])
def test_what_ends_the_sender_is_raised_where_the_actor_puts(learner, error):
    learner.answers += [error]
    with sending(learner) as (send_queue, _):
        for put in (partial(send_queue.put, until_taken=True), send_queue.put):
            with pytest.raises(type(error), match=str(error)):
                put(gathered())


@pytest.mark.parametrize("answers", [True, False])
def test_what_waits_at_the_end_is_sent_or_given_up(learner, answers):
    with sending(learner, size=9) as (send_queue, actor):
        learner.up = False
        send_queue.put(gathered(steps=1))
        until(lambda: actor.link.away)
        for _ in range(3):
            send_queue.put(gathered(steps=5))
        if answers:
            learner.up = True
            until(lambda: not actor.link.away)
        send_queue.finish(60.0)
        assert send_queue.sent.dropped == (0 if answers else 15)
    assert len(learner.stored) == (4 if answers else 0)
