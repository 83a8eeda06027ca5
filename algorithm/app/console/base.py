"""Console of plain lines, and several consoles as one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from typing_extensions import override

from algorithm.core.console import Console, Evaluation, Progress, Sections
from algorithm.core.errors import visible
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import Rows

LINE_INTERVAL_S = 10.0


class Warnings:
    """Warnings to repeat at the end; equal ones are counted."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._scrolled = False  # something was shown since

    def add(self, text: str) -> None:
        """Store a warning."""
        self._counts[text] = self._counts.get(text, 0) + 1

    def scroll(self) -> None:
        """Note that other output was shown, so that earlier warnings may be out of sight."""
        self._scrolled = bool(self._counts)

    def drain(self) -> list[str]:
        """Remove all warnings; return them by first appearance, or none if no output has followed them."""
        counts, self._counts = (self._counts if self._scrolled else {}), {}
        return [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]


class LineConsole(Console):
    """One ``key=value`` line every ten seconds, for pipes and files; metrics once, when they are new.

    emit:  shows a line
    alert: shows a warning
    quiet: show only warnings and the result
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        alert: Callable[[str], None],
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._alert = alert
        self._quiet = quiet
        self._clock = clock
        self._next = -math.inf
        self._step = 0  # of the last line
        self._metrics: Mapping[str, float] = {}  # of the last line that had any
        self._warnings = Warnings()

    @override
    def start(self, sections: Sections) -> None:
        for line in _tables(sections):
            self.message(line)

    @override
    def due(self) -> bool:
        return not self._quiet and self._clock() >= self._next

    @override
    def progress(self, progress: Progress) -> None:
        if self.due() and progress.step != self._step:
            self._next = self._clock() + LINE_INTERVAL_S
            self._step = progress.step
            fresh = progress.metrics if progress.metrics != self._metrics else {}
            self._metrics = progress.metrics
            self.message(progress_line(replace(progress, metrics=fresh)))

    @override
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        self.message(evaluation_line(evaluation, best=best))

    @override
    def message(self, text: str) -> None:
        if not self._quiet:
            self._warnings.scroll()
            self._emit(text)

    @override
    def command(self, purpose: str, command: str) -> None:
        self.message(f"{purpose}: {command}")

    @override
    def warn(self, text: str) -> None:
        self._warnings.add(text)
        self._alert(text)

    @override
    def finish(self, summary: Rows, commands: Rows, *, doubtful: bool = False) -> None:
        self.close()
        for line in _tables([("result", summary), *([("next", commands)] if commands else [])]):
            self._emit(line)

    @override
    def close(self) -> None:
        for text in self._warnings.drain():
            self._alert(f"again: {text}")


class Tee(Console):
    """Several consoles as one: the screen and the log. It spells out control characters in texts."""

    def __init__(self, *consoles: Console) -> None:
        self._consoles = consoles

    @override
    def start(self, sections: Sections) -> None:
        shown = [(visible(title), _visible(rows)) for title, rows in sections]
        self._each(lambda console: console.start(shown))

    @override
    def due(self) -> bool:
        return any(console.due() for console in self._consoles)

    @override
    def progress(self, progress: Progress) -> None:
        metrics = {visible(name): value for name, value in progress.metrics.items()}
        lessons = dict(_visible(progress.lessons.items()))
        shown = replace(progress, rows=_visible(progress.rows), metrics=metrics, lessons=lessons)
        self._each(lambda console: console.progress(shown))

    @override
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        shown = replace(evaluation, behaviour=visible(evaluation.behaviour))
        self._each(lambda console: console.evaluation(shown, best=best))

    @override
    def message(self, text: str) -> None:
        self._each(lambda console: console.message(visible(text)))

    @override
    def command(self, purpose: str, command: str) -> None:
        self._each(lambda console: console.command(visible(purpose), visible(command)))

    @override
    def warn(self, text: str) -> None:
        self._each(lambda console: console.warn(visible(text)))

    @override
    def finish(self, summary: Rows, commands: Rows, *, doubtful: bool = False) -> None:
        shown, following = _visible(summary), _visible(commands)
        self._each(lambda console: console.finish(shown, following, doubtful=doubtful))

    @override
    def close(self) -> None:
        self._each(lambda console: console.close())

    def _each(self, call: Callable[[Console], None]) -> None:
        for console in self._consoles:
            call(console)


def _tables(sections: Sections) -> list[str]:
    """Return a line for each title and each row, with aligned texts."""
    width = max((len(name) for _, rows in sections for name, _ in rows), default=0)
    return [
        line
        for title, rows in sections
        for line in (title, *(f"  {name:<{width}}  {value}" for name, value in rows))
    ]


def _visible(rows: Iterable[tuple[str, str]]) -> Rows:
    """Return rows whose control characters are spelt out."""
    return tuple((visible(name), visible(text)) for name, text in rows)


def progress_line(progress: Progress) -> str:
    """Return one line of ``key=value``; unknown values are left out, metrics keep their names."""
    best, last = progress.best_eval, progress.last_eval
    pairs: dict[str, float | str | None] = {
        "step": progress.step,
        "max_step": progress.max_step,
        "iteration": progress.iteration,
        "max_iter": progress.max_iter,
        "updates": progress.updates,
        "episodes": progress.episodes,
        "seconds": round(progress.seconds, 1),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s),
        "env_steps_per_s": progress.env_steps_per_s,
        "updates_per_s": progress.updates_per_s,
        "return": progress.return_mean,
        "eval": last.mean if last else None,
        "eval_best": best.mean if best else None,
        **{f"lesson.{name}": lesson for name, lesson in progress.lessons.items()},
        **progress.metrics,
    }
    return _key_values(pairs)


def evaluation_line(evaluation: Evaluation, *, best: bool) -> str:
    """Return one line of ``key=value`` that begins with the word eval."""
    pairs: dict[str, float | str | None] = {
        "step": evaluation.step,
        "return_mean": evaluation.mean,
        "return_ci95": evaluation.ci95,
        "episodes": evaluation.episodes,
        "best": int(best),
        **{f"info/{name}": value for name, value in evaluation.infos.items()},
    }
    name = "" if evaluation.behaviour == DEFAULT_BEHAVIOUR else f"behaviour={evaluation.behaviour} "
    return f"eval {name}{_key_values(pairs)}"


def _key_values(pairs: Mapping[str, float | str | None]) -> str:
    """Format ``key=value`` pairs on one line; None and NaN are left out."""
    known = {key: value for key, value in pairs.items() if value is not None and value == value}
    return " ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}" for k, v in known.items())
