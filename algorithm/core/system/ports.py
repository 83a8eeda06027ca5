"""TCP ports of this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import suppress

import psutil

from algorithm.core.errors import UsageError
from algorithm.core.system.processes import allow_reuse


def refusal(host: str, port: int) -> OSError | None:
    """Return the reason why the port cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        allow_reuse(probe)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def port_error(hosts: Iterable[str], port: int) -> UsageError:
    """Return the error of a fixed port that cannot be bound; it names the process that has it."""
    why = next(filter(None, (refusal(host, port) for host in hosts)), None)
    if why is not None and why.errno in (errno.EACCES, errno.EPERM):
        return UsageError(
            f"port {port} may not be used",
            where=f"port {port}",
            why=f"{why.strerror}: ports below 1024 are reserved for the system",
            fix="choose another port, such as 5005",
        )
    return UsageError(
        f"port {port} is taken",
        where=f"port {port}",
        why=f"{listener_on(port)} listens there",
        fix="end that process, choose another port, or leave the flag out: then the next free port is taken",
    )


def listener_on(port: int) -> str:
    """Describe the process that listens on a port: its name, id and command line.

    Return "a process of another user" if these cannot be seen.
    """
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if listens and connection.pid is not None:  # those of other users have none
                process = psutil.Process(connection.pid)
                return f"{process.name()} (process {process.pid}: {' '.join(process.cmdline())[:200]})"
    return "a process of another user"
