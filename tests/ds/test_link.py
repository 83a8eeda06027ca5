"""A learner that comes late, refuses, dies, comes back as another process, or has finished."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ds import link as link_module
from ds.backoff import Backoff, RealClock
from ds.errors import LearnerAway, LearnerRefused, Unreachable
from ds.protocol import Beat, Bye, Hello, Join, TrajectoryMessage, WeightRequest
from ds.session import NothingSentYet, ShutdownState
from tests.ds.learners import Actor, FakeLearner, until


def joined(learner: FakeLearner, channels: int = 1, **options) -> Actor:
    actor = Actor(learner, **options)
    actor.link.start()
    actor.link.join({"a.b": 1}, "digest", NothingSentYet(taken=(0,) * channels))
    return actor


def trajectory(channel: int = 0, number: int = 1) -> TrajectoryMessage:
    return TrajectoryMessage(
        actor="a1",
        channel=channel,
        number=number,
        version=0,
        chunks=(),
        episodes=(),
        dropped=0,
    )


def test_it_waits_for_a_learner_that_comes_late_and_says_so_once():
    """Tries at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 and 16.3 s."""
    learner = FakeLearner()
    learner.up = False
    actor = Actor(learner)
    actor.clock.at(12.0, lambda: setattr(learner, "up", True))
    welcome = actor.link.start()
    assert (welcome.seed, welcome.slot, welcome.number) == (5, 0, 0)
    assert actor.lines == [
        "waiting for the learner at host:1 (connection refused)",
        "the learner is there after 16 s",
    ]
    actor.link.close("done")


def test_pauses_grow_to_five_seconds_and_differ_between_actors():
    even, uneven = Backoff(lambda: 0.0), Backoff(lambda: 0.5)
    assert [even.pause() for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [uneven.pause() for _ in range(2)] == [0.1 * 0.75, 0.2 * 0.75]
    even.reset()
    assert even.pause() == 0.1


def test_patience_ends():
    learner = FakeLearner()
    learner.up = False
    actor = Actor(learner, patience=10)
    with pytest.raises(LearnerAway, match="no learner answered for 11 s") as caught:
        actor.link.start()
    assert caught.value.exit_code == 3 and "net_config.patience" in str(caught.value)
    assert "host:1" in str(caught.value) and "connection refused" in str(caught.value)


def test_patience_ends_while_acting_too():
    learner = FakeLearner()
    actor = joined(learner, patience=10)
    learner.up = False
    with pytest.raises(Unreachable):
        actor.link.beat()
    actor.clock.time += 9
    with pytest.raises(Unreachable):
        actor.link.deliver(trajectory())
    actor.clock.time += 1
    with pytest.raises(LearnerAway):
        actor.link.beat()
    actor.link.close("away")


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
    actor = joined(learner)
    learner.refusal = "another configuration"
    until(actor.link.shutdown.halted.is_set)
    with pytest.raises(LearnerRefused, match="another configuration"):
        {
            "report": lambda: actor.link.report(steps=1, version=1),
            "weights": actor.link.weights,
            "wait_newer": lambda: actor.link.wait_newer(1),
        }[ask]()
    actor.link.close("refused")


def test_the_user_may_end_it_while_it_waits():
    learner = FakeLearner()
    learner.up = False
    actor = Actor(learner, stopped=lambda: actor.clock.time > 3)
    assert actor.link.start() is None
    assert actor.clock.time < 3.5, "noticed in the middle of a pause"
    actor.link.close("stopped")
    assert learner.said == []


def test_beats_begin_before_the_actor_has_joined():
    """Building environments takes longer than three heartbeats."""
    learner = FakeLearner(heartbeat=1.0)
    actor = Actor(learner)
    actor.link.start()
    until(lambda: len(learner.of(Beat)) > 3)
    assert learner.of(Join) == []
    actor.link.close("done")


def test_a_beat_says_how_the_actor_is():
    learner = FakeLearner()
    actor = Actor(learner)
    actor.link.start()
    actor.link.join({}, "", NothingSentYet(taken=(4, 2), taken_steps=60, waiting=3, dropped=40))
    actor.link.report(steps=120, version=7)
    actor.link.beat()
    assert learner.of(Beat) == [Beat(actor="a1", version=7, steps=120, waiting=3, dropped=40)]
    (join,) = learner.of(Join)
    assert (join.channels, join.taken_steps, join.version, join.digest) == ((4, 2), 60, 0, "")
    assert actor.link.max_message == 1000 and learner.open == 3, "a connection for each channel, and one"
    actor.link.close("done")
    assert learner.of(Bye) == [Bye(actor="a1", reason="done")] and learner.closed == 3


def test_a_learner_started_anew_is_greeted_and_joined_again():
    learner = FakeLearner()
    actor = joined(learner)
    learner.restart()
    actor.link.beat()
    assert [type(m) for m in learner.said if not isinstance(m, WeightRequest)] == [
        Hello,
        Join,
        Beat,
        Hello,
        Join,
    ]
    assert {m.actor for m in learner.said} == {"a1"}
    assert actor.lines == ["the learner was started anew (run r)"]
    assert learner.joined == {"a1"}
    actor.link.close("done")


def test_an_actor_that_was_stopped_for_long_is_welcome_again():
    """The same learner has forgotten it: there is nothing to tell a person."""
    learner = FakeLearner()
    actor = joined(learner)
    learner.known.clear()
    learner.joined.clear()
    assert actor.link.deliver(trajectory()).state == "unknown"
    assert actor.link.deliver(trajectory()).state == "taken"
    assert len(learner.of(Hello)) == 2 and actor.lines == []
    actor.link.close("done")


def test_a_learner_started_anew_while_environments_were_built():
    learner = FakeLearner()
    actor = Actor(learner)
    actor.link.start()
    learner.restart()
    actor.link.join({}, "", NothingSentYet(taken=(0,)))
    assert actor.link.deliver(trajectory()).state == "taken" and actor.link.max_message == 1000
    actor.link.close("done")


def test_however_many_notice_it_hello_is_said_once():
    learner = FakeLearner()
    actor = joined(learner, channels=3)
    learner.joined.clear()
    learner.gate.clear()
    threads = [
        threading.Thread(target=actor.link.deliver, args=(trajectory(channel),)) for channel in range(3)
    ]
    for thread in threads:
        thread.start()
    until(lambda: learner.inside == 3)
    learner.hear = slowly(learner)
    learner.gate.set()
    for thread in threads:
        thread.join()
    assert len(learner.of(Hello)) == 2 and len(learner.of(Join)) == 2
    actor.link.close("done")


def slowly(learner: FakeLearner):
    """All three have been answered with unknown before the first hello is."""
    hear = learner.hear

    def heard(message: object) -> None:
        if isinstance(message, Hello):
            until(lambda: len(learner.came) == 3)
        hear(message)

    return heard


def test_another_mode_is_refused():
    learner = FakeLearner()
    actor = joined(learner)
    learner.restart()
    learner.synchronous = True
    with pytest.raises(LearnerRefused, match="synchronous"):
        actor.link.beat()
    actor.link.close("refused")


def test_a_person_is_told_when_it_begins_and_ends_but_not_too_often():
    learner = FakeLearner()
    actor = joined(learner)
    actor.link._sender = NothingSentYet(taken=(0,), dropped=100)

    def fails() -> None:
        learner.up = False
        with pytest.raises(Unreachable):
            actor.link.beat()

    def comes_back(seconds: float) -> None:
        actor.clock.time += seconds
        learner.up = True
        actor.link.beat()

    fails()
    comes_back(0.5)
    assert actor.lines == [], "a hiccup"
    fails()
    actor.clock.time += 2
    fails()
    fails()
    assert actor.link.away
    actor.link._sender = NothingSentYet(taken=(0,), dropped=3500)
    comes_back(10)
    assert not actor.link.away
    expected = [
        "no answer from the learner (connection refused): trying again",
        "the learner is back after 12 s · 3,400 steps given up",
    ]
    assert actor.lines == expected
    actor.clock.time -= 5
    for _ in range(2):
        fails()
        actor.clock.time += 2
    comes_back(0)
    assert actor.lines == expected, "too soon after the last time"
    fails()
    actor.clock.time += 6
    fails()
    comes_back(1)
    assert actor.lines[2:] == [expected[0], "the learner is back after 7 s"], "told late"
    actor.link.close("done")


def test_newer_weights_are_fetched_and_only_the_newest_are_kept():
    learner = FakeLearner()
    actor = joined(learner)
    until(lambda: actor.link._fetcher.version == 1)
    for version in (2, 3):
        learner.version = version
        actor.link.beat()
        until(lambda version=version: actor.link._fetcher.version == version)
    found = actor.link.weights()
    assert (found.version, found.chunks) == (3, [b"weights", b"3"])
    assert actor.link.weights() is None
    assert actor.link.warming_up == {"": False}
    actor.link.beat()
    learner.version = 4
    actor.link.beat()
    until(lambda: actor.link._fetcher.version == 4)
    assert [wanted.newer_than for wanted in learner.of(WeightRequest)] == [0, 1, 2, 3], "each once"
    learner.restart()
    actor.link.beat()
    assert learner.of(Join)[-1].version == 4, "so that versions never fall"
    actor.link.close("done")


def test_weights_that_are_not_there_are_not_asked_for_again_and_again():
    newest, asked = link_module.WeightFetcher(lambda than: asked.append(than) or []), []
    newest.announce(5)
    newest.fetch()
    newest.announce(5)
    newest.fetch()
    assert asked == [0] and newest.take() is None and newest.version == 0
    newest.retry_missing()
    newest.fetch()
    newest.announce(6)
    newest.fetch()
    assert asked == [0, 0, 0]


def test_weights_may_turn_out_to_be_newer_than_was_known():
    newest, asked = link_module.WeightFetcher(lambda than: asked.append(than) or [b"7"]), []
    newest.announce(6)
    newest.fetch()
    newest.mark_loaded(7)
    newest.announce(7)
    newest.fetch()
    assert asked == [0] and newest.version == 7


def test_fetching_goes_on_when_the_learner_is_back():
    learner = FakeLearner()
    actor = joined(learner)
    until(lambda: actor.link._fetcher.version == 1)
    learner.up = False
    actor.link._fetcher.announce(2)
    until(lambda: actor.link.away)
    learner.version, learner.up = 2, True
    until(lambda: actor.link._fetcher.version == 2)
    actor.link.close("done")


def test_in_step_with_the_learner_the_main_thread_fetches(monkeypatch):
    learner, started, start = FakeLearner(synchronous=True), [], ShutdownState.start
    monkeypatch.setattr(
        ShutdownState, "start", lambda me, name, body: started.append(name) or start(me, name, body)
    )
    actor = joined(learner)
    assert actor.link.wait_newer(0).chunks[1] == b"1"
    assert actor.link.wait_newer(1) is None, "at once: there are no newer ones"
    learner.version = 2
    actor.link.beat()
    assert actor.link.wait_newer(1) is None and actor.link.warming_up == {"": True}
    learner.version = 3
    actor.link.deliver(trajectory())
    learner.up = False
    actor.clock.at(actor.clock.time + 20, lambda: setattr(learner, "up", True))
    assert actor.link.wait_newer(1).version == 3, "it waits for a learner that is away"
    assert actor.link.warming_up == {"": False}
    assert started == ["beats"]
    actor.link.close("done")


@pytest.mark.parametrize("how", ["beat", "deliver", "join"])
def test_the_end_of_the_training_ends_the_actor(how):
    learner = FakeLearner()
    learner.finished = how == "join"
    actor = joined(learner)
    learner.finished = True
    if how == "beat":
        actor.link.beat()
    elif how == "deliver":
        assert actor.link.deliver(trajectory()).state == "finished"
    assert actor.link.finished and actor.link.shutdown.halted.is_set()
    actor.link.report(steps=1, version=1)  # raises nothing
    actor.link.close("finished")


def test_goodbye_takes_no_longer_than_it_may(monkeypatch):
    learner, gate = FakeLearner(), threading.Event()
    actor = joined(learner)
    monkeypatch.setattr(link_module, "BYE_S", 0.01)
    learner.hear = lambda message: gate.wait()
    actor.link.close("interrupted")
    gate.set()
    assert learner.closed == 2


def test_goodbye_is_not_said_to_nobody():
    learner = FakeLearner()
    actor = joined(learner)
    learner.up = False
    with pytest.raises(Unreachable):
        actor.link.beat()
    learner.up = True
    actor.link.close("interrupted")
    assert learner.of(Bye) == []


def test_hanging_up_is_no_fault_of_the_learner():
    learner = FakeLearner()
    actor = joined(learner)
    actor.link.close("done")
    learner.up = False
    with pytest.raises(Unreachable):
        actor.link.deliver(trajectory())
    assert actor.lines == [] and not actor.link.away


def test_what_sends_needs_neither_torch_nor_the_network():
    code = "import sys, ds.trajectory, ds.send_queue, ds.link\nassert not {'torch', 'grpc'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_real_clock_waits_for_the_event():
    event = threading.Event()
    clock = RealClock()
    before = clock.now()
    assert not clock.wait(event, 0.001) and clock.now() > before
    event.set()
    assert clock.wait(event, 1e6)
