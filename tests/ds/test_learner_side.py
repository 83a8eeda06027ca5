"""The learner's side in one process: registration, answers, storage of each message once, counts."""

import numpy as np
import pytest

from algorithm.core.data import Episode, State
from algorithm.store.logs.registry import METRICS
from ds import registry
from ds.checking import AHEAD
from ds.collector import MAX_ROWS
from ds.net.ingest import ActorLeft
from ds.net.protocol import PROTOCOL, Join, Refused, Welcome
from ds.registry import BURST
from tests.ds.inside import AGREED, BEAT, OF_ONE, LearnerSide
from tests.ds.messages import Chunk, chunk, ids, with_column

FOREVER = 60.0  # seconds; what waits so long in a test hangs


@pytest.fixture
def side():
    return LearnerSide().come()


# ---- who is here


def test_slots_are_used_again_and_numbers_are_not():
    side = LearnerSide().come("a", "b", "c")

    def slots(*names):
        return [(one.slot, one.number) for one in map(side.hello, names)]

    assert slots("a", "b", "c") == [(0, 0), (1, 1), (2, 2)] and side.hello("a") == side.hello("a")
    assert side.hello("a").learner != LearnerSide().hello("a").learner
    side.bye("b"), side.bye("b")
    assert slots("d", "b") == [(1, 3), (3, 1)], "its own number; its slot is taken"
    side.bye("a"), side.bye("c")
    assert slots("c", "e") == [(2, 2), (0, 4)], "who comes back has its former slot if nobody else has"
    assert side.taken() == [ActorLeft(1), ActorLeft(0), ActorLeft(2)]


def test_who_cannot_come_is_not_remembered():
    side = LearnerSide()
    assert side.hello(protocol=PROTOCOL + 1).why == "protocol" and side.actors.state().members == []


@pytest.mark.parametrize(
    ("settings", "most"),
    [({"limit": 2}, 2), ({"synchronous": True}, 1), ({"synchronous": True, "limit": 5}, 1)],
)
def test_no_more_actors_than_may_be(settings, most):
    side = LearnerSide(**settings)
    for name in "abc"[:most]:
        side.hello(name)
    assert side.hello("z").why == "full" and isinstance(side.hello("a"), Welcome), (
        "who is here is not one more"
    )
    side.bye("a")
    assert isinstance(side.hello("z"), Welcome)


@pytest.mark.fault("F03")
def test_three_missed_heartbeats_free_a_slot_and_every_word_is_a_sign_of_life():
    side = LearnerSide(limit=1).come()
    for word in (side.beat, side.deliver, side.hello, side.join, side.deliver):
        side.clock.now += 3 * BEAT
        word()
        assert side.actors.number("a") == 0
    side.clock.now += 3 * BEAT + 0.001
    assert isinstance(side.hello("b"), Welcome), "it makes room for another"
    assert side.beat("a").state == side.deliver(2).state == "unknown"
    assert side.taken() == [(0, 1), ActorLeft(0)], "the word of it comes behind what it sent"


@pytest.mark.fault("F18")
@pytest.mark.fault("F32")
def test_ever_so_many_who_come_and_leave_fill_neither_log_nor_memory(monkeypatch):
    side = LearnerSide().come("honest")
    side.actors.news()
    for number in range(1000):
        side.hello(f"visitor {number}", host="x\x1b[2J\ny" * 99)
        side.actors.count_fault("malformed", "no message\x1b")
        side.bye(f"visitor {number}", "x" * 1000)
    lines = side.actors.news()
    assert len(lines) == BURST and all(line.isprintable() and len(line) < 500 for line in lines)
    assert lines.count("malformed: no message?") == 1 and side.counts()["ds/rejected"] == 1000.0
    assert side.taken() == [], "nothing of them can be open"
    monkeypatch.setattr(registry, "MAX_DEPARTED", 3)
    for number in range(9):
        side.come(f"{number}").bye(f"{number}")
    assert len(side.actors.state().members) == 3 + 1
    monkeypatch.setattr(registry, "MAX_LIVING", 1)
    assert side.hello("one more").why == "full"


# ---- what they are told


