"""Queue of messages between the thread that receives them and the thread that learns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ds.net.protocol import StepMessage


@dataclass(frozen=True)
class ActorLeft:
    """Mark in the queue: the actor of this number has left, and its open episodes end as truncated."""

    number: int


class Arrival:
    """Message of actor ``number``; made in a running loop, to whose coroutines its events belong.

    settled: ``came_in``, read under the queue's lock, has been decided: whether there is room for it
    learned: what the learner does with it is done
    """

    def __init__(self, number: int, message: StepMessage) -> None:
        self.number, self.message = number, message
        self.came_in = False
        self.settled, self.learned = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self, event: asyncio.Event) -> None:
        """Set one of its events, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and no coroutine waits there
            self._loop.call_soon_threadsafe(event.set)


class IngestQueue:
    """Queue of at most ``size`` messages in order of arrival; ``line`` more may wait for room.

    Coroutines belong to the thread of an event loop, all else to any. Waiting callers hold no lock. ``take``
    itself admits the next message, so that no wake-up can be lost.
    """

    def __init__(self, size: int, *, line: int = 16) -> None:
        self._size, self._line = size, line
        self._changed = threading.Condition()  # its lock guards all below
        self._items: deque[Arrival | ActorLeft] = deque()
        self._waiting: deque[Arrival] = deque()
        self._taken: Arrival | None = None
        self._num_messages = 0
        self._closed = False

    def __len__(self) -> int:
        """Return the number of messages that wait to be taken."""
        return self._num_messages

    async def put(self, number: int, message: StepMessage, *, timeout: float) -> Arrival | None:
        """Add a message of actor ``number``; None if there was no room within ``timeout`` seconds.

        None at once where the line is full: messages that wait in it take memory.
        Also None once it is closed, or when the actor has left meanwhile.
        """
        arrival = Arrival(number, message)
        with self._changed:
            if self._num_messages < self._size and not self._closed:  # then none waits: see take
                self._let_in(arrival)
                return arrival
            if len(self._waiting) >= self._line or self._closed:
                return None
            self._waiting.append(arrival)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(arrival.settled.wait(), timeout)
        with self._changed:
            if arrival in self._waiting:
                self._waiting.remove(arrival)
            return arrival if arrival.came_in else None

    def left(self, number: int) -> None:
        """Note that an actor has left: earlier messages stay, those that wait for room are refused."""
        with self._changed:
            self._items.append(ActorLeft(number))
            self._refuse([arrival for arrival in self._waiting if arrival.number == number])
            self._changed.notify()

    def take(self, timeout: float) -> Arrival | ActorLeft | None:
        """Return the oldest item; None if none comes within ``timeout`` seconds, and once it is closed.

        The message that was taken before is done with.
        """
        with self._changed:
            self._finish()
            self._changed.wait_for(lambda: self._items or self._closed, timeout)
            if not self._items:
                return None
            item = self._items.popleft()
            if isinstance(item, Arrival):
                self._taken = item
                self._num_messages -= 1
                if self._waiting:
                    next_in = self._waiting.popleft()
                    self._let_in(next_in)
                    next_in.wake(next_in.settled)
            return item

    def close(self) -> None:
        """Refuse what waits and what comes; nobody waits for a message that is in the queue any more."""
        with self._changed:
            self._closed = True
            self._refuse(list(self._waiting))
            self._finish()
            for item in self._items:
                if isinstance(item, Arrival):
                    item.wake(item.learned)
            self._items.clear()
            self._num_messages = 0
            self._changed.notify_all()

    def _finish(self) -> None:
        if self._taken is not None:
            self._taken.wake(self._taken.learned)
            self._taken = None

    def _let_in(self, arrival: Arrival) -> None:
        arrival.came_in = True
        self._items.append(arrival)
        self._num_messages += 1
        self._changed.notify()

    def _refuse(self, waiting: Iterable[Arrival]) -> None:
        for arrival in waiting:
            self._waiting.remove(arrival)
            arrival.wake(arrival.settled)
