"""Who is here, under which number, and what becomes of what they send: a table of situations."""

from __future__ import annotations

import json

import pytest

from ds import registry
from ds.protocol import PROTOCOL, Beat, Bye, Hello, Join, Refused, Welcome
from ds.records import BURST
from ds.registry import MAX_DEPARTED, ActorRegistry
from tests.ds.trajectories import Clock, chunks_of, trajectory

BEAT = 2.0  # seconds


class Scene:
    """Actors, the clock they read, and what one says to them."""

    def __init__(self, **changes) -> None:
        self.clock = Clock()
        settings = {"limit": -1, "synchronous": False, "max_lag": -1, **changes}
        self.actors = ActorRegistry(run="gym/x/1", seed=7, heartbeat=BEAT, clock=self.clock, **settings)

    def hello(self, actor, protocol=PROTOCOL):
        return self.actors.hello(Hello(protocol=protocol, actor=actor, host="here", pid=3, versions={}))

    def join(self, actor, channels=(0, 0), taken_steps=0):
        join = Join(
            actor=actor, agreed="{}", digest="", version=0, channels=tuple(channels), taken_steps=taken_steps
        )
        return self.actors.joined(join)

    def come(self, *names, **kwargs):
        for name in names:
            assert isinstance(self.hello(name), Welcome)
            self.join(name, **kwargs)
        return self

    def accept(self, actor, number, channel=0, newest=0, **changes):
        message = sent(actor, number, channel, **changes)
        return self.actors.accept(message, newest - message.version)

    def take(self, actor, number, channel=0, newest=0, **changes):
        one = sent(actor, number, channel, **changes)
        assert self.actors.accept(one, newest - one.version) == "new"
        self.actors.queued(one, newest - one.version)
        return one

    def beat(self, actor, newest=0, version=0, steps=0, waiting=0, dropped=0, faults=(0, 0)):
        beat = Beat(
            actor=actor, version=version, steps=steps, waiting=waiting, dropped=dropped, faults=faults
        )
        return self.actors.beat(beat, newest - beat.version)

    def bye(self, actor):
        return self.actors.bye(Bye(actor=actor, reason="done"))

    def counts(self):
        return {name: value for name, value in self.actors.metrics().items() if value}

    def slots(self, *names):
        """The slot and the number of each when it says hello again."""
        return [(one.slot, one.number) for one in map(self.hello, names)]

    def restarted(self, **changes):
        """A learner that goes on from the state of this one."""
        other = Scene(**changes)
        other.actors.load_state(json.loads(json.dumps(self.actors.state(), allow_nan=False)))
        return other


def sent(actor, number, channel=0, steps=3, **changes):
    own = {"actor": actor, "number": number, "channel": channel, "chunks": chunks_of(steps)}
    return trajectory(**own, **changes)


def test_slots_are_used_again_and_numbers_are_not():
    scene = Scene().come("a", "b", "c")
    assert scene.slots("a", "b", "c") == [(0, 0), (1, 1), (2, 2)]
    assert scene.bye("b") == 1 and scene.bye("b") is None
    assert scene.slots("d") == [(1, 3)]
    assert scene.slots("b") == [(3, 1)], "its own number; its slot is taken"
    scene.bye("a"), scene.bye("c")
    assert scene.slots("c") == [(2, 2)], "who comes back has its former slot if nobody else has"
    assert scene.slots("e") == [(0, 4)]


def test_what_an_actor_is_told():
    scene = Scene()
    first, again = scene.hello("a"), scene.hello("a")
    assert first == again and (first.run, first.seed, first.heartbeat) == ("gym/x/1", 7, BEAT)
    assert first.learner != Scene().hello("a").learner


def test_another_protocol_is_refused():
    refused = Scene().hello("a", protocol=PROTOCOL + 1)
    assert isinstance(refused, Refused) and refused.why == "protocol"
    assert str(PROTOCOL) in refused.reason and str(PROTOCOL + 1) in refused.reason


