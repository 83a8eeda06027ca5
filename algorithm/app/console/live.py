"""Console of a terminal: a panel that is redrawn in place, and scrolling text above it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TextIO

from rich.console import Console as Terminal
from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from algorithm.core.console import Console, Evaluation, Progress, Sections
from algorithm.core.wording import Rows, clock_time, counted, plus_minus, short

REDRAW_INTERVAL_S = 0.25
MAX_WIDTH = 100
_ECHO = len("^C")  # a terminal writes it behind the panel; without room the line would wrap
_NARROW = 80
_LABEL_WIDTH = 13
_LEVELS = "▁▂▃▄▅▆▇█"


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
        self._live: Live | None = None

    @override
    def start(self, sections: Sections) -> None:
        if sections and sections[0][1]:
            self._title = sections[0][1][0][1]  # the name of the run
        table = _grid("bold cyan", "dim")
        for title, rows in sections:
            for index, (name, value) in enumerate(rows):
                table.add_row(Text("" if index else title), Text(name), Text(value))
        self._terminal.print(table)
        self._terminal.print()

    @override
    def due(self) -> bool:
        return self._clock() >= self._next

    @override
    def progress(self, progress: Progress) -> None:
        if not self.due():
            return
        self._next = self._clock() + REDRAW_INTERVAL_S
        if self._live is None:
            self._live = Live(console=self._terminal, auto_refresh=False)
            self._live.start()
        self._live.update(self._panel(progress), refresh=True)

    @override
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        self._evaluations.setdefault(evaluation.step, []).append(evaluation.mean)
        self._next = -math.inf  # the next progress shows it

    @override
    def message(self, text: str) -> None:
        self._terminal.print(Text(text), soft_wrap=True)

    @override
    def warn(self, text: str) -> None:
        self._terminal.print(Text.assemble(("warning  ", "bold yellow"), text))

    @override
    def finish(self, summary: Rows, commands: Rows, *, doubtful: bool = False) -> None:
        self.close()
        table = _grid("dim")
        for name, value in summary:
            table.add_row(Text(name), Text(value))
        self._terminal.print(self._frame(table, "result", "yellow" if doubtful else "green"))
        width = max((len(purpose) for purpose, _ in commands), default=0)
        for purpose, command in commands:
            line = Text.assemble((f"  {purpose:<{width}}  ", "dim"), command)
            self._terminal.print(line, soft_wrap=True)

    @override
    def close(self) -> None:
        if self._live is not None:  # the last panel stays on the screen
            self._live.stop()
            self._live = None

    @property
    def _width(self) -> int:
        return min(self._terminal.width - _ECHO, MAX_WIDTH)

    @property
    def _room(self) -> int:
        """Width of a line behind its label."""
        return self._width - 4 - _LABEL_WIDTH

    def _frame(self, body: RenderableType, title: str, colour: str) -> Panel:
        """Return a panel with a title and a border in a colour."""
        return Panel(body, title=Text(title), title_align="left", border_style=colour, width=self._width)

    def _panel(self, progress: Progress) -> Panel:
        """Draw the panel, a row for each line."""
        rows = Table.grid(padding=(0, 1))
        rows.add_column(style="dim", width=_LABEL_WIDTH - 1, overflow="fold")
        rows.add_column(width=self._room, overflow="fold")
        for label, line in self._lines(progress):
            rows.add_row(label, line)
        return self._frame(rows, self._title, "cyan")

    def _steps(self, progress: Progress) -> list[tuple[str, RenderableType]]:
        """Return a line with steps and time; if a limit ends the run, also the remaining time and a bar."""
        limit = f" / {progress.max_step:,}" if progress.max_step else ""
        text = f"{progress.step:,}{limit} steps  {clock_time(progress.seconds)}"
        if progress.fraction is None:
            return [("progress", Text(text))]
        if progress.eta_s is not None and math.isfinite(progress.eta_s):
            text += f"  {clock_time(progress.eta_s)} left"
        bar = ProgressBar(1.0, progress.fraction, complete_style="cyan", finished_style="green")
        return [("progress", Text(text)), (f"{progress.fraction:.0%}", bar)]

    def _lines(self, progress: Progress) -> list[tuple[str, RenderableType]]:
        """Return label and content of each line of the panel."""
        rates = self._fields(
            ("", progress.env_steps_per_s, " steps/s"),
            ("", progress.updates_per_s, " updates/s"),
            ("", progress.updates, " updates"),
            ("", progress.episodes, " episodes"),
        )
        lessons = "  ".join(f"{name} {lesson}" for name, lesson in progress.lessons.items())
        lines = [
            *self._steps(progress),
            ("rates", rates),
            ("return", self._returns(progress)),
            ("eval", self._evaluation(progress)),
            *([("lesson", Text(lessons))] if lessons else []),
            *self._readouts(progress),
            *((name, Text(text)) for name, text in progress.rows),
        ]
        if progress.env_restarts:
            restarts = counted(progress.env_restarts, "environment restart")
            lines.append(("faults", Text(restarts, style="yellow")))
        return lines

    def _readouts(self, progress: Progress) -> list[tuple[str, Text]]:
        """Return the lines that have a value; before the first summary, the first line without values."""
        metrics, known = {**progress.metrics, **progress.fresh}, progress.readouts
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
            shown = f"{value:,}" if isinstance(value, int) else _number(value)
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
        text = Text.assemble((short(mean), "bold"), (f" mean of the last {len(progress.returns)}  ", "dim"))
        return text.append(_spark(progress.returns), style="blue")

    def _evaluation(self, progress: Progress) -> Text:
        """Return the last and the best evaluation, with a small curve."""
        last, best = progress.last_eval, progress.best_eval
        if last is None:
            return Text("none yet", style="dim")
        text = Text.assemble((plus_minus(last.mean, last.ci95), "bold"), (f" at {last.step:,}  ", "dim"))
        if best is not None:
            mark = "best" if best.step == last.step else f"{short(best.mean)} at {best.step:,}"
            text.append(f"★ {mark}  ", style="yellow")
        return text.append(_spark([*map(fmean, self._evaluations.values())][-20:]), style="green")


def _number(value: float | None) -> str:
    """Format a number for reading; a dash for None and NaN."""
    return "–" if value is None or math.isnan(value) else short(value)


def _spark(values: Sequence[float]) -> str:
    """Return one character for each finite value, from the lowest to the highest level."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] for value in finite)


def _grid(*styles: str) -> Table:
    """Return a table of narrow columns in these styles, and a last one that is folded."""
    table = Table.grid(padding=(0, 2))
    for style in styles:
        table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    return table
