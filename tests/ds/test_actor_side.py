"""A learner that comes late, refuses, is slow, dies, comes back, or has finished; nothing is unaccounted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ds.net import link as link_module
from ds.net.contact import Sent, WeightFetcher
from ds.net.protocol import (
    Beat,
    Busy,
    Bye,
    Hello,
    Join,
    LearnerAway,
    LearnerRefused,
    Unreachable,
    WeightRequest,
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
    learner.up = False
    other = Actor(learner, stopped=lambda: other.clock.time > 3)
    assert other.link.start() is None
    assert other.clock.time < 3.5, "noticed in the middle of a pause"
    for one in (actor, other):
        one.link.close("done")


def test_patience_ends_at_the_start_and_while_acting(learner):
    learner.up = False
    with pytest.raises(LearnerAway, match="no learner answered for 11 s"):
        Actor(learner, patience=10).link.start()
    learner.up = True
    actor = Actor(learner, patience=10)
    link = actor.join()
    learner.answers.append(Busy("it is busy"))
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


def test_a_person_is_told_when_it_begins_and_ends_but_not_too_often(learner, actor):
    link = actor.join(dropped=100)

    def away(*seconds: float) -> None:
        """The learner misses a call, and another one after each of these times; then it is back."""
        learner.up = False
        for pause in (0.0, *seconds):
            actor.clock.time += pause
            with pytest.raises(Unreachable):
                link.beat()
        link.sent.dropped += 3400
        learner.up = True
        link.beat()

    away(0.5)
    assert actor.lines == [], "a hiccup"
    away(2.0, 10.0)
    expected = [
        "no answer from the learner (connection refused): trying again",
        "the learner is back after 12 s · 3,400 steps dropped",
    ]
    assert actor.lines == expected
    link.close("done")
    learner.up = False
    with pytest.raises(Unreachable):
        link.deliver(MESSAGE)
    assert not link.away, "hanging up is no fault of the learner"


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
    actor.link.close("done")
    learner = FakeLearner()
    link = Actor(learner).join(taken=7, taken_steps=60, waiting=3, dropped=40)
    link.report(steps=120, version=7, faults=(1, 2))
    link.beat()
    beat = Beat(actor="a1", version=7, steps=120, waiting=3, dropped=40, faults=(1, 2))
    assert learner.of(Beat) == [beat]
    (join,) = learner.of(Join)
    assert (join.number, join.taken_steps, join.version, join.agreed) == (7, 60, 0, '{"a.b": 1}')
    link.close("done")
    assert learner.of(Bye) == [Bye(actor="a1", reason="done")]
    assert learner.closed == 1


@pytest.mark.fault("F04")
def test_a_learner_started_anew_is_greeted_and_joined_again(learner, actor):
    actor.link.start()
    learner.restart()  # while environments are built
    actor.link.join({}, Sent())
    assert actor.link.deliver(MESSAGE).state == "taken"
    learner.restart()
    learner.said.clear()
    actor.link.beat()
    assert [type(m) for m in learner.said if not isinstance(m, WeightRequest)] == [Beat, Hello, Join]
    assert actor.lines == ["the learner was restarted (run r)"] * 2 and learner.joined == {"a1"}
    learner.known.clear(), learner.joined.clear()  # it was stopped for long, and the same learner forgot it
    assert [actor.link.deliver(MESSAGE).state for _ in range(2)] == ["unknown", "taken"]
    assert len(actor.lines) == 2
    learner.restart()
    learner.synchronous = True
    with pytest.raises(LearnerRefused, match="synchronous"):
        actor.link.beat()
    actor.link.close("done")


@pytest.mark.parametrize("how", ["beat", "deliver", "join"])
def test_the_end_of_the_training_ends_the_actor(learner, how, monkeypatch):
    learner.finished = how == "join"
    link = Actor(learner).join()
    learner.finished = True
    {"beat": link.beat, "deliver": lambda: link.deliver(MESSAGE), "join": lambda: None}[how]()
    assert link.finished and link.halted.is_set()
    link.report(steps=1, version=1)  # raises nothing
    gate = threading.Event()
    monkeypatch.setattr(link_module, "BYE_S", 0.01)
    learner.hear = lambda message: gate.wait()
    link.close("finished")  # goodbye takes no longer than it may
    gate.set()
    assert learner.closed == 1


# ---- weights


def test_newer_weights_are_fetched_and_only_the_newest_are_kept(learner):
    link = Actor(learner).join()
    for version in (1, 2, 3):
        learner.version = version
        link.beat()
        until(lambda version=version: link._fetcher.version == version)
    assert link.weights() == [b"weights", b"3"] and link.weights() is None
    assert (link.warming_up, link.lessons) == ({"": False}, {"d": "far"})
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


def test_weights_that_are_announced_and_not_there_are_asked_for_after_a_pause():
    fetcher = WeightFetcher(lambda than: [])
    fetcher.fetch()
    fetcher.announce(5)
    with pytest.raises(Unreachable, match="are missing"):
        fetcher.fetch()
    assert fetcher.take() is None and fetcher.wait_until_behind(0)


def test_in_step_with_the_learner_the_main_thread_fetches():
    learner = FakeLearner(synchronous=True)
    actor = Actor(learner)
    link = actor.join()
    assert link.wait_newer(0)[1] == b"1"
    assert link.wait_newer(1) is None, "at once: there are no newer ones"
    learner.version = 2
    link.beat()
    assert link.wait_newer(1) is None
    assert (link.warming_up, link.lessons) == ({"": True}, {"d": "near"}), "a beat brings no news"
    learner.version = 3
    link.deliver(MESSAGE)
    learner.up = False
    actor.clock.at(actor.clock.time + 20, lambda: setattr(learner, "up", True))
    assert link.wait_newer(1)[1] == b"3", "it waits for a learner that is away"
    assert (link.warming_up, link.lessons) == ({"": False}, {"d": "far"})
    link.close("done")


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
    actor.link.join({}, send_queue.sent)
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
    learner.answers += ["rejected"] * 5 + [""]
    with sending(learner) as (send_queue, actor):
        for minute in (0, 0, 0, 0, 1):
            actor.clock.time += 60 * minute
            send_queue.put(gathered(steps=9), until_taken=True)
        send_queue.put(gathered(steps=1), until_taken=True)
        until(lambda: len(actor.lines) == 2)
    assert all(line.startswith("9 steps were ") for line in actor.lines)
    assert actor.lines[1] == f"{actor.lines[0]} (3 more like this before)"
    assert send_queue.sent == Sent(taken=6, taken_steps=1)


@pytest.mark.fault("F06")
@pytest.mark.parametrize("ahead", [1, 3])
def test_an_actor_waits_for_a_slow_learner_instead_of_running_ahead(ahead):
    """So many messages may be on their way; the next one waits for the first, or the end."""
    learner, stop = FakeLearner(), threading.Event()
    learner.gate.clear()
    with sending(learner, size=50, ahead=ahead, stopped=stop.is_set) as (send_queue, _):
        for _ in range(ahead):
            send_queue.put(gathered())
        thread = threading.Thread(target=lambda: send_queue.put(gathered()), daemon=True)
        thread.start()
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
        assert send_queue.sent.waiting == 3
        dropped = send_queue.sent.dropped
        learner.up = True
        until(lambda: not send_queue.sent.waiting)
    assert numbers(learner.stored) == [1, 6, 7], "the numbers of the others never come"
    assert dropped == 1000 * (2 + 3 + 4 + 5) and send_queue.sent.taken_steps == 1 + 6000 + 7000
    assert [message.dropped for message in learner.stored] == [0, dropped, dropped]


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
