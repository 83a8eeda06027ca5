"""Console of a terminal: a panel that is redrawn in place, and scrolling text above it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import fmean
from typing import TextIO

from rich.console import Console as Terminal
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from algorithm.app.console.base import Warnings
from algorithm.app.console.glyphs import number, spark
from algorithm.core.console import Console, Evaluation, Progress, Sections
from algorithm.core.wording import Rows, clock_time, counted

REDRAW_INTERVAL_S = 0.25
MAX_WIDTH = 100
_SHORTEST_BAR = 8  # with the room around it
_ECHO = len("^C")  # a terminal writes it behind the panel; without room the line would wrap
_NARROW = 80
_LABEL_WIDTH = 13


class LiveConsole(Console):
    """A panel of progress, rates, returns and losses; redrawn up to four times a second, without a thread."""

    def __init__(
        self, output: TextIO, *, width: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._terminal = Terminal(file=output, width=width, highlight=False, soft_wrap=False)
        self._clock = clock
        self._next = -math.inf
        self._title = ""
        self._evaluations: dict[int, list[float]] = {}  # step -> mean returns of the behaviours
        self._warnings = Warnings()
        self._live: Live | None = None

    @override
    def start(self, sections: Sections) -> None:
        if sections and sections[0][1]:
            self._title = sections[0][1][0][1]  # the name of the run
        self._warnings.scroll()
        self._print(self._sections(sections))
        self._print(Text())

    @override
    def due(self) -> bool:
        return self._clock() >= self._next

    @override
    def progress(self, progress: Progress) -> None:
        if not self.due():
            return
        self._next = self._clock() + REDRAW_INTERVAL_S
        self._warnings.scroll()
        self._redraw(self._panel(progress))

    @override
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        self._evaluations.setdefault(evaluation.step, []).append(evaluation.mean)
        self._next = -math.inf  # the next progress shows it

    @override
    def message(self, text: str) -> None:
        self._warnings.scroll()
        self._print(Text(text))

    @override
    def command(self, purpose: str, command: str) -> None:
        self._warnings.scroll()
        self._print_commands([(purpose, command)])

    @override
    def warn(self, text: str) -> None:
        self._warnings.add(text)
        self._print_warning(text)

    @override
    def finish(self, summary: Rows, commands: Rows, *, doubtful: bool = False) -> None:
        self.close()
        table = _grid("dim")
        for name, value in summary:
            table.add_row(Text(name), Text(value))
        self._print(self._frame(table, "result", "yellow" if doubtful else "green"))
        self._print_commands(commands)

    @override
    def close(self) -> None:
        self._leave_panel()
        for text in self._warnings.drain():
            self._print_warning(text)

    def _print(self, what: RenderableType, *, soft_wrap: bool = False) -> None:
        """Print above the panel."""
        self._terminal.print(what, soft_wrap=soft_wrap)

    def _redraw(self, panel: Panel) -> None:
        """Draw the panel in place of the former one."""
        if self._live is None:
            self._live = Live(console=self._terminal, auto_refresh=False)
            self._live.start()
        self._live.update(panel, refresh=True)

    def _leave_panel(self) -> None:
        """Keep the last panel on the screen, and continue below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def _width(self) -> int:
        return min(self._terminal.width - _ECHO, MAX_WIDTH)

    @property
    def _room(self) -> int:
        """Width of a line behind its label."""
        return self._width - 4 - _LABEL_WIDTH

    def _sections(self, sections: Sections) -> RenderableType:
        """Return one table; in a narrow terminal one for each section, below its title."""
        if self._terminal.width >= _NARROW:
            table = _grid("bold cyan", "dim")
            for title, rows in sections:
                for index, (name, value) in enumerate(rows):
                    table.add_row(Text("" if index else title), Text(name), Text(value))
            return table
        tables = list[RenderableType]()
        for title, rows in sections:
            table = _grid("dim")
            for name, value in rows:
                table.add_row(Text(f"  {name}"), Text(value))
            tables += [Text(title, style="bold cyan"), table]
        return Group(*tables)

    def _print_warning(self, text: str) -> None:
        self._print(Text.assemble(("warning  ", "bold yellow"), text))

    def _frame(self, body: RenderableType, title: str, colour: str) -> Panel:
        """Return a panel with a title and a border in a colour."""
        return Panel(body, title=Text(title), title_align="left", border_style=colour, width=self._width)

    def _panel(self, progress: Progress) -> Panel:
        """Draw the panel: a bar, then a row for each line."""
        rows = Table.grid(padding=(0, 1))
        rows.add_column(style="dim", width=_LABEL_WIDTH - 1, overflow="fold")
        rows.add_column(width=self._room, overflow="fold")
        for label, line in self._lines(progress):
            rows.add_row(label, line)
        return self._frame(Group(self._bar(progress), rows), self._title, "cyan")

    def _bar(self, progress: Progress) -> RenderableType:
        """Draw steps, share done and remaining time; a bar only if a limit ends the run."""
        left = f"{progress.step:,}" + (f" / {progress.max_step:,}" if progress.max_step else "") + " steps"
        if progress.fraction is None:
            return Text(f"{left}   {clock_time(progress.seconds)}")
        right = f"{progress.fraction:4.0%}   {clock_time(progress.seconds)}"
        if progress.eta_s is not None and math.isfinite(progress.eta_s):
            right += f"   {clock_time(progress.eta_s)} left"
        line = Table.grid(padding=(0, 2), expand=True)
        bar = ProgressBar(1.0, progress.fraction, complete_style="cyan", finished_style="green")
        line.width = self._room + _LABEL_WIDTH
        fits = len(left) + len(right) + _SHORTEST_BAR <= line.width
        cells = (left, bar, right) if fits else (bar, right)
        for cell in cells:
            line.add_column(ratio=1 if cell is bar else None, no_wrap=True)
        line.add_row(*cells)
        return line if fits else Group(Text(left), line)

    def _lines(self, progress: Progress) -> list[tuple[str, Text]]:
        """Return label and content of each line of the panel."""
        rates = self._fields(
            ("", progress.env_steps_per_s, " steps/s"),
            ("", progress.updates_per_s, " updates/s"),
            ("", progress.updates, " updates"),
            ("", progress.episodes, " episodes"),
        )
        faults = []
        if progress.env_restarts:
            restarts = counted(progress.env_restarts, "environment restart")
            faults = [("faults", Text(restarts, style="yellow"))]
        return [
            ("rates", rates),
            ("return", self._returns(progress)),
            ("eval", self._evaluation(progress)),
            *self._lessons(progress),
            *self._readouts(progress),
            *((name, Text(text)) for name, text in progress.rows),
            *faults,
        ]

    def _lessons(self, progress: Progress) -> list[tuple[str, Text]]:
        """Return a line on the lessons; none without a curriculum."""
        line = Text()
        for name, lesson in progress.lessons.items():
            line.append_text(Text.assemble((f"{name} ", "dim"), (lesson, "bold"), "  "))
        line.rstrip()
        return [("lesson", line)] if progress.lessons else []

    def _readouts(self, progress: Progress) -> list[tuple[str, Text]]:
        """Return the lines that have a value; before the first summary, the first line without values."""
        metrics, known = progress.metrics, progress.readouts
        shown = [readout for readout in known if any(name in metrics for name in readout.fields)] or known[:1]
        return [
            (
                readout.title,
                self._fields(*((f"{text} ", metrics.get(name), "") for name, text in readout.fields.items())),
            )
            for readout in shown
        ]

    def _fields(self, *fields: tuple[str, float | None, str]) -> Text:
        """Format (before, value, after) in columns of fixed width, so that changing numbers stay in place."""
        columns = 4 if self._terminal.width >= _NARROW else 2
        lines = Text()
        for index, (before, value, after) in enumerate(fields):
            shown = f"{value:,}" if isinstance(value, int) else number(value, "–")
            text = Text.assemble((before, "dim"), (shown, "bold"), (after, "dim"))
            text.pad_right(max(self._room // columns - len(text), 2))
            if index and index % columns == 0:
                lines.rstrip()
                lines.append("\n")
            lines.append_text(text)
        lines.rstrip()
        return lines

    def _returns(self, progress: Progress) -> Text:
        """Return the mean of the last training returns, with a small curve."""
        mean = progress.return_mean
        if mean is None:
            return Text("no episode has ended yet", style="dim")
        text = Text.assemble((number(mean), "bold"), (f" mean of the last {len(progress.returns)}", "dim"))
        return self._with_spark(text, list(progress.returns), "blue")

    def _evaluation(self, progress: Progress) -> Text:
        """Return the last and the best evaluation, with a small curve."""
        last, best = progress.last_eval, progress.best_eval
        if last is None:
            return Text("none yet", style="dim")
        text = Text.assemble((number(last.mean), "bold"))
        if math.isfinite(last.ci95):
            text.append(f" ± {number(last.ci95)}", style="dim")
        text.append(f" at {last.step:,}", style="dim")
        if best is not None and best.step == last.step:
            text.append(" ★ best", style="bold yellow")
        elif best is not None:
            mark = f"★ {number(best.mean)} at {best.step:,}"
            fits = len(text) + 1 + len(mark) <= self._room
            text.append(f"{' ' if fits else chr(10)}{mark}", style="yellow")
        return self._with_spark(text, [*map(fmean, self._evaluations.values())], "green")

    def _with_spark(self, text: Text, values: list[float], style: str) -> Text:
        """Append a small curve of the last values, flush right."""
        room = self._room - len(text.plain.rpartition("\n")[2]) - 2
        curve = spark(values[-min(room, 20) :]) if room > 0 else ""
        text.pad_right(max(room + 2 - len(curve), 0))
        return text.append(curve, style=style)

    def _print_commands(self, commands: Rows) -> None:
        """Print (purpose, command), each command on one line, so that it can be copied.

        Where they do not fit side by side, all purposes stand above their commands, as comments of a shell.
        """
        width = max((len(purpose) for purpose, _ in commands), default=0)
        beside = all(2 + width + 2 + len(command) <= self._terminal.width for _, command in commands)
        for purpose, command in commands:
            head = f"  {purpose:<{width}}  " if beside else f"# {purpose}\n"
            self._print(Text.assemble((head, "dim"), command), soft_wrap=True)


def _grid(*styles: str) -> Table:
    """Return a table of narrow columns in these styles, and a last one that is folded."""
    table = Table.grid(padding=(0, 2))
    for style in styles:
        table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    return table
