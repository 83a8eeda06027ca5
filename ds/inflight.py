"""A limit for what is on its way to a learner: messages whose bytes are still arriving."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator

MEMORY = 2**26
"""Bytes of all messages that are arriving, at the most."""

LEAST = 16
"""Messages that may arrive at a time however large they may be."""

GRACE_S = 2.0
"""So long a message waits for a place; one that has had its place for so long may lose it then."""


class NoRoom(Exception):  # noqa: N818
    """So many messages are arriving that this one has to come later."""


def most_at_a_time(largest: int) -> int:
    """Messages of at most ``largest`` bytes that may be held at the same time."""
    return max(LEAST, MEMORY // largest)


class InFlight:
    """Messages of at most ``largest`` bytes, read in one event loop.

    When as many are arriving as there may be, the next one waits in line. After :data:`GRACE_S` one of those
    that have had their places for as long gives way to it. Senders who trickle therefore keep nobody out. The
    choice is random: with the oldest, no honest message on a slow line would arrive while others wait.
    """

    def __init__(self, largest: int) -> None:
        self.most = self._free = most_at_a_time(largest)
        self._arriving: dict[asyncio.Future[None], float] = {}  # since when
        self._line: deque[asyncio.Future[None]] = deque()

    async def read(self, bodies: AsyncIterator[bytes], seconds: float) -> bytes:
        """Return the first of ``bodies``.

        Raises NoRoom; TimeoutError after ``seconds``; StopAsyncIteration if there is none.
        """
        loop = asyncio.get_running_loop()
        await self._place(loop)
        gives_way: asyncio.Future[None] = loop.create_future()
        self._arriving[gives_way] = loop.time()
        body = asyncio.ensure_future(_first(bodies))
        try:
            try:
                await asyncio.wait((body, gives_way), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:  # gRPC does so where a message is too large, and there is none
                if not body.done():
                    raise
            if body.done():
                found = body.result()
                if found is None:
                    raise StopAsyncIteration
                return found
            if gives_way.done():
                raise NoRoom
            raise asyncio.TimeoutError
        finally:
            body.cancel()
            if self._arriving.pop(gives_way, None) is not None:
                self._release()

    async def _place(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until there is a place. Raises NoRoom where nobody can give way."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._line.append(turn)
        try:
            await asyncio.wait((turn,), timeout=GRACE_S)
        except asyncio.CancelledError:
            if turn.done():
                self._release()
            else:
                self._line.remove(turn)
            raise
        if turn.done():
            return
        self._line.remove(turn)
        long = [one for one, since in self._arriving.items() if loop.time() - since >= GRACE_S]
        if not long:
            raise NoRoom
        loser = random.choice(long)
        del self._arriving[loser]
        loser.set_result(None)

    def _release(self) -> None:
        if self._line:
            self._line.popleft().set_result(None)
        else:
            self._free += 1


async def _first(bodies: AsyncIterator[bytes]) -> bytes | None:
    """A task may not raise StopAsyncIteration where a coroutine waits for it."""
    async for body in bodies:
        return body
    return None
