"""The learner's answers, asked for directly: what an actor is told, and what reaches the queue."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from msgspec.structs import replace

from ds.checking import AHEAD
from ds.compatibility import digest
from ds.ingest import ActorLeft, IngestQueue
from ds.parameters import ParameterStore
from ds.protocol import (
    PROTOCOL,
    Beat,
    Bye,
    Hello,
    Join,
    Joined,
    Refused,
    TrajectoryChunk,
    WeightRequest,
    Welcome,
)
from ds.registry import ActorRegistry
from ds.service import Service, Terms
from tests.ds.trajectories import CARRIES, SPECS, Clock, chunk, trajectory, with_column

AGREED = {"sac_config.nn": "nn", "base_config.env_args": {"a": [1]}}
BEAT = 2.0


class Scene:
    """A learner without a socket."""

    def __init__(self, *, size=5, synchronous=False, max_lag=-1, limit=-1, room_timeout=0.0) -> None:
        self.clock = Clock()
        self.actors = ActorRegistry(
            run="r",
            seed=1,
            limit=limit,
            synchronous=synchronous,
            heartbeat=BEAT,
            max_lag=max_lag,
            clock=self.clock,
        )
        self.queue, self.parameters = IngestQueue(size), ParameterStore({"vector": True})
        terms = Terms(
            agreed=AGREED,
            specs=SPECS,
            carry_shapes=CARRIES,
            max_length=10,
            max_message=999,
            synchronous=synchronous,
            room_timeout=room_timeout,
        )
        self.service = Service(self.actors, self.queue, self.parameters, terms)

    async def hello(self, actor="a"):
        hello = Hello(protocol=PROTOCOL, actor=actor, host="here", pid=3, versions={})
        return await self.service.hello(hello, "127.0.0.1:5")

    async def join(self, actor="a", agreed=AGREED, channels=(0,), version=0, taken_steps=0):
        return await self.service.join(
            Join(
                actor=actor,
                agreed=json.dumps(agreed),
                digest=digest(agreed),
                version=version,
                channels=channels,
                taken_steps=taken_steps,
            )
        )

    async def come(self, actor="a", **kwargs):
        assert isinstance(await self.hello(actor), Welcome)
        joined = await self.join(actor, **kwargs)
        assert isinstance(joined, Joined)
        return joined

    async def deliver(self, number=1, *chunks, actor="a", **changes):
        return await self.service.deliver(trajectory(*chunks, actor=actor, number=number, **changes))

    async def beat(self, actor="a"):
        return await self.service.beat(Beat(actor=actor, version=0, steps=0, waiting=0, dropped=0))

    def taken(self):
        """Everything that is in the queue."""
        found = []
        while (item := self.queue.take(0)) is not None:
            found.append(item)
        return found


def numbers(items):
    return [item if isinstance(item, ActorLeft) else (item[0], item[1].number) for item in items]


def told(test):
    """A coroutine becomes a test."""

    def run():
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@told
async def test_receipts_say_the_news():
    scene = Scene()
    joined = await scene.come(channels=(4, 0))
    assert (joined.max_message, joined.channels, joined.receipt.state) == (999, (4, 0), "taken")
    assert (joined.receipt.version, joined.receipt.warming_up) == (0, {"vector": True})
    scene.parameters.publish(1, [b"w"])
    scene.parameters.set_warming_up({"vector": False})
    receipt = await scene.deliver(5)
    assert (receipt.state, receipt.version, receipt.warming_up) == ("taken", 1, {"vector": False})
    assert numbers(scene.taken()) == [(0, 5)]


@told
async def test_a_trajectory_that_comes_twice_is_stored_once():
    scene = Scene()
    await scene.come()
    assert [(await scene.deliver(n)).state for n in (1, 1, 2, 1)] == ["taken"] * 4
    assert numbers(scene.taken()) == [(0, 1), (0, 2)]
    assert scene.actors.metrics()["ds/duplicates"] == 2.0


@told
async def test_who_is_not_known_is_asked_to_say_hello():
    scene = Scene()
    assert (await scene.deliver()).state == (await scene.beat()).state == "unknown"
    joined = await scene.join(version=3)
    assert isinstance(joined, Joined) and joined.receipt.state == "unknown"
    assert scene.taken() == [] and scene.parameters.next_version == 1


@told
async def test_other_settings_are_refused_and_free_the_slot():
    scene = Scene(limit=1)
    await scene.hello("a")
    refused = await scene.join("a", agreed={**AGREED, "sac_config.nn": "nn\n2"})
    assert isinstance(refused, Refused) and refused.why == "differs" and refused.fix
    assert refused.differences == ('sac_config.nn: the learner has "nn", the actor "nn\\n2"',)
    assert isinstance(await scene.hello("b"), Welcome)


@told
async def test_settings_that_are_no_json_object_are_refused():
    scene = Scene()
    for agreed in ("", "[1]", "{", "[" * 5000):
        await scene.hello("a")
        join = Join(actor="a", agreed=agreed, digest="", version=0, channels=(0,), taken_steps=0)
        refused = await scene.service.join(join)
        assert isinstance(refused, Refused) and refused.why == "malformed", agreed
        assert refused.reason == "what the actor has agreed to is no JSON object"


@pytest.mark.parametrize(
    "counts",
    [
        {"channels": ()},
        {"channels": (0,) * 65},
        {"channels": (-1,)},
        {"version": -1},
        {"taken_steps": 2**60},
        {"version": 2**60},
    ],
)
def test_counts_that_cannot_be_are_refused(counts):
    async def run():
        scene = Scene()
        await scene.hello()
        refused = await scene.join(**counts)
        assert isinstance(refused, Refused) and refused.why == "malformed"

    asyncio.run(run())


@pytest.mark.fault("F31")
@told
async def test_a_join_beyond_what_can_be_is_refused_and_changes_nothing():
    scene = Scene()
    await scene.come("honest")
    scene.parameters.publish(1, [b"w"])
    state = scene.actors.state()["members"]
    for forged in (
        {"version": 2**53},
        {"taken_steps": 2**53},
        {"channels": (2**53,)},
        {"version": AHEAD + 1},
    ):
        await scene.hello("forger")
        refused = await scene.join("forger", **forged)
        assert isinstance(refused, Refused) and refused.why == "malformed"
        assert str(next(iter(forged.values()))).strip("(,)") in refused.reason
    assert scene.parameters.next_version == 2
    assert (await scene.deliver(1, actor="honest", version=1)).state == "taken"
    assert scene.actors.state()["members"][-1] == state[0] and scene.actors.metrics()["ds/lost"] == 0
    assert scene.actors.metrics()["ds/rejected"] == 4
    assert any(
        "rejected: a join: it has weights of version 9007199254740992" in x for x in scene.actors.news()
    )


@pytest.mark.fault("F31")
@told
async def test_what_a_resumed_learner_has_not_published_may_still_have_been_seen():
    """It stood at version 500 when its state was taken; the one before it went on to 900, and was killed."""
    scene = Scene()
    scene.parameters.resume(500)
    first = scene.parameters.next_version
    assert first > 900, "an actor may have each version between"
    scene.parameters.publish(first, [b"w"])
    await scene.come(version=900, channels=(70, 0))
    assert (await scene.deliver(71, version=900)).state == "taken"
    assert scene.parameters.next_version == first + 1
    scene.parameters.publish(first + 1, [b"w"])
    assert [scene.parameters.lag(version) for version in (first + 1, first, 900, 501, 500)] == [0, 1, 2, 2, 2]
    assert scene.actors.metrics()["ds/lag"] == 1.0, "that of a learner before this one is no large number"
    await scene.hello("forger")
    assert isinstance(await scene.join("forger", version=500 + AHEAD + 1), Refused)
    await scene.hello("forger")
    assert isinstance(await scene.join("forger", version=500 + AHEAD), Joined)
    scene.parameters.publish(scene.parameters.next_version, [b"w"])
    await scene.hello("forger")
    refused = await scene.join("forger", version=scene.parameters.newest + 1)
    assert isinstance(refused, Refused), "there is one such leap, not one after the other"


@pytest.mark.fault("F31")
@told
async def test_a_trajectory_or_beat_beyond_what_can_be_is_refused_and_changes_nothing():
    scene = Scene()
    await scene.come()
    forged = [
        {"number": 2**53}, {"number": 0}, {"dropped": 2**53}, {"version": 2**53},
        {"gone": (("vector", 2**31),)}, {"episodes": (("vector", 0, 1.7e308, 4),) * 2},
    ]  # fmt: skip
    states = [(await scene.deliver(**{"number": n + 1} | one)).state for n, one in enumerate(forged)]
    assert states == ["rejected"] * 6 and scene.taken() == []
    beats = [{"version": 2**53}, {"steps": -1}, {"waiting": 2**32}, {"dropped": 2**53}]
    plain = {"actor": "a", "version": 0, "steps": 0, "waiting": 0, "dropped": 0}
    assert [(await scene.service.beat(Beat(**plain | one))).state for one in beats] == ["rejected"] * 4
    metrics = scene.actors.metrics()
    assert (metrics["ds/rejected"], metrics["ds/gaps"], metrics["ds/dropped"]) == (10, 3, 0)
    assert (await scene.deliver(7)).state == "taken", "the channel goes on where it was"


@told
async def test_versions_go_on_behind_what_an_actor_has_seen():
    scene = Scene()
    await scene.come(version=41)
    assert scene.parameters.next_version == 42 and scene.parameters.newest == 0
    scene.parameters.publish(42, [b"w"])
    with pytest.raises(ValueError, match="42"):
        scene.parameters.publish(42, [])


@told
async def test_a_bad_trajectory_is_rejected_once_and_for_all():
    scene = Scene()
    await scene.come()
    bad = with_column(chunk(), "reward", np.full(3, np.nan, np.float32))
    receipt = await scene.deliver(1, bad)
    assert receipt.state == "rejected" and "reward [0] is nan" in receipt.reason
    again = await scene.deliver(1, bad)
    assert (again.state, again.reason) == ("rejected", "it came before")
    no_channel = await scene.deliver(1, channel=1)
    assert no_channel.state == "rejected" and "channel 1" in no_channel.reason
    assert (await scene.deliver(2)).state == "taken"
    assert numbers(scene.taken()) == [(0, 2)]
    assert scene.actors.metrics()["ds/rejected"] == 2.0


@told
async def test_an_episode_that_is_too_long_is_rejected_with_the_key_to_change():
    scene = Scene()
    await scene.come()
    receipt = await scene.deliver(1, chunk(length=11))
    assert receipt.state == "rejected" and "base_config.max_episode_length" in receipt.reason


@told
async def test_of_what_is_too_old_only_the_ends_are_stored():
    scene = Scene(max_lag=1)
    await scene.come()
    scene.parameters.publish(5, [b"w"])
    chunks = (chunk(agent=2), chunk(agent=3), chunk(agent=2, start=3))
    receipt = await scene.deliver(1, *chunks, version=3, episodes=(("vector", 2, 1.0, 3),))
    assert receipt.state == "stale" and "2 versions behind" in receipt.reason
    assert (await scene.deliver(1, version=3)).state == "stale"
    ((_, stored),) = scene.taken()
    assert stored.chunks == (TrajectoryChunk("vector", 2, None), TrajectoryChunk("vector", 3, None))
    assert (stored.steps, stored.episodes) == (0, ())
    assert scene.actors.metrics()["ds/stale"] == 9.0


@told
async def test_without_room_it_is_to_be_sent_again_and_then_comes_in():
    scene = Scene(size=1)
    await scene.come()
    assert [(await scene.deliver(n)).state for n in (1, 2, 2)] == ["taken", "again", "again"]
    assert numbers(scene.taken()) == [(0, 1)]
    assert (await scene.deliver(2)).state == "taken"
    assert numbers(scene.taken()) == [(0, 2)]


@told
async def test_an_actor_that_hangs_up_while_it_waits_leaves_no_doubt():
    """Its trajectory comes in after all, and the second copy is not stored."""
    scene = Scene(size=1, room_timeout=60.0)
    await scene.come()
    await scene.deliver(1)
    first = asyncio.create_task(scene.deliver(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0)
    assert (await scene.deliver(2)).state == "again", "it is still under way"
    assert scene.queue.take(0)[1].number == 1
    await asyncio.sleep(0.01)
    assert (await scene.deliver(2)).state == "taken"
    assert numbers(scene.taken()) == [(0, 2)]


@told
async def test_who_is_silent_makes_room_and_its_streams_are_closed():
    scene = Scene(limit=1)
    await scene.come("a")
    await scene.deliver(1)
    refused = await scene.hello("b")
    assert isinstance(refused, Refused) and refused.why == "full"
    scene.clock.now += 3 * BEAT + 0.1
    await scene.come("b")
    assert numbers(scene.taken()) == [(0, 1), ActorLeft(0)]


@told
async def test_goodbye_comes_behind_what_was_sent():
    scene = Scene()
    await scene.come()
    await scene.deliver(1)
    await scene.service.bye(Bye(actor="a", reason="done"))
    await scene.service.bye(Bye(actor="a", reason="again"))
    assert numbers(scene.taken()) == [(0, 1), ActorLeft(0)]


@told
async def test_in_synchronous_mode_the_answer_comes_when_it_has_been_learned_from():
    scene = Scene(synchronous=True)
    refused = await scene.join(channels=(0, 0))
    assert isinstance(refused, Refused) and "channels" in refused.reason
    await scene.come()
    delivering = asyncio.create_task(scene.deliver(1))
    await asyncio.sleep(0.01)
    item = scene.queue.take(0)
    await asyncio.sleep(0.01)
    assert not delivering.done()
    scene.parameters.publish(1, [b"w"])
    scene.queue.done(item[1])
    receipt = await delivering
    assert (receipt.state, receipt.version) == ("taken", 1)


@told
async def test_when_the_training_has_ended_everybody_is_told():
    scene = Scene(size=1, room_timeout=60.0)
    await scene.come()
    await scene.deliver(1)
    waiting = asyncio.create_task(scene.deliver(2))
    await asyncio.sleep(0.01)
    scene.parameters.finish()
    scene.queue.close()
    assert (await waiting).state == (await scene.deliver(3)).state == (await scene.beat()).state == "finished"


@told
async def test_weights_go_to_who_does_not_have_them():
    scene = Scene()
    assert scene.service.weights(WeightRequest(actor="a", newer_than=0)) == ()
    scene.parameters.publish(3, [b"x", b"y"])
    assert scene.service.weights(WeightRequest(actor="a", newer_than=2)) == (b"x", b"y")
    assert scene.service.weights(WeightRequest(actor="a", newer_than=3)) == ()


@told
async def test_another_agent_with_the_same_trajectory_is_another_stream():
    scene = Scene()
    await scene.come("a")
    await scene.come("b")
    await scene.deliver(1, actor="a")
    await scene.deliver(1, actor="b")
    (first, one), (second, other) = scene.taken()
    assert (first, second) == (0, 1) and replace(one, actor="b", chunks=()) == replace(other, chunks=())
