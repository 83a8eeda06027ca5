"""How many connections a learner has at a time, and how many of them may come from one address.

gRPC itself closes what comes above the total, before any handshake. It knows nothing of addresses: while many
connections are open, a look at this process's own descriptors finds those that are too many of one address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_CONNECTIONS = 1024
"""As many as there may be calls at a time."""

RESERVED = 256
"""Descriptors for everything else: checkpoints, logs, environments."""

MAX_SILENT = 64
"""Connections of one address on which nobody has said anything yet."""

LOOK_S = 0.25

_DESCRIPTORS = Path("/dev/fd")
"""Of the process that looks; where there is none, only the total is kept."""

Peer = tuple[str, int]
"""Address and port."""


def most_connections() -> int:
    """How many connections leave enough descriptors for everything else; raises the soft limit if it may."""
    limit = _descriptors(MAX_CONNECTIONS + 2 * RESERVED)
    free = max(limit - len(_open()), 2)
    return min(MAX_CONNECTIONS, max(free - RESERVED, free // 2))


def _descriptors(wanted: int) -> int:
    """How many descriptors this process may have; ``wanted`` if it can have them."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):  # a system may have a lower limit than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _open() -> list[int]:
    """The descriptors of this process, one of them that of the look itself. Raises OSError."""
    if not _DESCRIPTORS.is_dir():
        return []
    with os.scandir(_DESCRIPTORS) as found:
        return [int(one.name) for one in found]


class Connections:
    """Those that were accepted at ``port``, looked after in an event loop.

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

    def spoke(self, peer: str) -> None:
        """A message has come from ``address:port``."""
        host, _, port = peer.rpartition(":")
        if port.isdecimal():
            self._spoke.add((_plain(host.strip("[]")), int(port)))

    async def watch(self) -> None:
        """Look now and then, until it is cancelled."""
        while True:
            with contextlib.suppress(OSError):  # no descriptor is left: the next look may find one
                self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Close what is too much."""
        now = (len(_open()), len(self._spoke))
        few = now[0] - self._others <= min(MAX_SILENT, self._most // 4)
        if now == self._settled or (few and now[1] <= 2 * self._most):
            return
        there = {peer for peer, _ in self._accepted()}
        self._others = len(_open()) - len(there)
        self._spoke &= there
        self._seen = {peer: None for peer in self._seen if peer in there} | dict.fromkeys(
            there - self._seen.keys()
        )
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
        """gRPC notices that they have ended, and lets go of them."""
        for peer, connection in self._accepted() if peers else ():
            if peer in peers:
                with contextlib.suppress(OSError):  # it has ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    def _accepted(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Each connection to ``port``, by a descriptor of its own: the other one may be closed meanwhile."""
        for number in _open():
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
    """One way to write an address: without a zone, IPv4 as such."""
    return host.partition("%")[0].removeprefix("::ffff:")


def _network(host: str) -> str:
    """Who is counted as one: an IPv4 address, or an IPv6 network of 64 bits, which is one customer's."""
    address = ipaddress.ip_address(host)
    return host if address.version == 4 else str(ipaddress.ip_network((int(address), 64), strict=False))
