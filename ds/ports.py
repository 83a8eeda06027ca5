"""Why a port cannot be listened at."""

from __future__ import annotations

import errno
import shlex
import socket

import psutil

from algorithm.errors import UsageError

_OTHER_PORT = (
    "or let this learner take another one: -o net_config.learner_port=PORT, or 0 for any that is free"
)


def refused(host: str, port: int) -> UsageError:
    """What to tell a person after binding ``host:port`` has failed."""
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
    """The system's own words, which gRPC keeps to itself."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen()
    except OSError as error:
        return error
    return None


def _holder(port: int) -> tuple[str, str]:
    """Who listens at ``port``, and what to do about it."""
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
    """Raise UsageError if nobody could listen at ``host:port`` now; port 0 is one that is free."""
    if _attempt(host, port) is not None:
        raise refused(host, port)
