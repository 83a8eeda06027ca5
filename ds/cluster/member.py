"""The Ray actor whose process is a learner or an actor, and the board where it meets the command."""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_json
from algorithm.core.system.files import link_in_memory, rename
from algorithm.core.system.output import make_output_safe
from algorithm.core.system.processes import before_exit, send_signal, unblock_signals
from algorithm.store.lock import holder_of, lock_files

REPORT_S = 0.5
_LINES, _LINE_LENGTH = 200, 2000
"""Maximum number of lines in a report, the last ones, and of bytes of a line."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """Work of one life of a process.

    life:    its mark; others do not follow it.
    module:  its ``perform`` carries out ``options``, and returns an exit code.
    secrets: files by name, held in memory where only this user can read them; empty for none.
    aside:   give a run's folder without a checkpoint another name first, since its name is needed.
    unlock:  remove the run's lock first; its node is gone.
    signal:  that the process is sent, once; 0 for none.
    """

    life: str
    module: str
    options: Any
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    aside: bool = False
    unlock: bool = False
    signal: int = 0


@dataclass(frozen=True, kw_only=True)
class ProcessReport:
    """State of a process as it sees itself, and of its run's folder.

    life:     differs for each start by Ray.
    address:  of its node, as other nodes reach it.
    code:     the exit code once it has ended.
    lines:    printed since the report before; at the beginning of a life the last ones of another that was
        killed here.
    endpoint: where a learner listens.
    exists:   the run's folder does.
    step:     of the run's newest checkpoint, -1 without one.
    locked:   a process on another machine has it, or had when that machine was lost.
    """

    life: str
    address: str
    pid: int = 0
    code: int | None = None
    lines: tuple[str, ...] = ()
    endpoint: tuple[str, int] | None = None
    exists: bool = False
    step: int = -1
    locked: bool = False


class Board:
    """Ray actor beside the command: orders and reports by process, and how many actors there shall be."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._asked: int | None = None
        self._orders: Mapping[str, Order] = {}
        self._reports: list[tuple[str, ProcessReport]] = []

    def scale(self, number: int) -> int:
        """Set the number of actors that there shall be; return the one before."""
        before = self._number if self._asked is None else self._asked
        self._asked = number
        return before

    def report(self, key: str, report: ProcessReport) -> Order | None:
        """Keep a report for the command; return the order of the process."""
        self._reports.append((key, report))
        return self._orders.get(key)

    def exchange(
        self, orders: Mapping[str, Order], number: int
    ) -> tuple[int, list[tuple[str, ProcessReport]]]:
        """Replace all orders; return the number of actors that there shall be, and new reports.

        number: of actors that the command has now, which stays where no other one was set
        """
        self._orders = orders
        self._number, self._asked = number if self._asked is None else self._asked, None
        reports, self._reports = self._reports, []
        return self._number, reports


class ProcessActor:
    """Ray actor in whose process a learner or an actor runs; Ray starts it again whenever it has ended."""

    def live(self, *place: Any) -> None:  # noqa: ANN401 - see Life
        """Carry out one order, and wait to be killed. Raises OSError."""
        Life(*place).live()