@pytest.mark.parametrize("actor", ["", "a" * 65])
def test_who_has_no_name_or_an_endless_one_is_not_remembered(actor):
    scene = Scene()
    refused = scene.hello(actor)
    assert isinstance(refused, Refused) and refused.why == "malformed"
    assert scene.actors.state()["members"] == [] and isinstance(scene.hello("a" * 64), Welcome)


@pytest.mark.parametrize(
    ("settings", "most"),
    [({"limit": 2}, 2), ({"synchronous": True}, 1), ({"synchronous": True, "limit": 5}, 1)],
)
def test_no_more_actors_than_may_be(settings, most):
    scene = Scene(**settings).come(*"abc"[:most])
    refused = scene.hello("z")
    assert isinstance(refused, Refused) and refused.why == "full" and refused.fix
    assert isinstance(scene.hello("a"), Welcome), "who is here is not one more"
    scene.bye("a")
    assert isinstance(scene.hello("z"), Welcome)


def test_nothing_is_taken_from_who_has_not_joined():
    scene = Scene()
    assert scene.accept("a", 1) == "unknown" and not scene.beat("a") and scene.join("a") is None
    scene.hello("a")
    assert scene.accept("a", 1) == "unknown" and scene.beat("a")
    scene.join("a", channels=(0, 0))
    assert scene.accept("a", 1, channel=2) == scene.accept("a", 1, channel=-1) == "no channel"
    scene.take("a", 1)
    scene.bye("a")
    scene.hello("a")
    assert scene.accept("a", 2) == "unknown", "it is back and may have other settings now"


def test_a_trajectory_that_came_before_is_not_new():
    scene = Scene().come("a")
    scene.take("a", 1, channel=0)
    assert scene.accept("a", 1, channel=0) == "taken before"
    scene.take("a", 1, channel=1)
    scene.take("a", 2, channel=0)
    assert scene.accept("a", 1, channel=0) == "taken before"
    assert scene.counts() == {"ds/actors": 1.0, "ds/duplicates": 2.0}


def test_the_same_trajectory_twice_at_a_time():
    scene = Scene().come("a")
    assert [scene.accept("a", 1), scene.accept("a", 1), scene.accept("a", 1, channel=1)] == [
        "new",
        "busy",
        "new",
    ]
    scene.actors.not_queued(sent("a", 1))
    assert scene.accept("a", 1) == "new", "there was no room: it comes again"
    scene.actors.queued(sent("a", 1), 0)
    assert scene.accept("a", 1) == "taken before"


def test_what_never_came_is_counted():
    scene = Scene().come("a")
    scene.take("a", 3)
    scene.take("a", 4, dropped=50)
    scene.beat("a", dropped=60)
    scene.beat("a", dropped=60)
    scene.take("a", 5, dropped=55)
    assert scene.counts() == {"ds/actors": 1.0, "ds/gaps": 2.0, "ds/dropped": 60.0}


def test_what_is_rejected_is_not_asked_for_again():
    scene = Scene().come("a")
    assert scene.accept("a", 1) == "new"
    scene.actors.rejected(sent("a", 1), "z [0] is 8")
    assert scene.accept("a", 1) == "rejected before"
    assert scene.accept("a", 2) == "new"
    counts = scene.counts()
    assert counts["ds/rejected"] == 1.0 and "ds/gaps" not in counts
    assert scene.actors.news()[-1] == "rejected: actor 0 (here, pid 3): z [0] is 8"


@pytest.mark.parametrize(("max_lag", "verdict"), [(-1, "new"), (0, "stale"), (3, "stale"), (4, "new")])
def test_weights_that_are_too_old(max_lag, verdict):
    scene = Scene(max_lag=max_lag).come("a")
    assert scene.accept("a", 1, newest=10, version=6) == verdict
    if verdict == "stale":
        scene.actors.queued(sent("a", 1, steps=30), 4, stale=True)
        assert scene.counts() == {"ds/actors": 1.0, "ds/stale": 30.0}
        assert scene.accept("a", 1, newest=10) == "stale before"
        assert scene.accept("a", 2, newest=10, version=10) == "new"


