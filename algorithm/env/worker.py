"""A process that runs some copies of an environment and does what it is told. Loads no torch."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from algorithm.env.board import SharedBoard
from algorithm.env.copies import Copies, Failure
from algorithm.env.single import MakeSingle, OwnActions
from algorithm.errors import EnvError, UserError
from algorithm.spec import AgentSpec

_PR_SET_PDEATHSIG = 1  # prctl: the signal to get when the parent dies


@dataclass(frozen=True)
class Hello:
    """The copies are made."""

    name: str
    spec: AgentSpec
    actions: OwnActions
    time_limit: int | None


@dataclass(frozen=True)
class Refusal:
    """They could not be made."""

    error: UserError
    trace: str


def serve(connection: Connection, make: MakeSingle, indices: range, n: int, output: Path) -> None:
    """Run the copies ``indices`` of ``n`` until told to stop or until the parent is gone.

    The first message is Hello or Refusal. Then it answers ``("reset", indices)``, ``("step", ())`` and
    ``("repeat", actions by index)`` with a list of failures, ``("board", name)`` with nothing and
    ``("close", ())`` by leaving. What is printed goes to ``output``.
    """
    _isolate(output)
    try:
        copies = Copies(make, indices)
    except Exception as error:
        connection.send(Refusal(_for_a_person(error), "".join(traceback.format_exception(error))))
        return
    connection.send(Hello(copies.name, copies.spec, copies.actions, copies.time_limit))
    board: SharedBoard | None = None
    while True:
        try:
            command, argument = connection.recv()
        except EOFError:  # the parent is gone
            break
        if command == "close":
            break
        if command == "board":
            board = SharedBoard(copies.spec, n, name=argument)
            continue
        connection.send(_done(copies, cast(SharedBoard, board), command, argument))
    copies.close()
    if board:
        board.close()


def _done(copies: Copies, board: SharedBoard, command: str, argument: Any) -> list[Failure]:  # noqa: ANN401
    if command == "step":
        return copies.step(board)
    return copies.reset(board, argument) if command == "reset" else copies.repeat(board, argument)


def _for_a_person(error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    return EnvError("the environment could not be made", why=f"{type(error).__name__}: {error}")


def _isolate(output: Path) -> None:
    """Own output; no part in the terminal's signals; never outlive the parent."""
    with output.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    faulthandler.enable(2)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    # A signal for the whole group (Ctrl-C) is the parent's affair: it still needs its environments to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, name="parent watch", daemon=True).start()
    if sys.platform == "linux":  # the thread cannot run while a call holds the interpreter's lock
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
