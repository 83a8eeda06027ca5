"""A learner's port, and the number of connections that it may have."""

from __future__ import annotations

import errno

from algorithm.core.errors import UsageError
from algorithm.core.system.ports import listener_on, refusal
from algorithm.core.system.processes import allow_descriptors, open_descriptors

MAX_CONNECTIONS = 1024

RESERVED = 256
"""Descriptors kept for everything else: checkpoints, logs, environments."""


def most_connections() -> int:
    """Return the number of connections that leave enough descriptors; raises the soft limit if it may."""
    limit = allow_descriptors(MAX_CONNECTIONS + 2 * RESERVED)
    free = max(limit - len(open_descriptors()), 2)
    return min(MAX_CONNECTIONS, max(free - RESERVED, free // 2))


def refuse_if_taken(host: str, port: int) -> None:
    """Raise UsageError if ``host:port`` cannot be bound now; port 0 is always free."""
    if refusal(host, port) is not None:
        raise port_refused(host, port)


def port_refused(host: str, port: int) -> UsageError:
    """Return the error for a person after binding ``host:port`` has failed; gRPC hides the system's own."""
    error = refusal(host, port)
    if error is not None and error.errno == errno.EADDRINUSE:
        return UsageError(
            "the learner's port is taken",
            where=f"{host}:{port}",
            why=f"{listener_on(port)} listens there",
            fix="end it, or let this learner take another one: -o net_config.learner_port=PORT, or 0 for any",
        )
    return UsageError(
        "the learner cannot listen there",
        where=f"{host}:{port}",
        why=str(error or "it cannot be bound"),
        fix="choose a port above 1023, and as net_config.learner_host an address of this machine, or 0.0.0.0 "
        "for all of them",
    )
