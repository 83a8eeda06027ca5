"""Output of ``--check``: coloured in a terminal, lines in a file, warnings and errors alone if quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TextIO

from rich.console import Console as Terminal
from rich.panel import Panel
from rich.status import Status
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from algorithm.app.console.live import print_commands
from algorithm.core.errors import visible
from algorithm.env.checks.finding import CheckResult, Finding, Level

_TITLE, _WORD = 13, 7  # widths
_MAX_WIDTH = 100
_STYLES = {Level.OK: "green", Level.NOTE: "blue", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


@dataclass(frozen=True, kw_only=True)
class CheckVerdict:
    """Result of a check. dry_run, train: the commands that may come next."""

    errors: int
    warnings: int
    notes: int
    seconds: float
    dry_run: str
    train: str

    @property
    def level(self) -> Level:
        """The worst level."""
        return Level.ERROR if self.errors else Level.WARNING if self.warnings else Level.OK

    @property
    def commands(self) -> list[tuple[str, str]]:
        """(purpose, command) of what may come next; none if there is an error."""
        return [] if self.errors else [("what a training costs", self.dry_run), ("train", self.train)]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """(name, text) for the last panel."""
        counts = ((self.errors, "error"), (self.warnings, "warning"), (self.notes, "note"))
        found = ", ".join(f"{n or 'no'} {word}{'s' * (n != 1)}" for n, word in counts)
        rows = [("found", f"{found}, in {self.seconds:.1f} s")]
        return [*rows, ("next", "fix the errors and check again")] if self.errors else rows


class PlainPrinter:
    """Printer of plain lines, for pipes and files.

    least: findings below this level are left out
    """

    def __init__(self, stream: TextIO, *, least: Level = Level.OK) -> None:
        self._stream, self._least = stream, least
        self._group = ""

    def __enter__(self) -> PlainPrinter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def begin(self, title: str) -> None:
        """Print the title."""
        if self._least is Level.OK:
            self._print(f"check of {title}")

    def at_work(self, group: str, title: str) -> None:
        """Do nothing: the next line holds the result."""

    def show(self, checked: CheckResult) -> None:
        """Print a line for each finding, and one for each of where, why and what to do."""
        for title, finding in _lines(checked, self._least):
            if checked.group != self._group:
                self._group = checked.group
                self._print(self._group)
            self._print(f"  {finding.level.word:<{_WORD}}  {title:<{_TITLE}}  {finding.what}")
            for label, text in _details(finding):
                for i, line in enumerate(text.splitlines()):
                    self._print(" " * (_TITLE + _WORD + 6) + f"{label if i == 0 else '':<6} {line}")

    def end(self, verdict: CheckVerdict) -> None:
        """Print the result and the next commands."""
        for name, text in verdict.rows:
            self._print(f"{name:<6} {text}")
        for purpose, command in verdict.commands:
            self._print(f"next   {command}    # {purpose}")

    def _print(self, line: str) -> None:
        print(line.rstrip(), file=self._stream, flush=True)


class LivePrinter(PlainPrinter):
    """Printer for a terminal: in colours, folded to its width, with a progress line."""

    def __init__(self, stream: TextIO, *, width: int | None = None) -> None:
        super().__init__(stream)
        self._terminal = Terminal(file=stream, width=width, highlight=False)
        self._status: Status | None = None

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the progress line."""
        if self._status:
            self._status.stop()
            self._status = None

    @override
    def begin(self, title: str) -> None:
        """Print the title and start the progress line."""
        self._terminal.print(Text.assemble(("check  ", "bold cyan"), title))
        self._status = self._terminal.status("starting", spinner="line")
        self._status.start()

    @override
    def at_work(self, group: str, title: str) -> None:
        """Update the progress line."""
        if self._status:
            self._status.update(Text(f"{group}: {title}", style="dim"))

    @override
    def show(self, checked: CheckResult) -> None:
        """Print a row for each finding, and one for each of where, why and what to do."""
        if checked.group != self._group:
            self._group = checked.group
            self._terminal.print(Text(f"\n{self._group}", style="bold cyan"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=2 + _WORD, no_wrap=True)
        table.add_column(width=_TITLE, no_wrap=True, style="dim")
        table.add_column(width=self._width - (2 + _WORD) - _TITLE - 3 * 2, overflow="fold")
        for title, finding in _lines(checked, Level.OK):
            word = Text(f"  {finding.level.word}", style=_STYLES[finding.level])
            table.add_row(word, Text(title), Text(finding.what))
            for label, text in _details(finding):
                table.add_row("", "", _labelled(label, text))
        self._terminal.print(table)

    @override
    def end(self, verdict: CheckVerdict) -> None:
        """Print the result in a frame of the worst level's colour, and the next commands."""
        self.__exit__(None, None, None)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in verdict.rows:
            table.add_row(name, Text(text))
        self._terminal.print()
        style = _STYLES[verdict.level].removeprefix("bold ")
        self._terminal.print(
            Panel(table, title="result", title_align="left", border_style=style, width=self._width)
        )
        print_commands(self._terminal, verdict.commands)

    @property
    def _width(self) -> int:
        return min(self._terminal.width, _MAX_WIDTH)


def open_printer(*, quiet: bool = False, stream: TextIO | None = None) -> PlainPrinter:
    """Return the printer for ``stream``, standard output by default.

    quiet: print only warnings, errors and the verdict
    """
    stream = stream or sys.stdout
    if quiet:
        return PlainPrinter(stream, least=Level.WARNING)
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return LivePrinter(stream)
    return PlainPrinter(stream)


def _lines(checked: CheckResult, least: Level) -> Iterator[tuple[str, Finding]]:
    """Yield the findings, with the check's title before the first one."""
    shown = [finding for finding in checked.findings if finding.level >= least]
    for i, finding in enumerate(shown):
        yield ("" if i else checked.title), replace(finding, what=visible(finding.what))


def _details(finding: Finding) -> list[tuple[str, str]]:
    parts = (("where", finding.where), ("why", finding.why), ("to do", finding.fix), ("trace", finding.trace))
    return [(label, visible(text)) for label, text in parts if text]


def _labelled(label: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=5, style="dim", no_wrap=True)
    table.add_column(overflow="fold", style="dim" if label == "trace" else "")
    table.add_row(label, Text(text))
    return table