def test_three_missed_heartbeats_free_a_slot():
    scene = Scene(limit=1).come("a")
    scene.clock.now += 3 * BEAT
    assert scene.actors.expire() == [] and scene.actors.number("a") == 0
    scene.clock.now += 0.001
    assert scene.actors.expire() == [0] and scene.actors.expire() == []
    assert scene.actors.number("a") is None and not scene.beat("a")
    assert isinstance(scene.hello("b"), Welcome)


def test_every_word_is_a_sign_of_life():
    scene = Scene().come("a")
    words = (
        lambda: scene.beat("a"),
        lambda: scene.take("a", 1),
        lambda: scene.hello("a"),
        lambda: scene.join("a"),
        lambda: scene.accept("a", 1),
    )
    for word in words:
        scene.clock.now += 3 * BEAT
        word()
        assert scene.actors.expire() == []


def test_an_actor_that_was_stopped_comes_back():
    scene = Scene().come("a", "b")
    scene.take("a", 1, steps=5)
    scene.clock.now += 30.0
    scene.beat("b")
    assert scene.actors.expire() == [0]
    assert scene.accept("a", 2) == "unknown"
    assert scene.slots("a") == [(0, 0)]
    assert scene.join("a", channels=(1, 0), taken_steps=5) == (1, 0)
    assert scene.accept("a", 1) == "taken before"
    scene.take("a", 2)
    assert "ds/lost" not in scene.counts(), "nothing of it was lost, though it is not stored yet"


def test_it_leaves_while_its_trajectory_is_under_way():
    scene = Scene().come("a")
    one = sent("a", 1)
    assert scene.actors.accept(one, 0) == "new"
    scene.bye("a")
    scene.actors.queued(one, 0)
    scene.actors.stored(one)
    scene.come("a")
    assert scene.accept("a", 1) == "taken before"


def test_a_restarted_learner_knows_what_it_has_and_counts_what_it_lost():
    before = Scene().come("a", "b", "c")
    for number in (1, 2, 3):
        one = before.take("a", number, steps=10)
        if number < 3:
            before.actors.stored(one)
    before.bye("c")
    scene = before.restarted()
    assert scene.accept("a", 4) == "unknown" and scene.counts() == {}
    assert scene.slots("b", "a") == [(1, 1), (0, 0)], "the order does not matter"
    # Three messages of ten steps were taken before the checkpoint, one of them not stored, and one after.
    assert scene.join("a", channels=(4, 0), taken_steps=40) == (4, 0)
    assert scene.counts()["ds/lost"] == 20.0
    scene.join("a", channels=(4, 0), taken_steps=40)
    assert scene.counts()["ds/lost"] == 20.0, "once"
    assert scene.accept("a", 4) == "taken before"
    scene.take("a", 5)
    assert scene.slots("d", "e") == [(2, 1003), (3, 1004)], (
        "others may have come since: none has those numbers"
    )
    again = scene.restarted().come("a", channels=(5, 0), taken_steps=43)
    assert again.counts()["ds/lost"] == 23.0


def test_a_trajectory_that_a_learner_had_and_lost_comes_again():
    """The actor was never told that it was taken: its count says so, and it is new."""
    before = Scene().come("a")
    before.take("a", 1)
    scene = before.restarted().come("a", channels=(0, 0))
    scene.take("a", 1)
    assert "ds/lost" not in scene.counts()


def test_who_does_not_come_back_after_a_restart():
    before = Scene().come("a", "b", "c")
    before.bye("c")
    scene = before.restarted().come("b")
    scene.clock.now += 3 * BEAT + 0.001
    scene.beat("b")
    assert scene.actors.expire() == [0], "its streams are to be closed; those of c were"
    assert scene.actors.expire() == []
    assert before.restarted(limit=1).come("z"), "who is waited for has no slot"


def test_state_round_trip():
    scene = Scene().come("a", "b")
    scene.actors.stored(scene.take("a", 2, dropped=9))
    scene.bye("b")
    state = scene.actors.state()
    assert scene.restarted().actors.state() == state
    assert scene.restarted().restarted().actors.state() == state
    with pytest.raises(KeyError):
        scene.actors.load_state({})


