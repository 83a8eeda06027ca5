"""Line charts: SVG for pages, in the colours of their style sheet, and PNG. Drawing imports matplotlib."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from algorithm.app.report.theme import LIGHT, MATPLOTLIB, TONES
from algorithm.core.data import Double
from algorithm.core.errors import StorageError
from algorithm.core.wording import short, steps_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGE, _SMALL = (960, 380), (320, 180)  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 26  # of them beside the curves
_LOG_SPAN = 20.0
_MOST_POINTS = 60
_LARGEST = 1e38  # of float32; matplotlib's limits overflow far above
_LOOKS: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.8, "zorder": 3},
    "run": {"linewidth": 0.9, "alpha": 0.4, "zorder": 2},
    "crowd": {"linewidth": 0.6, "alpha": 0.3, "zorder": 1},
    "faint": {"linewidth": 0.9, "alpha": 0.6, "zorder": 1},
    "aim": {"linewidth": 1.3, "dashes": (4, 3), "zorder": 4},
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: y over x, both [P]; x are environment steps unless the chart has another axis; NaN is a gap.

    style: ``line``, ``run`` (thin), ``crowd`` (thinner), ``faint`` or ``aim`` (dashed)
    tone:  colour of a ``line`` or ``run``, 0 to 9
    band:  lower and upper ends, [P] each, or None
    dots:  mark the points, where there are not too many
    """

    label: str
    x: Double
    y: Double
    style: str = "line"
    tone: int = 0
    band: tuple[Double, Double] | None = None
    dots: bool = False

    @property
    def colour(self) -> str:
        """Name of the line's colour in the theme."""
        return {"faint": "faint", "aim": "ink"}.get(self.style, f"c{self.tone % TONES}")

    @property
    def known(self) -> tuple[Double, Double]:
        """Steps and values without the gaps."""
        known = np.isfinite(self.y)
        return _clipped(self.x[known]), _clipped(self.y[known])

    @property
    def has_dots(self) -> bool:
        """Whether each point is marked; a single one would be invisible as a line."""
        count = len(self.known[0])
        return count == 1 or (self.dots and count <= _MOST_POINTS)

    @override
    def __str__(self) -> str:
        """Return a description of the curve in words."""
        _, y = self.known
        ends = f"{self.label} from {short(float(y[0]))} to {short(float(y[-1]))}"
        return f"{ends}, lowest {short(float(y.min()))}, highest {short(float(y.max()))}"


@dataclass(frozen=True)
class Point:
    """A point of a drawing that shows its value when the pointer is on it."""

    x: float
    y: float
    text: str
    colour: str
    visible: bool