@pytest.mark.fault("F19")
def test_other_settings_are_refused_and_free_the_slot():
    side = LearnerSide(limit=1)
    side.hello("a")
    refused = side.join("a", agreed={**AGREED, "sac_config.nn": "nn\n2"})
    assert isinstance(refused, Refused) and refused.why == "differs" and refused.fix
    assert refused.differences == ('sac_config.nn: the learner has "nn", the actor "nn\\n2"',)
    assert isinstance(side.hello("b"), Welcome)
    for agreed in ("", "[1]", "{", "[" * 5000):
        side.hello("b")
        join = Join(actor="b", agreed=agreed, version=0, number=0, taken_steps=0)
        assert side.run(side.service.join(join)).why == "malformed"


@pytest.mark.fault("F31")
@pytest.mark.parametrize(
    "forged",
    [{"number": -1}, {"number": 2**53}, {"version": -1}, {"version": AHEAD + 1}, {"taken_steps": 2**53}],
)  # fmt: skip
def test_a_join_beyond_what_can_be_is_refused_and_changes_nothing(forged):
    side = LearnerSide().come("honest")
    side.parameters.publish(1, [b"w"])
    state = side.actors.state().members
    side.hello("forger")
    refused = side.join("forger", **forged)
    assert isinstance(refused, Refused) and refused.why == "malformed"
    assert side.parameters.next_version == 2 and side.actors.state().members == state
    assert side.deliver(1, actor="honest", version=1).state == "taken"
    assert side.counts()["ds/rejected"] == 1 and "rejected: a join: " in side.actors.news()[-2]


@pytest.mark.fault("F31")
def test_a_message_or_beat_beyond_what_can_be_is_refused_and_changes_nothing(side):
    forged = [
        {"number": 2**53}, {"number": 0}, {"dropped": 2**53}, {"version": 2**53},
        {"agents": ids([("wolf", 0)])}, {"closed": ids([("vector", 2**31)])},
        {"ended": (("vector", 0, 1.7e308, 4),) * 2},
    ]  # fmt: skip
    states = [side.deliver(**{"number": n + 1} | one).state for n, one in enumerate(forged)]
    assert states == ["rejected"] * 7 and side.taken() == []
    assert side.beat(dropped=2**53).state == "rejected"
    assert (side.counts()["ds/rejected"], side.counts().get("ds/dropped")) == (8, None)
    assert side.deliver(9).state == "taken", "it goes on where it was"


@pytest.mark.fault("F31")
def test_what_a_resumed_learner_has_not_published_may_still_have_been_seen():
    """It stood at version 500 when its state was taken; the one before it went on to 900, and was killed."""
    side = LearnerSide()
    side.parameters.resume(500)
    first = side.parameters.next_version
    assert first > 900, "an actor may have each version between"
    side.parameters.publish(first, [b"w"])
    side.come(version=900, number=70)
    assert side.deliver(71, version=900).state == "taken"
    side.parameters.publish(first + 1, [b"w"])
    assert [side.parameters.lag(version) for version in (first + 1, first, 900, 501, 500)] == [0, 1, 2, 2, 2]
    for version, refused in ((500 + AHEAD + 1, True), (500 + AHEAD, False)):
        side.hello("forger")
        assert isinstance(side.join("forger", version=version), Refused) == refused


def test_lessons_are_in_every_answer_so_that_who_comes_late_or_back_begins_with_them(side):
    assert side.deliver(1).lessons == {"d": "near"}
    side.collector.renew_parameters({"d": "far"})
    assert side.deliver(2).lessons == side.beat().lessons == {"d": "far"}
    side.hello("late")
    assert side.join("late").lessons == {"d": "far"}


@pytest.mark.parametrize("whole", [False, True])
def test_only_in_step_do_episodes_that_end_after_a_reset_begin_after_it(whole):
    side = LearnerSide(whole=whole).come()
    assert side.collector.renew_parameters({"d": "far"}, reset=True) is whole
    assert side.collector.renew_parameters({"d": "far"}) is False


def test_when_the_training_has_ended_everybody_is_told():
    side = LearnerSide(size=1, room_timeout=FOREVER).come()
    side.deliver(1)
    waiting = side.begin(side.delivering(2))
    side.parameters.finished = True
    side.queue.close()
    assert side.run(waiting).state == side.deliver(3).state == side.beat().state == "finished"


# ---- what comes, once


