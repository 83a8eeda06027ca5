"""Bands below a curve: in which lesson of a curriculum a run was, over environment steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from algorithm.app.report.theme import LIGHT, TONES
from algorithm.store.logs.registry import LESSONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PER_CHARACTER = 0.62  # of the size of the type, about
_PALEST, _DARKEST = 0.12, 0.5


@dataclass(frozen=True)
class Span:
    """A lesson from one step to another. place: from 0, the first one, to 1, the last."""

    lesson: str
    begin: float
    end: float
    place: float


@dataclass(frozen=True)
class Band:
    """The lessons of one curriculum in the order in which a run was in them."""

    name: str
    spans: Sequence[Span]

    @property
    def label(self) -> str:
        """The band in words."""
        return f"{self.name}: " + ", ".join(f"{one.lesson} from step {one.begin:,.0f}" for one in self.spans)


def lesson_bands(
    columns: Mapping[str, Sequence[float]], curricula: Mapping[str, Sequence[str]]
) -> list[Band]:
    """Return the bands of a run.

    columns:   metrics by name, among them ``step`` and ``lesson/<curriculum>``, the lesson's number from 0
    curricula: name -> names of its lessons; one that the run has not logged has no band
    A lesson begins with the first row that has its number, the first one at step 0.
    """
    step = np.asarray(columns["step"], np.float64)
    bands = []
    for name, lessons in curricula.items():
        number = np.asarray(columns.get(f"{LESSONS}{name}", ()), np.float64)
        known = np.flatnonzero(np.isfinite(number)).tolist()
        if not known:
            continue
        starts = [row for at, row in enumerate(known) if not at or number[row] != number[known[at - 1]]]
        ends = [0.0, *(float(step[row]) for row in starts[1:]), float(step[-1])]
        bands.append(
            Band(
                name,
                [
                    _span(lessons, int(number[row]), begin, end)
                    for row, begin, end in zip(starts, ends, ends[1:], strict=False)
                ],
            )
        )
    return bands


def _span(lessons: Sequence[str], number: int, begin: float, end: float) -> Span:
    return Span(
        lesson=lessons[number] if number < len(lessons) else str(number),
        begin=begin,
        end=end,
        place=min(1.0, number / max(1, len(lessons) - 1)),
    )


def draw_band(axes: Axes, band: Band, *, width: float, tone: int = 0, size: float = 11) -> None:
    """Draw a band into axes of its own, whose x are those of the curve above.

    width: of the axes, in the unit of size, that of the type; a name that does not fit is left out
    """
    axes.set_axis_off()
    axes.set_ylim(0, 1)
    axes.margins(x=0)
    for one in band.spans:
        axes.axvspan(
            one.begin,
            one.end,
            color=LIGHT[f"c{tone % TONES}"],
            alpha=_PALEST + (_DARKEST - _PALEST) * one.place,
            linewidth=0,
        )
    first, last = axes.get_xlim()
    for one in band.spans:
        most = (one.end - one.begin) / (last - first) * width / (size * _PER_CHARACTER) - 1
        fits = [text for text in (f"{band.name} = {one.lesson}", one.lesson) if len(text) <= most]
        if fits:
            axes.text((one.begin + one.end) / 2, 0.46, fits[0], ha="center", va="center", fontsize=size)
