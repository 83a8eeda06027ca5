"""Bands below a curve that show the lessons of a curriculum over environment steps."""

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
    """A lesson from one step to another. place: position in the curriculum, from 0 (first) to 1 (last)."""

    lesson: str
    begin: float
    end: float
    place: float


@dataclass(frozen=True)
class Band:
    """The lessons of one curriculum, in the order in which a run had them."""

    name: str
    spans: Sequence[Span]

    @property
    def label(self) -> str:
        """The band in words."""
        return f"{self.name}: " + ", ".join(
            f"{span.lesson} from step {span.begin:,.0f}" for span in self.spans
        )


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
    """Return the span of lesson ``number`` from one step to another."""
    return Span(
        lesson=lessons[number] if number < len(lessons) else str(number),
        begin=begin,
        end=end,
        place=min(1.0, number / max(1, len(lessons) - 1)),
    )


def draw_band(axes: Axes, band: Band, *, width: float, tone: int = 0, size: float = 11) -> None:
    """Draw a band into its own axes, with the same x as the curve above.

    width: of the axes, in points; size: of the font, in points. A name that does not fit is left out.
    """
    axes.set_axis_off()
    axes.set_ylim(0, 1)
    axes.margins(x=0)
    for span in band.spans:
        axes.axvspan(
            span.begin,
            span.end,
            color=LIGHT[f"c{tone % TONES}"],
            alpha=_PALEST + (_DARKEST - _PALEST) * span.place,
            linewidth=0,
        )
    first, last = axes.get_xlim()
    for span in band.spans:
        most = (span.end - span.begin) / (last - first) * width / (size * _PER_CHARACTER) - 1
        fits = [text for text in (f"{band.name} = {span.lesson}", span.lesson) if len(text) <= most]
        if fits:
            axes.text((span.begin + span.end) / 2, 0.46, fits[0], ha="center", va="center", fontsize=size)
