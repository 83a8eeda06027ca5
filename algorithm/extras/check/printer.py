"""Output of ``--check``: coloured and wrapped in a terminal, plain lines elsewhere."""

from __future__ import annotations

from textwrap import wrap
from typing import TextIO

from rich.console import Console as Terminal
from rich.text import Text

from algorithm.core.errors import visible
from algorithm.extras.check.finding import CheckResult, Finding, Level

_MAX_WIDTH = 100
_INDENT = 26  # of a finding's text
_STYLES = {Level.OK: "green", Level.NOTE: "blue", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


class CheckPrinter:
    """Printer of findings as they come.

    quiet:  print warnings and errors only
    output: standard output by default
    width:  in columns; that of the terminal by default
    """

    def __init__(
        self, *, quiet: bool = False, output: TextIO | None = None, width: int | None = None
    ) -> None:
        self._terminal = Terminal(file=output, width=width, highlight=False, force_jupyter=False)
        self._least = Level.WARNING if quiet else Level.OK
        self._group = ""

    def begin(self, task: str) -> None:
        """Print the name of the task that is checked, unless quiet."""
        if self._least is Level.OK:
            self._print(Text("check of "), task)

    def show(self, checked: CheckResult) -> None:
        """Print the findings of a check with where, why and what to do."""
        title = checked.title
        for finding in checked.findings:
            if finding.level >= self._least:
                if checked.group != self._group:
                    self._print(Text(), checked.group, "bold cyan")
                self._group = checked.group
                self._print_finding(title, finding)
                title = ""

    def _print_finding(self, title: str, finding: Finding) -> None:
        word = (f"  {finding.level.word:<7}  ", _STYLES[finding.level])
        self._print(Text.assemble(word, (f"{title:<13}  ", "dim")), finding.what)
        details = (
            ("where", finding.where),
            ("why", finding.why),
            ("to do", finding.fix),
            ("trace", finding.trace),
        )
        for label, text in details:
            if text:
                self._print(Text(f"{'':{_INDENT}}{label:<5}  ", "dim"), text)

    def _print(self, head: Text, text: str, style: str = "") -> None:
        """Print the text after its head, with further lines indented to the first one."""
        lines = visible(text).splitlines()
        if self._terminal.is_terminal:
            room = min(self._terminal.width, _MAX_WIDTH) - len(head)
            lines = [row for line in lines for row in wrap(line, max(room, 10))]
        body = ("\n" + " " * len(head)).join(lines)
        self._terminal.print(head + Text(body, style), soft_wrap=True)
