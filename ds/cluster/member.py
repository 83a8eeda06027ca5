"""Ray actors of a cluster: one for each process, on its node."""

from __future__ import annotations

import faulthandler
import importlib
import io
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import IO, Any

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_json
from algorithm.core.system.files import link_in_memory, rename
from algorithm.core.system.output import make_output_safe
from algorithm.core.system.processes import (
    end_with_parent,
    kill_group,
    send_signal,
    spawn,
    unblock_signals,
)
from algorithm.env.pool.process_exit import exit_process
from algorithm.store.lock import holder_of, lock_files

_OUTPUT = "output.txt"
_LINES, _LINE_LENGTH = 200, 2000
"""Maximum number of lines in a report, the last ones, and of bytes of a line."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Work of one process.

    module:  its ``perform`` carries out ``options``, and returns an exit code.
    secrets: files by name, held in memory where only this user can read them; empty for none.
    aside:   give the run's folder, if there is one, another name first: it has no checkpoint.
    unlock:  remove the run's lock first; its node is gone.
    """

    module: str
    options: Any
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    aside: bool = False
    unlock: bool = False


@dataclass(frozen=True, kw_only=True)
class ProcessReport:
    """State of a node's process, and of its run's folder.

    address:  of the node, as other nodes reach it.
    pid:      of the process; None if this actor has started none.
    code:     the exit code once the process has ended.
    lines:    printed since the report before.
    endpoint: where a learner listens.
    step:     of the run's newest checkpoint, -1 without one.
    locked:   a process on another machine has it, or had when that machine was lost.
    """

    address: str
    pid: int | None = None
    code: int | None = None
    lines: tuple[str, ...] = ()
    endpoint: tuple[str, int] | None = None
    step: int = -1
    locked: bool = False


class ProcessActor:
    """Ray actor with a process, a new one for each order. Its processes end with it.

    folder: the working directory, an absolute path that every node has.
    run:    the run's folder below it if it is a learner.
    typed:  words of the command that the user typed, for messages.
    """

    def __init__(self, folder: str, run: str, typed: Sequence[str]) -> None:
        import ray

        vars(sys.modules["__main__"]).pop("__file__", None)  # Ray's, which a new process would import
        self._address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self._folder = folder
        self._run = Path(folder, run)
        self._typed = typed
        self._private = Path()
        self._output: IO[bytes] = io.BytesIO()  # read by the lines that are reported
        self._process: SpawnProcess | None = None
        self._end: dict[str, Any] = {}  # fields of reports after the process has ended

    def start(self, order: Order) -> int:
        """Start a process in place of any former one; return its number. Raises OSError."""
        self._end_former()
        os.chdir(self._folder)
        if order.aside and self._run.is_dir():
            rename(self._run, _free(self._run))
        for file in lock_files(self._run / "run.lock") if order.unlock else ():
            file.unlink(missing_ok=True)
        self._private = Path(tempfile.mkdtemp(prefix="sac-member-"))
        self._output = (self._private / _OUTPUT).open("w+b")
        self._end = {}
        self._process = spawn(_perform, (order, self._typed, self._private), name="member")
        return int(self._process.pid or 0)

    def report(self) -> ProcessReport:
        """Return the state of the process; its end in each report up to the next start: one may be lost."""
        holder = holder_of(self._run / "run.lock")
        report = ProcessReport(
            address=self._address,
            step=_newest(self._run),
            locked=holder is not None and holder.is_elsewhere,
        )
        if self._process is None:
            return replace(report, **self._end)
        pid = self._process.pid
        endpoint = _endpoint(self._run / "endpoint.json", pid)
        code = self._process.exitcode  # before its last lines
        report = replace(report, pid=pid, code=code, lines=self._new_lines(), endpoint=endpoint)
        if code is not None:
            self._end = {"pid": pid, "code": code, "lines": report.lines}
            self._end_former()
        return report

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        if self._process is not None and self._process.is_alive():
            send_signal(int(self._process.pid or 0), number)

    def _end_former(self) -> None:
        """Kill what is left of a former process, and remove its files."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        kill_group(int(self._process.pid or 0))
        self._output.close()
        shutil.rmtree(self._private, ignore_errors=True)
        self._process = None

    def _new_lines(self) -> tuple[str, ...]:
        """Return the lines that were printed since the last time."""
        lines = self._output.read().splitlines()[-_LINES:]
        return tuple(line[:_LINE_LENGTH].decode(errors="replace") for line in lines)


def _perform(order: Order, typed: Sequence[str], private: Path) -> None:
    """Carry out an order in a new process; end it with the exit code.

    private: folder for its output and secrets
    """
    end_with_parent()
    _become_program(private / _OUTPUT)
    sys.argv = [*typed]
    options = order.options
    for name, data in order.secrets.items():
        link_in_memory(private / name, data)
    if order.secrets:
        overrides = (*options.train.overrides, f"net_config.secrets={private}")
        options = replace(options, train=replace(options.train, overrides=overrides))
    exit_process(importlib.import_module(order.module).perform(options))


def _become_program(output: Path) -> None:
    """Make this process like one that was started for one command, and prints into a file.

    Ray blocks SIGINT in its workers, and its variables, a token among them, are no affair of simulators.
    """
    with output.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, "utf-8", closefd=False) for stream in (1, 2))
    make_output_safe()
    faulthandler.enable()
    for name in list(os.environ):
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT":
            del os.environ[name]
    unblock_signals()


def _newest(run: Path) -> int:
    """Return the step of the newest checkpoint, -1 without one. Its own module would import torch."""
    names = (manifest.parent.name for manifest in run.glob("checkpoints/step_*/manifest.json"))
    return max((int(name.split("_")[1]) for name in names if name.split("_")[1].isdigit()), default=-1)


def _endpoint(file: Path, pid: int | None) -> tuple[str, int] | None:
    """Return the address that a process listens at; None before its file exists."""
    try:
        value = read_json(file)
        return (str(value["host"]), int(value["port"])) if value["pid"] == pid else None
    except (StorageError, ValueError, TypeError, KeyError):
        return None


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}_crashed_{count}") for count in itertools.count(1))
    return next(name for name in names if not name.exists())