def test_a_message_that_comes_twice_is_stored_once(side):
    assert side.states(1, 1, 2, 1) == ["taken"] * 4
    assert side.taken() == [(0, 1), (0, 2)] and side.counts()["ds/duplicates"] == 2.0


def test_what_never_came_what_was_given_up_and_faults_are_counted_once(side):
    side.deliver(3)
    side.deliver(4, dropped=50)
    for dropped, faults in ((60, (1, 0)), (60, (3, 2)), (60, (0, 0))):
        side.beat(dropped=dropped, faults=faults)
    side.deliver(5, dropped=55)
    counts = side.counts()
    assert (counts["ds/gaps"], counts["ds/dropped"]) == (2.0, 60.0)
    assert [side.actors.take_faults() for _ in range(2)] == [(3, 2), (0, 0)]
    side = side.restarted().come()
    side.beat(dropped=60, faults=(4, 2))
    assert side.actors.take_faults() == (1, 0) and side.counts()["ds/dropped"] == 60.0


def test_a_bad_message_is_rejected_once_and_for_all(side):
    bad = with_column(chunk(), "reward", np.full(3, np.nan, np.float32))
    receipt, again = side.deliver(1, bad), side.deliver(1, bad)
    assert receipt.state == "rejected" and "reward [0] is nan" in receipt.reason
    assert (again.state, again.reason) == ("rejected", "it was already received")
    assert "rejected: actor 0 (here, pid 3): steps of 'vector'" in side.actors.news()[-1]
    long = side.deliver(2, chunk(length=11))
    assert long.state == "rejected" and "base_config.max_episode_length" in long.reason
    assert side.deliver(3).state == "taken" and side.taken() == [(0, 3)]
    assert side.counts()["ds/rejected"] == 2.0 and "ds/gaps" not in side.counts()


@pytest.mark.fault("F06")
@pytest.mark.fault("F32")
def test_no_more_wait_for_room_than_may_and_they_come_in_by_turns():
    side = LearnerSide(size=1, room_timeout=FOREVER).come("a", "b", "c")
    side.deliver(1, actor="a")
    waiting = [side.begin(side.delivering(2 - (actor == "b"), actor=actor)) for actor in "ab"]
    assert side.deliver(1, actor="c").state == "again", "at once"
    waiting[0].cancel()  # it hangs up; else the outcome would be unknown
    side.turn()
    assert side.deliver(2, actor="a").state == "again", "it is still under way"
    assert side.queue.take(0).message.number == 1 and len(side.queue) == 1, "who waited is in at once"
    side.turn()
    assert side.deliver(2, actor="a").state == "taken" and not waiting[1].done()
    assert side.taken() == [(0, 2), (1, 1)] and side.run(waiting[1]).state == "taken"
    assert side.deliver(1, actor="c").state == "taken", "what had no room is sent again"


def test_of_an_actor_that_has_left_nothing_comes_in_afterwards():
    side = LearnerSide(size=1, room_timeout=FOREVER).come("a", "b")
    side.deliver(1, actor="a")
    waiting = [side.begin(side.delivering(number, actor=actor)) for actor, number in (("a", 2), ("b", 1))]
    side.bye("a")
    side.turn()
    assert waiting[0].done() and waiting[0].result().state == "again"
    assert side.taken() == [(0, 1), ActorLeft(0), (1, 1)] and side.run(waiting[1]).state == "taken"
    side.come("a", number=1)
    assert side.deliver(1, actor="a").state == "taken" and side.taken() == []


def test_in_synchronous_mode_the_answer_comes_when_it_has_been_learned_from():
    side = LearnerSide(synchronous=True, whole=True).come()
    delivering = side.begin(side.delivering(1, chunk(length=2)))
    assert side.steps(1) == [([], 2)]
    side.turn()
    assert not delivering.done()
    side.parameters.publish(1, [b"w"])
    assert side.steps(1) == [([], 2)]
    receipt = side.run(delivering)
    assert (receipt.state, receipt.version) == ("taken", 1)


# ---- what becomes of it


