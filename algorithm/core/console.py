"""Console of a run: its interface, and the values, charts and lines that it shows."""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from typing_extensions import override

from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import Rows

Sections = Sequence[tuple[str, Rows]]


@dataclass(frozen=True)
class Panel:
    """One small chart.

    lines: metric -> its name in the chart
    aims:  the same for targets of the lines, drawn dashed
    log:   logarithmic where the values span enough
    """

    title: str
    lines: Mapping[str, str]
    aims: Mapping[str, str]
    log: bool = False


def panel(title: str, *, log: bool = False, aims: Mapping[str, str] | None = None, **lines: str) -> Panel:
    """Return a panel; ``lines``: name in the chart -> metric."""
    named = {metric: name.replace("_", " ") for name, metric in lines.items()}
    return Panel(title, named, aims or {}, log)


@dataclass(frozen=True)
class Readout:
    """One line of the status panel.

    fields: metric -> its name there, at most four
    """

    title: str
    fields: Mapping[str, str]


def readout(title: str, **fields: str) -> Readout:
    """Return a line of the panel; ``fields``: name in the line -> metric."""
    return Readout(title, {metric: name for name, metric in fields.items()})


@dataclass(frozen=True)
class Evaluation:
    """Outcome of one evaluation: environment step, mean return, half width of its 95 % interval.

    behaviour: whose it is; the default one for those of all behaviours, episode by episode
    infos: means of the numbers that the environment puts into its infos
    """

    step: int
    mean: float
    ci95: float
    episodes: int
    behaviour: str = DEFAULT_BEHAVIOUR
    infos: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State of a run. Limits that do not exist, and numbers not known yet, are None or NaN.

    step, iteration, updates, episodes: counted since the run began; max_step and max_iter bound two of them.
    seconds: wall time so far; eta_s: what is left of it.
    returns: of at most the last 20 training episodes, the latest last.
    env_restarts: environments that failed and were restarted.
    lessons: of each parameter with a curriculum the one that it is in.
    metrics: values of the latest row by their names in ``metrics.METRICS``; fresh: some read since.
    readouts: lines of the panel that show some of them.
    rows: more lines for the panel, name and text.
    """

    step: int
    max_step: int | None
    iteration: int
    max_iter: int | None
    updates: int
    episodes: int
    seconds: float
    eta_s: float | None
    env_steps_per_s: float
    updates_per_s: float
    returns: Sequence[float] = ()
    last_eval: Evaluation | None = None
    best_eval: Evaluation | None = None
    env_restarts: int = 0
    lessons: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    fresh: Mapping[str, float] = field(default_factory=dict)
    readouts: Sequence[Readout] = ()
    rows: Rows = ()

    @property
    def fraction(self) -> float | None:
        """Share of the run that is done, by the limit that comes first; None for a run without limits."""
        shares = [
            done / limit
            for done, limit in ((self.step, self.max_step), (self.iteration, self.max_iter))
            if limit
        ]
        return min(max(shares), 1.0) if shares else None

    @property
    def return_mean(self) -> float | None:
        """Mean of ``returns``; None before the first episode ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None


class Console(AbstractContextManager["Console"]):
    """Output of a run for its user. On exit, also by an exception, the terminal is restored."""

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def start(self, sections: Sections) -> None:
        """Show the start-up screen: titled sections of (name, value)."""

    @abstractmethod
    def due(self) -> bool:
        """Return whether ``progress`` would show something now; cheap enough for every step."""

    @abstractmethod
    def progress(self, progress: Progress) -> None:
        """Show the state of the run, if it is due."""

    @abstractmethod
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """Show an evaluation; ``best``: it is the best of the run so far."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Show one line of information."""

    @abstractmethod
    def command(self, purpose: str, command: str) -> None:
        """Show a command on one line, so that it can be copied, with its purpose."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Show a warning now, and once more at the end."""

    @abstractmethod
    def finish(self, summary: Rows, commands: Rows, *, doubtful: bool = False) -> None:
        """Show the result, and the commands that a user may run next: (purpose, command).

        doubtful: the result is hardly good; its first row has the reason
        """

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal and repeat warnings that were not repeated yet. May be called twice."""
