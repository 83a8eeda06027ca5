"""Queues of messages between the thread that receives them and the thread that learns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from dataclasses import dataclass

from ds.protocol import TrajectoryMessage

_Key = tuple[str, int, int]


@dataclass(frozen=True)
class ActorLeft:
    """Mark in the queue: the actor of this number has left, and its open episodes end as truncated."""

    number: int


class _LoopEvent:
    """Event for a coroutine of the running loop; set from any thread, any number of times."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called: asyncio.Future[None] = self._loop.create_future()

    def call(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and no coroutine waits there
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self._called.done():
            self._called.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is set, or ``timeout`` seconds have passed."""
        await asyncio.wait((self._called,), timeout=timeout)


class _Waiting:
    """Message for which there is no room yet. ``came_in`` is written under the queue's lock."""

    def __init__(self, number: int, message: TrajectoryMessage) -> None:
        self.number, self.message = number, message
        self.wake_up = _LoopEvent()
        self.came_in = False


class IngestQueue:
    """Queue of at most ``size`` messages in order of arrival; ``line`` more may wait for room.

    Coroutines belong to the thread of an event loop, all else to any. Waiting callers hold no lock. ``take``
    itself admits the next message, so that no wake-up can be lost.
    """

    def __init__(self, size: int, *, line: int = 16) -> None:
        self._size, self._line = size, line
        self._changed = threading.Condition()  # its lock guards all below
        self._items: deque[tuple[int, TrajectoryMessage] | ActorLeft] = deque()
        self._num_messages = 0
        self._waiting: deque[_Waiting] = deque()
        self._unfinished: dict[_Key, list[_LoopEvent]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return the number of messages that wait to be taken."""
        return self._num_messages

    async def put(self, number: int, message: TrajectoryMessage, *, timeout: float) -> bool:
        """Add a message of actor ``number``; False if there was no room within ``timeout`` seconds.

        At once where the line is full: those who wait in it take memory.
        Also False once it is closed, or when the actor has left meanwhile. Who cancels it does not learn
        whether the message came in.
        """
        with self._changed:
            if self._closed:
                return False
            if self._num_messages < self._size:  # then none waits: see take
                self._let_in(number, message)
                return True
            if len(self._waiting) >= self._line:
                return False
            waiting = _Waiting(number, message)
            self._waiting.append(waiting)
        try:
            await waiting.wake_up.wait(timeout)
        finally:
            with self._changed:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
        return waiting.came_in

    def left(self, number: int) -> None:
        """Note that an actor has left: earlier messages stay, those that wait for room are refused."""
        with self._changed:
            gone = [waiting for waiting in self._waiting if waiting.number == number]
            self._waiting = deque(waiting for waiting in self._waiting if waiting.number != number)
            self._items.append(ActorLeft(number))
            self._changed.notify()
        for waiting in gone:
            waiting.wake_up.call()

    async def processed(self, message: TrajectoryMessage) -> None:
        """Wait until a message that came in is :meth:`done` with, or the queue is closed."""
        with self._changed:
            waiting = self._unfinished.get(_key(message))
            if waiting is None:
                return
            wake_up = _LoopEvent()
            waiting.append(wake_up)
        await wake_up.wait()

    def take(self, timeout: float) -> tuple[int, TrajectoryMessage] | ActorLeft | None:
        """Return the oldest item; None if none comes within ``timeout`` seconds, and once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed, timeout)
            if self._closed or not self._items:
                return None
            item = self._items.popleft()
            if isinstance(item, ActorLeft):
                return item
            self._num_messages -= 1
            next_in = self._waiting.popleft() if self._waiting else None
            if next_in is not None:
                next_in.came_in = True
                self._let_in(next_in.number, next_in.message)
        if next_in is not None:
            next_in.wake_up.call()
        return item

    def done(self, message: TrajectoryMessage) -> None:
        """Mark a message that was taken as processed."""
        with self._changed:
            waiting = self._unfinished.pop(_key(message), [])
        for wake_up in waiting:
            wake_up.call()

    def close(self) -> None:
        """Close the queue; all waiting callers are woken."""
        with self._changed:
            self._closed = True
            wake_ups = [waiting.wake_up for waiting in self._waiting]
            wake_ups += [wake_up for waiting in self._unfinished.values() for wake_up in waiting]
            self._waiting.clear()
            self._unfinished.clear()
            self._items.clear()
            self._num_messages = 0
            self._changed.notify_all()
        for wake_up in wake_ups:
            wake_up.call()

    def _let_in(self, number: int, message: TrajectoryMessage) -> None:
        self._items.append((number, message))
        self._num_messages += 1
        self._unfinished[_key(message)] = []
        self._changed.notify()


def _key(message: TrajectoryMessage) -> _Key:
    return message.actor, message.channel, message.number