@pytest.mark.parametrize(("whole", "released"), [(False, [3, 4, 4, 4]), (True, [4, 4, 4, 4])])
def test_all_is_stored_at_once_and_released_as_steps_of_all_agents(whole, released):
    """Of vector there are two agents, of which one waits, of camera one."""
    side = LearnerSide(whole=whole).come()
    assert side.steps(2) == [([], 0), ([], 0)], "nothing comes, and nobody waits for ever"
    both = (chunk(agent=0, length=3, truncated=True), chunk("camera", agent=1, length=1))
    there = ids([("vector", 0), ("vector", 5), ("camera", 1)])
    side.deliver(1, *both, ended=(("vector", 0, 2.5, 10),), agents=there)
    found = []
    for steps in released:
        found += side.collector.step()
        assert side.collector.steps == steps and side.logs["vector"].told == [("add", 0, 0, 3)]
        assert bool(found) == (steps == 4), "the episode comes with the last step"
    assert found == [Episode("vector", 0, 2.5, 10)]
    assert side.collector.behaviour_steps == dict.fromkeys(side.logs, 0) | {"vector": 3, "camera": 1}
    assert side.published == 6, "asked before every step"
    side.deliver(2, steps={}, ended=(("vector", 7, 1.0, 3),))
    assert side.steps(1) == [([Episode("vector", 7, 1.0, 3)], 4)], "a message of no steps"


@pytest.mark.fault("F05")
def test_what_is_too_old_for_a_behaviour_is_left_out_and_counted():
    """By the versions that are newest when it is stored, not when it came."""
    side = LearnerSide(lags={"vector": 1, "camera": None}).come()
    side.parameters.publish(3, [])
    side.deliver(1, chunk(), version=3)
    side.deliver(2, chunk(start=3), chunk("camera", agent=1), version=3)
    side.deliver(3, chunk(start=6), version=3, ended=(("vector", 0, 1.0, 9),))
    side.parameters.publish(4, [])
    side.steps(3)
    side.parameters.publish(5, [])
    assert side.steps(3)[-1] == ([], 6)
    assert side.logs["vector"].told == [("add", 0, 0, 3), ("close", 0)] and side.logs["camera"].lags == [2]
    assert side.steps(1)[-1] == ([Episode("vector", 0, 1.0, 9)], 6) and side.logs["vector"].lags == [1]
    assert side.counts()["ds/stale"] == 6
    assert side.actors.state().members[0].stored_steps == 12, "they have come, the actor has not lost them"


def test_streams_of_actors_do_not_mix_and_end_with_them():
    side = LearnerSide().come("a", "b")
    side.deliver(1, chunk(agent=3), actor="b", ended=(("vector", 3, 1.0, 3),))
    side.deliver(1, chunk("camera", agent=3), chunk(agent=1, terminated=True), actor="a")
    assert side.steps(3)[-1] == ([Episode("vector", OF_ONE + 3, 1.0, 3)], 3)
    side.steps(6)
    assert side.logs["camera"].told == [("add", 3, 0, 3)]
    assert side.collector.agents == {("vector", OF_ONE + 3), ("camera", 3), ("vector", 1)}
    side.bye("a")
    side.steps(1)
    assert side.closed("camera") == [3] and side.collector.agents == {("vector", OF_ONE + 3)}
    side.clock.now += 6.1
    side.steps(2)
    assert side.closed()[-1] == OF_ONE + 3 and side.collector.agents == frozenset(), "it is silent"


@pytest.mark.fault("F04")
@pytest.mark.fault("F27")
@pytest.mark.parametrize("loss", ["given up", "rejected", "killed learner"])
def test_what_was_open_ends_where_messages_are_missing(loss):
    """The next steps begin where the last ones ended, and may be those of another episode."""
    side = LearnerSide().come()

    def two(start):
        return chunk(agent=0, start=start), chunk(agent=1, start=start)

    side.deliver(1, *two(0))
    side.steps(3)
    if loss == "rejected":
        bad = with_column(chunk(agent=0, start=3), "reward", np.full(3, np.nan, np.float32))
        assert side.deliver(2, bad).state == "rejected"
    elif loss == "killed learner":
        side = side.restarted(recorders=side.logs).come(number=2, taken_steps=9)
    side.deliver(3, *two(3)), side.deliver(4, *two(6))
    side.steps(6)
    added = [("add", agent, start, 3) for start in (0, 3, 6) for agent in (0, 1)]
    assert side.logs["vector"].told == [*added[:2], ("close", 0), ("close", 1), *added[2:]], "once"
    assert side.collector.agents == {("vector", 0), ("vector", 1)}, "they are there"


