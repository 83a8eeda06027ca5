"""The process that runs some sub-environments and executes its parent's commands. Loads no torch."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from algorithm.core.errors import EnvError, UserError, described
from algorithm.core.system.output import SafeOutput
from algorithm.core.system.processes import (
    STOP_SIGNALS,
    end_with_parent,
    handle_signal,
    print_stacks_on_request,
)
from algorithm.env.pool.env_group import EnvGroup, GroupFailure, MakeEnv
from algorithm.env.pool.process_exit import exit_process, exits_as_errors
from algorithm.env.pool.step_buffers import SharedStepBuffers

LOG_BYTES = 16 * 2**20
"""Size of a worker's output file beyond which only its end is kept."""

_KEPT_BYTES = 2**20


@dataclass(frozen=True)
class WorkerRefusal:
    """The message that the sub-environments could not be built."""

    error: UserError
    trace: str


def run_worker(connection: Connection, make: MakeEnv, indices: range, n: int, output: Path) -> None:
    """Run the sub-environments ``indices`` of ``n`` until a command or the parent's end stops it.

    The first message is a GroupInfo or a WorkerRefusal. Commands: ``("reset", indices)``, ``("step", ())``
    and ``("repeat", actions by index)`` are answered with a list of failures, ``("buffers", name)`` with
    nothing; ``("close", ())`` ends the process. Output goes to the file ``output``.
    """
    isolate(output)
    try:
        with exits_as_errors():
            group = EnvGroup(make, indices)
    except Exception as error:
        unmade = EnvError("the environment could not be made", why=described(error))
        refused = error if isinstance(error, UserError) else unmade
        connection.send(WorkerRefusal(refused, "".join(traceback.format_exception(error))))
        return
    connection.send(group.info)
    buffers: SharedStepBuffers | None = None
    while True:
        try:
            command, argument = connection.recv()
        except EOFError:  # the parent is gone
            break
        if command == "close":
            break
        if command == "buffers":
            info = group.info
            buffers = SharedStepBuffers(
                info.spec, n, name=argument, parameters=info.parameters, infos=len(info.infos)
            )
            continue
        connection.send(_execute(group, cast(SharedStepBuffers, buffers), command, argument))
    try:
        group.close()
    except EnvError:
        traceback.print_exc()
    if buffers:
        buffers.close()
    exit_process(0)


def _execute(group: EnvGroup, buffers: SharedStepBuffers, command: str, argument: Any) -> list[GroupFailure]:  # noqa: ANN401
    """Execute a command of the parent; return its failures."""
    if command == "step":
        return group.step(buffers)
    return group.reset(buffers, argument) if command == "reset" else group.repeat(buffers, argument)


def isolate(output: Path) -> None:
    """Redirect output, ignore the parent's signals, and end with the parent."""
    with output.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    # On a full disk output is lost without an error in the environment.
    sys.stdout, sys.stderr = (
        cast(TextIO, SafeOutput(os.fdopen(n, "w", buffering=1, closefd=False, errors="backslashreplace")))
        for n in (1, 2)
    )
    faulthandler.enable(2)
    print_stacks_on_request()
    end_with_parent(lambda: truncate_log(output))
    ignore_stop_signals()


def ignore_stop_signals() -> None:
    """Continue after each of STOP_SIGNALS: the parent needs its environments to stop in order.

    The signals are handled, not ignored: programs that an environment starts would inherit an ignored signal,
    and then only SIGKILL would end them. A fork of this process gets the default action.
    """
    pid = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in STOP_SIGNALS:
        handle_signal(number, handle)


def truncate_log(output: Path) -> None:
    """Keep only the end of a file that has become too long, while others append to it.

    Both the worker and its parent call this: either may be blocked.
    """
    with suppress(OSError):  # a full disk
        if output.stat().st_size <= LOG_BYTES:
            return
        with output.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= LOG_BYTES:  # the other process was faster
                return
            file.seek(size - _KEPT_BYTES)
            end = file.read(_KEPT_BYTES)
            file.truncate(0)
        with output.open("ab") as file:
            file.write(b"(%d bytes left out here)\n" % (size - len(end)) + end)