@dataclass(frozen=True)
class Drawing:
    """An SVG without its outermost element, its size in pixels, and its points."""

    width: int
    height: int
    markup: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """Curves over environment steps or generations, for a page; lines without values are left out.

    large: as wide as the page
    log:   logarithmic if the values are positive and span a factor of 20
    along: name of the x axis
    """

    title: str
    lines: Sequence[Line]
    _: KW_ONLY
    large: bool = False
    log: bool = False
    along: str = "step"

    @property
    def named(self) -> list[Line]:
        """Lines with a label."""
        return [line for line in self._known if line.label]

    @property
    def label(self) -> str:
        """Description of the chart in words, for screen readers."""
        return f"{self.title}: {'; '.join(map(str, self.named)) or 'nothing was measured'}"

    @property
    def _known(self) -> list[Line]:
        return [line for line in self.lines if np.isfinite(line.y).any()]

    @property
    def drawing(self) -> Drawing:
        """The chart as an SVG with its points; a point of the SVG is a pixel."""
        width, height = _LARGE if self.large else _SMALL
        inside, across = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        with themed_figure(figsize=(width / 72, height / 72), dpi=72) as figure:
            rectangle = _LEFT / width, _BOTTOM / height, inside / width, across / height
            axes = figure.add_axes(rectangle)
            figure.patch.set_visible(False)
            axes.patch.set_visible(False)
            draw(axes, self._known, log=self.log, ticks=(max(4, width // 96), max(6, height // 55)))
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
            points = _points(axes, self.named, height, self.along)
            return Drawing(width, height, _inner(buffer.getvalue()), points)


@contextlib.contextmanager
def themed_figure(**options: Any) -> Iterator[Figure]:  # noqa: ANN401 - of matplotlib
    """Yield a new figure; until the end of the block matplotlib draws in the style of the theme."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(MATPLOTLIB):
        yield Figure(**options)


def _clipped(values: Double) -> Double:
    """Clip values to numbers that matplotlib can draw."""
    return np.clip(values, -_LARGEST, _LARGEST)


def write_picture(path: Path, lines: Sequence[Line], *, title: str) -> None:
    """Write a chart as PNG; the same data give the same bytes. Raises StorageError."""
    with themed_figure(figsize=(8, 4.5), dpi=150, layout="constrained") as figure:
        axes = figure.subplots()
        draw(axes, lines, marker="o", ticks=(8, 6))
        font = {"size": 12, "weight": "bold"}
        # Of the figure, since its names may be wider than the axes.
        figure.legend(
            title=title, title_fontproperties=font, loc="outside upper left", ncols=2, alignment="left"
        )
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return")
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG. Raises StorageError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
    except OSError as error:
        raise StorageError.of(error, what="a picture cannot be written", where=path) from error


_LEFT_OUT = re.compile(
    r"""
    [ ](id|clip-path)="[^"]*"  # would meet those of the next drawing
    | [ ]transform="rotate\(-0[^"]*"
    | font-[^;"]*;[ ]  # the style sheet has them
    | (?<=\.\d)\d{3,}(?!\d*</)  # a tenth of a pixel is enough; a text stays
    | \s+(?=[<\n])
    """,
    re.VERBOSE,
)


def _inner(svg: str) -> str:
    """Return the content of an SVG, with colours as variables of the style sheet."""
    markup = _LEFT_OUT.sub("", svg[svg.index("<g ") : svg.rindex("</g>") + len("</g>")])
    for name, colour in LIGHT.items():
        markup = markup.replace(colour, f"var(--{name})")
    return markup


def _points(axes: Axes, lines: Sequence[Line], height: int, along: str) -> list[Point]:
    """Return the points of short lines, first line last so that it is on top; y grows downwards."""
    named = [line for line in lines if line.style != "aim"]
    points = []
    for line in reversed(named):
        steps, values = line.known
        if len(steps) > _MOST_POINTS:
            continue
        prefix = f"{line.label}, " if len(named) > 1 else ""
        places = axes.transData.transform(np.stack([steps, values], axis=-1))
        for (x, y), step, value in zip(places, steps, values, strict=True):
            if math.isfinite(y):  # a logarithm has no place for zero
                text = f"{prefix}{along} {step:,.0f}: {short(float(value))}"
                points.append(Point(round(x, 1), round(height - y, 1), text, line.colour, line.has_dots))
    return points


def draw(
    axes: Axes, lines: Sequence[Line], *, ticks: tuple[int, int], log: bool = False, marker: str = ""
) -> None:
    """Draw lines and bands; ``ticks``: about how many along x and y; ``marker``: of points with dots."""
    for line in lines:
        colour, shown_marker = LIGHT[line.colour], marker if line.has_dots else ""
        looks = {**_LOOKS[line.style], "markersize": 4, "clip_on": False}
        axes.plot(*line.known, color=colour, label=line.label, marker=shown_marker, **looks)
        if line.band is not None:
            low, high = line.band
            known = np.isfinite(low) & np.isfinite(high)
            there, back = line.x[known], line.x[known][::-1]
            around = np.concatenate([there, back]), np.concatenate([high[known], low[known][::-1]])
            axes.fill(*map(_clipped, around), color=colour, alpha=0.18, linewidth=0, clip_on=False)
    axes.margins(x=0.0, y=0.04)
    x, y = (np.concatenate([np.zeros(0), *(line.known[axis] for line in lines)]) for axis in (0, 1))
    _scale(axes, y, ticks, log=log, whole=bool((x % 1 == 0).all()))


def _scale(axes: Axes, values: Double, ticks: tuple[int, int], *, log: bool, whole: bool) -> None:
    """Choose the scale of y and round ticks. whole: x are whole numbers, such as steps or trials."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    if log and len(values) and min(values) > 1 / _LARGEST and max(values) / min(values) >= _LOG_SPAN:
        axes.set_yscale("log")
        subs = (1, 2, 5) if values.max() / values.min() < 100 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=ticks[1]))
        axes.minorticks_off()
    else:
        axes.yaxis.set_major_locator(MaxNLocator(ticks[1], steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_locator(MaxNLocator(ticks[0], steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: steps_text(step)))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: short(value) if 1e-4 <= abs(value) < 1e4 else _extreme(value))
    )


def _extreme(value: float) -> str:
    """Format a round value so that it fits beside an axis: ``20k``, ``1e-05``, ``1.00e+15``."""
    return short(value) if abs(value) >= 1e12 else steps_text(value)
