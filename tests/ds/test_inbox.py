"""Between the loop that receives and the thread that learns: bounded, in order, nobody sleeps for ever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ds.inbox import Inbox, Left
from tests.ds.parcels import parcel

FOREVER = 60.0  # seconds; what waits so long in a test hangs


def numbered(number, lane=0, actor="a"):
    return parcel(actor=actor, lane=lane, number=number, parts=())


def run(coroutine):
    return asyncio.run(coroutine)


def test_what_came_first_is_taken_first():
    async def fill(inbox):
        for number in (1, 2):
            assert await inbox.put(5, numbered(number), timeout=0)
        inbox.left(5)
        assert await inbox.put(6, numbered(3), timeout=0)

    inbox = Inbox(3)
    run(fill(inbox))
    assert len(inbox) == 3
    taken = [inbox.take(0) for _ in range(5)]
    assert taken == [(5, numbered(1)), (5, numbered(2)), Left(5), (6, numbered(3)), None]


def test_there_is_never_more_in_it_than_fits():
    async def fill(inbox):
        assert await inbox.put(0, numbered(1), timeout=0)
        assert await inbox.put(0, numbered(2), timeout=0)
        assert not await inbox.put(0, numbered(3), timeout=0)
        assert not await inbox.put(0, numbered(4), timeout=0.01)

    inbox = Inbox(2)
    run(fill(inbox))
    assert [inbox.take(0), inbox.take(0), inbox.take(0)] == [(0, numbered(1)), (0, numbered(2)), None]


@pytest.mark.fault("F32")
def test_no_more_wait_for_room_than_may():
    async def scenario(inbox):
        assert await inbox.put(0, numbered(1), timeout=0)
        waits = asyncio.create_task(inbox.put(0, numbered(2), timeout=FOREVER))
        await asyncio.sleep(0)
        assert not await inbox.put(0, numbered(3), timeout=FOREVER), "it is asked to come again at once"
        inbox.take(0)
        assert await waits

    run(scenario(Inbox(1, line=1)))


def test_who_waits_comes_in_by_turns_when_one_is_taken():
    async def scenario(inbox):
        await inbox.put(0, numbered(1), timeout=0)
        second = asyncio.create_task(inbox.put(0, numbered(2), timeout=FOREVER))
        third = asyncio.create_task(inbox.put(0, numbered(3), timeout=FOREVER))
        await asyncio.sleep(0)
        assert inbox.take(0) == (0, numbered(1))
        assert len(inbox) == 1, "who waited is in at once, before anybody else can be"
        late = asyncio.create_task(inbox.put(0, numbered(4), timeout=FOREVER))
        assert await second and not third.done()
        assert inbox.take(0) == (0, numbered(2)) and await third
        assert inbox.take(0) == (0, numbered(3)) and await late
        return inbox.take(0)

    assert run(scenario(Inbox(1))) == (0, numbered(4))


def test_who_gives_up_waiting_does_not_come_in_later():
    async def scenario(inbox):
        await inbox.put(0, numbered(1), timeout=0)
        cancelled = asyncio.create_task(inbox.put(0, numbered(2), timeout=FOREVER))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not await inbox.put(0, numbered(3), timeout=0)
        return inbox.take(0), inbox.take(0)

    assert run(scenario(Inbox(1))) == ((0, numbered(1)), None)


def test_of_an_actor_that_has_left_nothing_comes_in_afterwards():
    async def scenario(inbox):
        await inbox.put(1, numbered(1), timeout=0)
        of_one = asyncio.create_task(inbox.put(1, numbered(2), timeout=FOREVER))
        of_two = asyncio.create_task(inbox.put(2, numbered(1, actor="b"), timeout=FOREVER))
        await asyncio.sleep(0)
        inbox.left(1)
        assert not await of_one
        taken = [inbox.take(0), inbox.take(0)]
        assert await of_two
        return [*taken, inbox.take(0), inbox.take(0)]

    assert run(scenario(Inbox(1))) == [(1, numbered(1)), Left(1), (2, numbered(1, actor="b")), None]


def test_processed_waits_until_it_is_done_with():
    async def scenario(inbox):
        one = numbered(1)
        await inbox.put(0, one, timeout=0)
        waiting = asyncio.create_task(inbox.processed(one))
        await asyncio.sleep(0)
        inbox.take(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        inbox.done(one)
        await waiting
        await inbox.processed(one)  # at once: it has been done with

    run(scenario(Inbox(1)))


def test_closing_wakes_everybody():
    async def scenario(inbox):
        one = numbered(1)
        await inbox.put(0, one, timeout=0)
        waits = asyncio.create_task(inbox.put(0, numbered(2), timeout=FOREVER))
        learns = asyncio.create_task(inbox.processed(one))
        await asyncio.sleep(0)
        inbox.close()
        await learns
        assert not await waits
        assert not await inbox.put(0, numbered(3), timeout=FOREVER)

    inbox = Inbox(1)
    taker = threading.Thread(target=lambda: inbox.take(FOREVER))
    run(scenario(inbox))
    taker.start()
    taker.join(FOREVER)
    assert not taker.is_alive() and inbox.take(FOREVER) is None


def test_a_waiting_taker_wakes_for_parcels_and_for_who_leaves():
    inbox, taken = Inbox(1), []

    def until_it_waits():
        while not inbox._changed._waiters:
            time.sleep(0.001)

    def take_two():
        taken.append(inbox.take(FOREVER))
        taken.append(inbox.take(FOREVER))

    thread = threading.Thread(target=take_two)
    thread.start()
    until_it_waits()
    run(inbox.put(0, numbered(1), timeout=0))
    while not taken:
        time.sleep(0.001)
    until_it_waits()
    inbox.left(0)
    thread.join(FOREVER / 3)
    assert taken == [(0, numbered(1)), Left(0)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_no_wake_up_is_lost_between_threads(size):
    """Many lanes against one taker: everything arrives once, in order within each lane."""
    inbox, taken, lanes, each = Inbox(size), [], 8, 100
    most = 0

    def take_all():
        nonlocal most
        while len(taken) < lanes * each:
            item = inbox.take(FOREVER)
            assert item is not None and not isinstance(item, Left)
            most = max(most, len(inbox))
            taken.append(item[1])
            inbox.done(item[1])

    async def send(lane):
        for number in range(1, each + 1):
            one = numbered(number, lane)
            assert await inbox.put(lane, one, timeout=FOREVER)
            if number % 10 == 0:
                await inbox.processed(one)

    async def send_all():
        await asyncio.gather(*(send(lane) for lane in range(lanes)))

    thread = threading.Thread(target=take_all)
    thread.start()
    run(send_all())
    thread.join(FOREVER)
    assert not thread.is_alive() and len(taken) == lanes * each and most <= size
    for lane in range(lanes):
        assert [one.number for one in taken if one.lane == lane] == list(range(1, each + 1))


def test_a_loop_that_has_ended_does_not_harm_the_taker():
    inbox = Inbox(1)

    async def leave_one_waiting():
        await inbox.put(0, numbered(1), timeout=0)
        waiting = inbox.put(0, numbered(2), timeout=FOREVER)
        waiting.send(None)  # waits in a loop that ends now
        return waiting

    waiting = run(leave_one_waiting())
    assert inbox.take(0) == (0, numbered(1)) and inbox.take(0) == (0, numbered(2))
    waiting.close()
