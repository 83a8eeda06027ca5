"""A limit for what is on its way to a learner: messages whose bytes are still arriving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

MEMORY = 2**26
"""Bytes of all messages that are arriving, at the most."""

LEAST = 16
"""Messages that may arrive at a time however large they may be."""

GRACE_S = 1.0
"""A message may take longer only while there is room for others."""


class NoRoom(Exception):  # noqa: N818
    """So many messages are arriving that this one has to come later."""


class InFlight:
    """Messages of at most ``largest`` bytes, read in one event loop.

    When as many are arriving as there may be, the one that has taken longest gives way, if it has had
    :data:`GRACE_S`; else the new one is sent away. So senders who trickle keep nobody out for long.
    """

    def __init__(self, largest: int) -> None:
        self.most = max(LEAST, MEMORY // largest)
        self._since: dict[asyncio.Future[None], float] = {}  # the one that began first is the first

    async def read(self, bodies: AsyncIterator[bytes], seconds: float) -> bytes:
        """The first of ``bodies``.

        Raises NoRoom; TimeoutError after ``seconds``; StopAsyncIteration if there is none.
        """
        loop = asyncio.get_running_loop()
        if len(self._since) >= self.most:
            slowest = next(iter(self._since))
            if loop.time() - self._since[slowest] < GRACE_S:
                raise NoRoom
            del self._since[slowest]
            slowest.set_result(None)
        gives_way: asyncio.Future[None] = loop.create_future()
        self._since[gives_way] = loop.time()
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
            self._since.pop(gives_way, None)


async def _first(bodies: AsyncIterator[bytes]) -> bytes | None:
    """A task may not raise StopAsyncIteration where a coroutine waits for it."""
    async for body in bodies:
        return body
    return None