def test_faults_of_actors_are_counted_once_by_whichever_learner():
    scene = Scene()
    for actor, *beats in (("a", (1, 0), (3, 2), (0, 0), (3, 2)), ("b", (0, 1))):
        scene.hello(actor)
        for faults in beats:
            scene.beat(actor, faults=faults)
    assert scene.actors.take_faults() == [3, 3]
    assert scene.actors.take_faults() == [0, 0]
    scene = scene.restarted()
    scene.hello("a")
    scene.beat("a", faults=(4, 2))
    assert scene.actors.take_faults() == [1, 0]


def test_a_flood_of_nonsense_is_counted_and_told_of_in_a_line():
    scene = Scene()
    for k in range(1000):
        scene.actors.count_fault("malformed", f"127.0.0.1:{k}: no message\x1b")
    assert scene.actors.news() == ["malformed: 127.0.0.1:0: no message?"]
    scene.clock.now += 61.0
    scene.actors.count_fault("malformed", "127.0.0.1:5: no message")
    assert scene.actors.news() == ["malformed: 127.0.0.1:5: no message · 999 more since the last such line"]
    assert scene.counts() == {"ds/rejected": 1001.0}


def test_memory_is_bounded_however_many_come_and_go():
    scene = Scene()
    for k in range(MAX_DEPARTED + 10):
        scene.come(f"{k}")
        scene.bye(f"{k}")
    assert len(scene.actors.state()["members"]) == MAX_DEPARTED
    assert len(scene.actors.news()) <= 100 and scene.actors.news() == []
    assert scene.slots("9", "10") == [(0, MAX_DEPARTED + 10), (1, 10)], "the first ten are forgotten"


def test_lag_and_the_table():
    scene = Scene().come("a", "b")
    assert "ds/lag" not in scene.counts()
    scene.take("a", 1, newest=4, version=2)
    scene.take("b", 1, newest=4, version=1)
    assert scene.actors.metrics()["ds/lag"] == 2.5
    scene.beat("a", newest=4, version=3, steps=100)
    scene.clock.now += 2.0
    scene.beat("a", newest=5, version=3, steps=150, waiting=2, dropped=7)
    scene.clock.now += 1.0
    rows = scene.actors.rows()
    assert [name for name, _ in rows] == ["actor 0", "actor 1"]
    assert rows[0][1] == (
        "here:3 · heard of 1 s ago · 25 steps/s · 2 versions behind · 2 waiting · 7 dropped"
    )


def test_names_from_elsewhere_do_not_move_the_cursor():
    scene = Scene()
    scene.actors.hello(Hello(protocol=PROTOCOL, actor="a", host="x\x1b[2J\ny" * 99, pid=1, versions={}))
    (line,) = scene.actors.news()
    assert line.isprintable() and len(line) < 300


@pytest.mark.fault("F32")
def test_ever_so_many_who_come_and_leave_fill_neither_log_nor_memory():
    scene = Scene().come("honest")
    assert len(scene.actors.news()) == 1
    for number in range(3000):
        scene.hello(f"visitor {number}")
        left = scene.actors.bye(Bye(actor=f"visitor {number}", reason="x" * 1000))
        assert left is None, "nothing of it can be open"
    assert len(scene.actors.news()) == BURST - 1
    scene.clock.now += 61
    assert scene.actors.news() == ["actors have come, left or lost something 5,937 times more"]
    assert scene.actors.news() == []
    assert [one["actor"] for one in scene.actors.state()["members"]] == ["honest"]
    scene.hello("later")
    assert scene.actors.news() == ["actor 3001 (here, pid 3) has come, in slot 1"]


@pytest.mark.fault("F32")
def test_there_is_an_end_to_who_may_be_here(monkeypatch):
    monkeypatch.setattr(registry, "MAX_LIVING", 3)
    scene = Scene().come("a", "b", "c")
    refused = scene.hello("d")
    assert isinstance(refused, Refused) and refused.why == "full"
