"""A learner's port, and the number of connections that it may have."""

from __future__ import annotations

import errno
import shlex
import socket

import psutil

from algorithm.core.errors import UsageError
from algorithm.core.system.processes import allow_descriptors, allow_reuse, open_descriptors

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
    if _bind_error(host, port) is not None:
        raise port_refused(host, port)


def _bind_error(host: str, port: int) -> OSError | None:
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


def port_refused(host: str, port: int) -> UsageError:
    """Return the error for a person after binding ``host:port`` has failed."""
    error = _bind_error(host, port)
    number = error.errno if error else None
    what, fix = "the learner cannot listen there", "choose another net_config.learner_port"
    if number == errno.EADDRINUSE:
        what, (why, fix) = "the learner's port is taken", _holder(port)
        fix += "\nor let this learner take another one: -o net_config.learner_port=PORT, or 0 for any"
    elif number == errno.EACCES:
        why = "ports below 1024 need more rights"
    else:
        why = str(error or "it cannot be bound")
        if number == errno.EADDRNOTAVAIL:
            why = "no network interface of this machine has that address"
        fix = "set net_config.learner_host to an address of this machine, or 0.0.0.0 for all of them"
    return UsageError(what, where=f"{host}:{port}", why=why, fix=fix)


def _holder(port: int) -> tuple[str, str]:
    """Return which process listens at ``port``, and a fix."""
    try:
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
                process = psutil.Process(one.pid)
                command = shlex.join(process.cmdline()) or process.name()
                return f"process {one.pid} listens there: {command}", f"end it: kill {one.pid}"
    except psutil.Error:  # another user's process, or one that has just ended
        pass
    return "another process listens there; this user may not see which", "end that process"
