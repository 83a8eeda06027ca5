"""Between the loop that receives and the thread that learns: bounded, in order, nobody sleeps for ever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ds.ingest import ActorLeft, IngestQueue
from tests.ds.trajectories import trajectory

FOREVER = 60.0  # seconds; what waits so long in a test hangs


def numbered(number, channel=0, actor="a"):
    return trajectory(actor=actor, channel=channel, number=number, chunks=())


def run(coroutine):
    return asyncio.run(coroutine)


def test_what_came_first_is_taken_first():
    async def fill(queue):
        for number in (1, 2):
            assert await queue.put(5, numbered(number), timeout=0)
        queue.left(5)
        assert await queue.put(6, numbered(3), timeout=0)

    queue = IngestQueue(3)
    run(fill(queue))
    assert len(queue) == 3
    taken = [queue.take(0) for _ in range(5)]
    assert taken == [(5, numbered(1)), (5, numbered(2)), ActorLeft(5), (6, numbered(3)), None]


def test_there_is_never_more_in_it_than_fits():
    async def fill(queue):
        assert await queue.put(0, numbered(1), timeout=0)
        assert await queue.put(0, numbered(2), timeout=0)
        assert not await queue.put(0, numbered(3), timeout=0)
        assert not await queue.put(0, numbered(4), timeout=0.01)

    queue = IngestQueue(2)
    run(fill(queue))
    assert [queue.take(0), queue.take(0), queue.take(0)] == [(0, numbered(1)), (0, numbered(2)), None]


@pytest.mark.fault("F32")
def test_no_more_wait_for_room_than_may():
    async def scenario(queue):
        assert await queue.put(0, numbered(1), timeout=0)
        waits = asyncio.create_task(queue.put(0, numbered(2), timeout=FOREVER))
        await asyncio.sleep(0)
        assert not await queue.put(0, numbered(3), timeout=FOREVER), "it is asked to come again at once"
        queue.take(0)
        assert await waits

    run(scenario(IngestQueue(1, line=1)))


def test_who_waits_comes_in_by_turns_when_one_is_taken():
    async def scenario(queue):
        await queue.put(0, numbered(1), timeout=0)
        second = asyncio.create_task(queue.put(0, numbered(2), timeout=FOREVER))
        third = asyncio.create_task(queue.put(0, numbered(3), timeout=FOREVER))
        await asyncio.sleep(0)
        assert queue.take(0) == (0, numbered(1))
        assert len(queue) == 1, "who waited is in at once, before anybody else can be"
        late = asyncio.create_task(queue.put(0, numbered(4), timeout=FOREVER))
        assert await second and not third.done()
        assert queue.take(0) == (0, numbered(2)) and await third
        assert queue.take(0) == (0, numbered(3)) and await late
        return queue.take(0)

    assert run(scenario(IngestQueue(1))) == (0, numbered(4))


def test_who_gives_up_waiting_does_not_come_in_later():
    async def scenario(queue):
        await queue.put(0, numbered(1), timeout=0)
        cancelled = asyncio.create_task(queue.put(0, numbered(2), timeout=FOREVER))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not await queue.put(0, numbered(3), timeout=0)
        return queue.take(0), queue.take(0)

    assert run(scenario(IngestQueue(1))) == ((0, numbered(1)), None)


def test_of_an_actor_that_has_left_nothing_comes_in_afterwards():
    async def scenario(queue):
        await queue.put(1, numbered(1), timeout=0)
        of_one = asyncio.create_task(queue.put(1, numbered(2), timeout=FOREVER))
        of_two = asyncio.create_task(queue.put(2, numbered(1, actor="b"), timeout=FOREVER))
        await asyncio.sleep(0)
        queue.left(1)
        assert not await of_one
        taken = [queue.take(0), queue.take(0)]
        assert await of_two
        return [*taken, queue.take(0), queue.take(0)]

    assert run(scenario(IngestQueue(1))) == [
        (1, numbered(1)),
        ActorLeft(1),
        (2, numbered(1, actor="b")),
        None,
    ]


def test_processed_waits_until_it_is_done_with():
    async def scenario(queue):
        one = numbered(1)
        await queue.put(0, one, timeout=0)
        waiting = asyncio.create_task(queue.processed(one))
        await asyncio.sleep(0)
        queue.take(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done(one)
        await waiting
        await queue.processed(one)  # at once: it has been done with

    run(scenario(IngestQueue(1)))


def test_closing_wakes_everybody():
    async def scenario(queue):
        one = numbered(1)
        await queue.put(0, one, timeout=0)
        waits = asyncio.create_task(queue.put(0, numbered(2), timeout=FOREVER))
        learns = asyncio.create_task(queue.processed(one))
        await asyncio.sleep(0)
        queue.close()
        await learns
        assert not await waits
        assert not await queue.put(0, numbered(3), timeout=FOREVER)

    queue = IngestQueue(1)
    taker = threading.Thread(target=lambda: queue.take(FOREVER))
    run(scenario(queue))
    taker.start()
    taker.join(FOREVER)
    assert not taker.is_alive() and queue.take(FOREVER) is None


def test_a_waiting_taker_wakes_for_trajectories_and_for_who_leaves():
    queue, taken = IngestQueue(1), []

    def until_it_waits():
        while not queue._changed._waiters:
            time.sleep(0.001)

    def take_two():
        taken.append(queue.take(FOREVER))
        taken.append(queue.take(FOREVER))

    thread = threading.Thread(target=take_two)
    thread.start()
    until_it_waits()
    run(queue.put(0, numbered(1), timeout=0))
    while not taken:
        time.sleep(0.001)
    until_it_waits()
    queue.left(0)
    thread.join(FOREVER / 3)
    assert taken == [(0, numbered(1)), ActorLeft(0)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_no_wake_up_is_lost_between_threads(size):
    """Many channels against one taker: everything arrives once, in order within each channel."""
    queue, taken, channels, each = IngestQueue(size), [], 8, 100
    most = 0

    def take_all():
        nonlocal most
        while len(taken) < channels * each:
            item = queue.take(FOREVER)
            assert item is not None and not isinstance(item, ActorLeft)
            most = max(most, len(queue))
            taken.append(item[1])
            queue.done(item[1])

    async def send(channel):
        for number in range(1, each + 1):
            one = numbered(number, channel)
            assert await queue.put(channel, one, timeout=FOREVER)
            if number % 10 == 0:
                await queue.processed(one)

    async def send_all():
        await asyncio.gather(*(send(channel) for channel in range(channels)))

    thread = threading.Thread(target=take_all)
    thread.start()
    run(send_all())
    thread.join(FOREVER)
    assert not thread.is_alive() and len(taken) == channels * each and most <= size
    for channel in range(channels):
        assert [one.number for one in taken if one.channel == channel] == list(range(1, each + 1))


def test_a_loop_that_has_ended_does_not_harm_the_taker():
    queue = IngestQueue(1)

    async def leave_one_waiting():
        await queue.put(0, numbered(1), timeout=0)
        waiting = queue.put(0, numbered(2), timeout=FOREVER)
        waiting.send(None)  # waits in a loop that ends now
        return waiting

    waiting = run(leave_one_waiting())
    assert queue.take(0) == (0, numbered(1)) and queue.take(0) == (0, numbered(2))
    waiting.close()