def test_whoever_is_not_there_any_more_has_ended_also_if_a_message_about_it_is_lost(side):
    side.deliver(1, chunk(agent=0, length=1), chunk(agent=1, length=1), chunk("camera", agent=9))
    side.steps(3)
    three = {("vector", 0), ("vector", 1), ("camera", 9)}
    assert side.collector.agents == three and side.collector.agents is side.collector.agents
    side.deliver(2, chunk(agent=0, start=1, length=5), agents=ids(three))
    side.steps(3)
    assert side.collector.agents == three and side.closed() == [], "who waits is there"
    side.deliver(3, chunk(agent=2, length=1), agents=ids([("vector", 2), ("vector", 0)]))
    side.steps(1)
    assert side.collector.agents == {("vector", 0), ("vector", 2)}
    assert (side.closed(), side.closed("camera")) == ([1], [9])


def test_an_episode_that_an_actor_closes_ends_before_the_steps_of_the_same_message(side):
    side.deliver(1, chunk(length=2)), side.deliver(2, Chunk("vector", 0, None), chunk(length=1))
    side.steps(3)
    assert side.logs["vector"].told == [("add", 0, 0, 2), ("close", 0), ("add", 0, 0, 1)]


# ---- over a restart


@pytest.mark.fault("F04")
def test_a_restarted_learner_knows_what_it_has_and_counts_what_it_lost():
    """Of a: three messages of three steps before the checkpoint, one of them not stored; one after it."""
    before = LearnerSide().come("a", "b", "c")
    for number in (1, 2, 3):
        before.deliver(number, chunk(agent=1, start=3 * number))
    before.steps(4)
    before.bye("c")
    side = before.restarted()
    assert len(side.notices) == 1 and LearnerSide(state=LearnerSide().collector.state()).notices == []
    assert side.collector.state().meta == before.collector.state().meta and side.collector.steps == 4
    assert side.deliver(4).state == "unknown" and side.collector.agents == {("vector", 1)}
    assert [side.hello(name).slot for name in ("b", "a")] == [1, 0], "the order does not matter"
    for _ in range(2):
        side.join("a", number=4, taken_steps=12)
        assert side.counts()["ds/lost"] == 6.0, "once"
    assert side.states(4, 5) == ["taken", "taken"] and side.counts()["ds/duplicates"] == 1.0
    assert [side.hello(name).number for name in ("d", "e")] == [1003, 1004], "others may have come since"
    assert "ds/lost" not in before.restarted().come("a").counts(), "it was never told that it was taken"
    with pytest.raises(ValueError, match="missing required field"):
        LearnerSide(state=State(meta={"steps": {}}))


@pytest.mark.fault("F04")
def test_streams_of_who_does_not_come_back_are_closed():
    """Word of who had left before the checkpoint was waiting in the queue, and is gone with it."""
    before = LearnerSide().come("a", "b")
    before.deliver(1, chunk(agent=1), actor="a"), before.deliver(1, chunk(agent=6), actor="b")
    before.steps(6)
    before.bye("b")
    side = before.restarted(limit=1)
    side.steps(3)
    assert side.closed() == [OF_ONE + 6] and side.collector.agents == {("vector", 1)}
    side.come("z")  # who is waited for has no slot
    side.clock.now += 6.1
    side.steps(2)
    assert side.closed() == [OF_ONE + 6, 1]


# ---- what is shown


def test_what_is_shown_and_logged():
    side = LearnerSide().come(*map(str, range(MAX_ROWS + 4)))
    side.parameters.publish(4, [b"w"])
    side.deliver(1, actor="0", version=2), side.deliver(1, actor="1", version=1)
    assert (side.counts()["ds/actors"], side.counts()["ds/lag"]) == (20.0, 2.5)
    assert side.collector.metrics().keys() <= METRICS.keys()
    side.beat("0", version=3, steps=100)
    side.clock.now += 2.0
    side.beat("0", version=2, steps=150, waiting=2, dropped=7)
    rows = side.collector.rows()
    assert rows[MAX_ROWS:] == [("actors", "and 4 more")]
    text = "here:3 · last message 0 s ago · 25 steps/s · 2 versions behind · 2 waiting · 7 dropped"
    assert rows[0] == ("actor 0", text)
