"""A learner's port, and limits on connections and arriving messages.

gRPC itself closes connections above the total, before any handshake, but does not count them by address.
While many are open, this process's own descriptors are examined, and an address with too many loses some.
Windows has no list of them: there only the total is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import random
import shlex
import socket
import stat
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator

import psutil

from algorithm.core.errors import UsageError
from algorithm.core.system.processes import allow_descriptors, allow_reuse, open_descriptors

MAX_CONNECTIONS = 1024
"""Maximum number of connections, as of concurrent calls."""

RESERVED = 256
"""Number of descriptors kept for everything else: checkpoints, logs, environments."""

MAX_SILENT = 64
"""Maximum number of connections of one address without a message so far."""

LOOK_S = 0.25

Peer = tuple[str, int]
"""Address and port."""


def most_connections() -> int:
    """Return the number of connections that leave enough descriptors; raises the soft limit if it may."""
    limit = allow_descriptors(MAX_CONNECTIONS + 2 * RESERVED)
    free = max(limit - len(open_descriptors()), 2)
    return min(MAX_CONNECTIONS, max(free - RESERVED, free // 2))


class ConnectionLimiter:
    """Limits on connections accepted at ``port``, per address.

    most:     the total that gRPC keeps
    on_fault: called with ``crowded`` and who was sent away

    Of an address with more than :data:`MAX_SILENT` connections on which nothing has been said those that have
    been there longest are closed, and of one with more than three quarters of ``most`` those that came last.
    """

    def __init__(self, port: int, most: int, on_fault: Callable[[str, str], None]) -> None:
        self._port, self._most, self._on_fault = port, most, on_fault
        self._spoke: set[Peer] = set()
        self._seen: dict[Peer, None] = {}  # the one that was seen first is the first
        self._others = 0  # descriptors that are no connections
        self._settled = (0, 0)  # how many descriptors and speakers there were when nothing was to be done

    def note_message(self, peer: str) -> None:
        """Note that a message has come from ``address:port``."""
        host, _, port = peer.rpartition(":")
        if port.isdecimal():
            self._spoke.add((_plain(host.strip("[]")), int(port)))

    async def watch(self) -> None:
        """Check every :data:`LOOK_S` seconds until cancelled."""
        while True:
            with contextlib.suppress(OSError):  # no descriptor is left: the next check may find one
                self.enforce()
            await asyncio.sleep(LOOK_S)

    def enforce(self) -> None:
        """Close connections above the limits."""
        now = (len(open_descriptors()), len(self._spoke))
        few = now[0] - self._others <= min(MAX_SILENT, self._most // 4)
        if now == self._settled or (few and now[1] <= 2 * self._most):
            return
        there = dict.fromkeys(peer for peer, _ in self._accepted())
        self._others = len(open_descriptors()) - len(there)
        self._spoke &= there.keys()
        self._seen = {peer: None for peer in self._seen if peer in there} | there
        if len(there) >= self._most:
            self._on_fault("crowded", f"{len(there)} connections, as many as there may be")
        found = self._too_many()
        self._close(found)
        self._settled = (0, 0) if found else now

    def _too_many(self) -> set[Peer]:
        found: set[Peer] = set()
        by_address: dict[str, list[Peer]] = defaultdict(list)
        for peer in self._seen:
            by_address[_network(peer[0])].append(peer)
        for address, peers in by_address.items():
            silent = [peer for peer in peers if peer not in self._spoke]
            spoken = [peer for peer in peers if peer in self._spoke]
            closed = {*silent[:-MAX_SILENT], *(spoken + silent)[self._most * 3 // 4 :]}
            if closed:
                self._on_fault(
                    "crowded",
                    f"{address}: {len(peers)} connections, nothing has been said on {len(silent)} of them: "
                    f"{len(closed)} are closed",
                )
            found |= closed
        return found

    def _close(self, peers: set[Peer]) -> None:
        """Shut the sockets down; gRPC then releases them."""
        for peer, connection in self._accepted() if peers else ():
            if peer in peers:
                with contextlib.suppress(OSError):  # it has ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    def _accepted(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yield each connection to ``port``, by a duplicate descriptor: the first may close meanwhile.

        They come in the order of their descriptors, which is that of their arrival unless some have closed.
        """
        for number in sorted(open_descriptors()):
            with contextlib.suppress(OSError):
                descriptor = os.dup(number)
                try:
                    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                        continue
                    with socket.socket(fileno=os.dup(descriptor)) as connection:
                        if connection.family not in (socket.AF_INET, socket.AF_INET6):
                            continue
                        peer = connection.getpeername()
                        if connection.getsockname()[1] == self._port:
                            yield (_plain(peer[0]), peer[1]), connection
                finally:
                    os.close(descriptor)