class Life:
    """Life of a process, which carries out one order.

    board:   a handle of Ray.
    key:     its name there, and of its folder among a node's temporary files; nobody can guess it.
    folder:  the working directory, an absolute path that every node has.
    run:     the run's folder below it if it is a learner.
    typed:   words of the command that the user typed, for messages.
    """

    def __init__(self, board: Any, key: str, folder: str, run: str, typed: Sequence[str]) -> None:  # noqa: ANN401
        import ray

        self._get = ray.get
        self._board, self._key, self._folder, self._typed = board, key, folder, typed
        self._run = Path(folder, run)
        self._private = Path(tempfile.gettempdir(), key)
        self._output = self._private / "output.txt"
        self._read = 0  # bytes of it
        self._report = ProcessReport(
            life=secrets.token_hex(8),
            address=str(ray.util.get_node_ip_address()),  # type: ignore[no-untyped-call]
            lines=self._new_lines(),
        )
        self._lock = threading.Lock()

    def live(self) -> None:
        """Await an order, carry it out, report its end, and wait to be killed. Raises OSError."""
        while (order := self.report()) is None:
            time.sleep(REPORT_S)
        self.carry_out(order)
        threading.Event().wait()

    def report(self, **news: Any) -> Order | None:  # noqa: ANN401
        """Report to the command, with ``news``; return the order for this life, if there is one."""
        with self._lock:
            holder = holder_of(self._run / "run.lock")
            news |= {"exists": self._run.is_dir(), "step": _newest(self._run)}
            news |= {"locked": holder is not None and holder.is_elsewhere}
            if self._report.pid:
                news |= {"lines": self._new_lines(), "endpoint": _endpoint(self._run / "endpoint.json")}
            self._report = replace(self._report, **news)
            if self._report.code is not None:  # the command kills this process when it hears of it
                shutil.rmtree(self._private, ignore_errors=True)
            order: Order | None = self._get(self._board.report.remote(self._key, self._report))
            self._report = replace(self._report, lines=())
        return order if order is not None and order.life == self._report.life else None

    def carry_out(self, order: Order) -> None:
        """Carry out an order to its end. Raises OSError, such as for a folder that is not there."""
        os.chdir(self._folder)
        if order.aside and self._run.is_dir():
            rename(self._run, _free(self._run))
        for file in lock_files(self._run / "run.lock") if order.unlock else ():
            file.unlink(missing_ok=True)
        shutil.rmtree(self._private, ignore_errors=True)  # of a life that was killed
        self._private.mkdir(mode=0o700)
        for name, data in order.secrets.items():
            link_in_memory(self._private / name, data)
        _become_program(self._output)
        self._read = 0
        self.report(pid=os.getpid())
        threading.Thread(target=self._obey, daemon=True).start()
        before_exit(lambda code: self.report(code=code))  # of an end from another thread, such as for a hang
        sys.argv, options = [*self._typed], order.options
        if order.secrets:
            override = f"net_config.secrets={self._private}"
            overrides = (*options.train.overrides, override)
            options = replace(options, train=replace(options.train, overrides=overrides))
        try:
            code = importlib.import_module(order.module).perform(options)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        self.report(code=code)

    def _obey(self) -> None:
        """Report twice a second, and send this process the signal that the command orders."""
        sent = 0
        while True:
            time.sleep(REPORT_S)
            order = self.report()
            if order is not None and order.signal != sent:
                sent = order.signal
                send_signal(os.getpid(), sent)

    def _new_lines(self) -> tuple[str, ...]:
        """Return the lines that were printed since the last time."""
        try:
            with self._output.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return ()
        self._read += len(data)
        lines = data.splitlines()[-_LINES:]
        return tuple(line[:_LINE_LENGTH].decode(errors="replace") for line in lines)


def _become_program(output: Path) -> None:
    """Make this worker of Ray like a process that was started for one command, and prints into a file.

    Ray blocks SIGINT in its workers, and its variables, a token among them, are no affair of simulators. A
    process that is spawned imports the main script, which is Ray's here.
    """
    with output.open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, "utf-8", closefd=False) for stream in (1, 2))
    make_output_safe()
    faulthandler.enable()
    for name in list(os.environ):
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT":
            del os.environ[name]
    vars(sys.modules["__main__"]).pop("__file__", None)
    unblock_signals()


def _newest(run: Path) -> int:
    """Return the step of the newest checkpoint, -1 without one."""
    names = (manifest.parent.name for manifest in run.glob("checkpoints/step_*/manifest.json"))
    return max((int(name.split("_")[1]) for name in names if name.split("_")[1].isdigit()), default=-1)


def _endpoint(file: Path) -> tuple[str, int] | None:
    """Return the address this process listens at; None before its file exists."""
    try:
        value = read_json(file)
        return (str(value["host"]), int(value["port"])) if value["pid"] == os.getpid() else None
    except (StorageError, ValueError, TypeError, KeyError):
        return None


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}_crashed_{count}") for count in itertools.count(1))
    return next(name for name in names if not name.exists())
