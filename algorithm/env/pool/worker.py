"""A process that runs some copies of an environment and does what it is told. Loads no torch."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from algorithm.env.pool.env_group import EnvGroup, GroupFailure
from algorithm.env.pool.monitor_process import become_group_leader, kill_group
from algorithm.env.pool.process_exit import exit_process, exits_as_errors
from algorithm.env.pool.step_buffers import SharedStepBuffers
from algorithm.env.single import ActionDecoder, MakeEnv
from algorithm.errors import EnvError, UserError
from algorithm.spec import AgentSpec
from algorithm.streams import Lasting

_PR_SET_PDEATHSIG = 1  # prctl: the signal to get when the parent dies

LOG_BYTES = 16 * 2**20
"""What a process may have printed before only the end of it is kept."""

_KEPT_BYTES = 2**20
_LOOK_S = 0.5


@dataclass(frozen=True)
class WorkerReady:
    """The copies are made."""

    name: str
    spec: AgentSpec
    actions: ActionDecoder
    time_limit: int | None


@dataclass(frozen=True)
class WorkerRefusal:
    """They could not be made."""

    error: UserError
    trace: str


def run_worker(connection: Connection, make: MakeEnv, indices: range, n: int, output: Path) -> None:
    """Run the copies ``indices`` of ``n`` until told to stop or until the parent is gone.

    The first message is WorkerReady or WorkerRefusal. Then it answers ``("reset", indices)``, ``("step", ())`` and
    ``("repeat", actions by index)`` with a list of failures, ``("board", name)`` with nothing and
    ``("close", ())`` by leaving. What is printed goes to ``output``.
    """
    _isolate(output)
    try:
        with exits_as_errors():
            copies = EnvGroup(make, indices)
    except Exception as error:
        connection.send(WorkerRefusal(_for_a_person(error), "".join(traceback.format_exception(error))))
        return
    connection.send(WorkerReady(copies.name, copies.spec, copies.actions, copies.time_limit))
    buffers: SharedStepBuffers | None = None
    while True:
        try:
            command, argument = connection.recv()
        except EOFError:  # the parent is gone
            break
        if command == "close":
            break
        if command == "buffers":
            buffers = SharedStepBuffers(copies.spec, n, name=argument)
            continue
        connection.send(_done(copies, cast(SharedStepBuffers, buffers), command, argument))
    try:
        copies.close()
    except EnvError:
        traceback.print_exc()
    if buffers:
        buffers.close()
    exit_process(0)


def _done(copies: EnvGroup, buffers: SharedStepBuffers, command: str, argument: Any) -> list[GroupFailure]:  # noqa: ANN401
    if command == "step":
        return copies.step(buffers)
    return copies.reset(buffers, argument) if command == "reset" else copies.repeat(buffers, argument)


def _for_a_person(error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    return EnvError("the environment could not be made", why=f"{type(error).__name__}: {error}")


def _isolate(output: Path) -> None:
    """Own output; no part in signals that are the parent's affair; never outlive the parent."""
    with output.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    # On a full disk what is printed is lost, and no environment has failed.
    sys.stdout, sys.stderr = (
        cast(TextIO, Lasting(os.fdopen(n, "w", buffering=1, closefd=False, errors="backslashreplace")))
        for n in (1, 2)
    )
    faulthandler.enable(2)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    become_group_leader()
    ignore_stop_signals()
    threading.Thread(target=_leave_with_parent, args=(output,), name="parent watch", daemon=True).start()
    if sys.platform == "linux":  # the thread cannot run while a call holds the interpreter's lock
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ignore_stop_signals() -> None:
    """Go on after signals that were meant to end everything: the parent needs its environments to stop.

    They are handled and not ignored, for what is ignored stays so in every program that an environment
    starts, and nothing but SIGKILL would end that. A fork of this process does what is usual.
    """
    own = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, handle)
            if hasattr(signal, "siginterrupt"):  # a simulator's compiled part may not expect an interruption
                signal.siginterrupt(number, False)


def truncate_log(output: Path) -> None:
    """Keep only the end of a file that has become too long, which somebody goes on appending to.

    Both the process and its parent look after it: the one while the other waits, or cannot run.
    """
    with suppress(OSError):  # a full disk; there is nobody to tell
        if output.stat().st_size <= LOG_BYTES:
            return
        with output.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= LOG_BYTES:  # the other process has just done it
                return
            file.seek(size - _KEPT_BYTES)
            end = file.read(_KEPT_BYTES)
            file.truncate(0)
        with output.open("ab") as file:
            file.write(b"(%d bytes left out here)\n" % (size - len(end)) + end)


def _leave_with_parent(output: Path) -> None:
    parent = parent_process()
    while parent is not None and not wait([parent.sentinel], _LOOK_S):
        truncate_log(output)
    if parent is not None:
        kill_group(os.getpid())
        os._exit(1)