def _plain(host: str) -> str:
    """Return an address in one form: without a zone, IPv4 as such."""
    return host.partition("%")[0].removeprefix("::ffff:")


def _network(host: str) -> str:
    """Return the unit of counting: an IPv4 address, or the IPv6 network of 64 bits, one customer's."""
    address = ipaddress.ip_address(host)
    return host if address.version == 4 else str(ipaddress.ip_network((int(address), 64), strict=False))


MEMORY = 2**26
"""Maximum of bytes of all arriving messages."""

LEAST = 16
"""Number of messages that may arrive at a time, however large."""

GRACE_S = 2.0
"""Seconds to wait for a place, and after which a slow message may lose its own."""


class NoRoom(Exception):  # noqa: N818
    """Too many messages are arriving for this one."""


def most_at_a_time(largest: int) -> int:
    """Return how many messages of at most ``largest`` bytes may be held at the same time."""
    return max(LEAST, MEMORY // largest)


class ArrivalLimit:
    """Limit on messages of at most ``largest`` bytes that arrive in one event loop.

    When as many are arriving as there may be, the next one waits in line. After :data:`GRACE_S` one of those
    that have had their places for as long gives way to it. So slow senders block no others. The
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
        """Wait until there is a place. Raises NoRoom where none becomes free."""
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
    """Return None instead of StopAsyncIteration, which a task may not raise."""
    async for body in bodies:
        return body
    return None


_OTHER_PORT = (
    "or let this learner take another one: -o net_config.learner_port=PORT, or 0 for any that is free"
)


def port_refused(host: str, port: int) -> UsageError:
    """Return the error for a person after binding ``host:port`` has failed."""
    where = f"{host}:{port}"
    error = _attempt(host, port)
    if error is not None and error.errno == errno.EADDRINUSE:
        why, fix = _holder(port)
        return UsageError("the learner's port is taken", where=where, why=why, fix=f"{fix}\n{_OTHER_PORT}")
    reasons = {
        errno.EADDRNOTAVAIL: "no network interface of this machine has that address",
        errno.EACCES: "ports below 1024 need more rights",
    }
    why = reasons.get(error.errno or 0, error.strerror or str(error)) if error else "it cannot be bound"
    return UsageError(
        "the learner cannot listen there",
        where=where,
        why=why,
        fix="set net_config.learner_host to an address of this machine, or 0.0.0.0 for all of them"
        if error is None or error.errno != errno.EACCES
        else "choose another net_config.learner_port",
    )


def _attempt(host: str, port: int) -> OSError | None:
    """Return the system's own error, which gRPC hides."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            allow_reuse(probe)
            probe.bind(target)
            probe.listen()
    except OSError as error:
        return error
    return None


def _holder(port: int) -> tuple[str, str]:
    """Return which process listens at ``port``, and a fix."""
    try:
        listening = [
            one
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid
        ]
        process = psutil.Process(listening[0].pid) if listening else None
        if process is not None:
            command = shlex.join(process.cmdline()) or process.name()
            return f"process {process.pid} listens there: {command}", f"end it: kill {process.pid}"
    except psutil.Error:  # another user's process, or one that has just ended
        pass
    return "another process listens there; this user may not see which", "end that process"


def refuse_if_taken(host: str, port: int) -> None:
    """Raise UsageError if ``host:port`` cannot be bound now; port 0 is always free."""
    if _attempt(host, port) is not None:
        raise port_refused(host, port)
