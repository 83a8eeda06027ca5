"""Line charts: SVG for pages, in the colours of their style sheet. Drawing imports matplotlib."""

from __future__ import annotations

import contextlib
import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithm.app.report.theme import DARK, LIGHT, MATPLOTLIB, TONES
from algorithm.core.data import Double
from algorithm.core.wording import short, steps_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGE, _SMALL = (960, 380), (320, 180)  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 26  # of them beside the curves
_LOG_SPAN = 20.0
_MOST_POINTS = 30  # of a line whose points are marked
_LARGEST = 1e38  # of float32; matplotlib's limits overflow far above
_LOOKS: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.8, "zorder": 3},
    "run": {"linewidth": 0.9, "alpha": 0.4, "zorder": 2},
    "crowd": {"linewidth": 0.6, "alpha": 0.3, "zorder": 1},
    "faint": {"linewidth": 0.9, "alpha": 0.6, "zorder": 1},
    "aim": {"linewidth": 1.3, "dashes": (4, 3), "zorder": 4},
}
_FONT = "font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, sans-serif"
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: y over x, both [P]; x are environment steps unless the chart has another axis; NaN is a gap.

    style: ``line``, ``run`` (thin), ``crowd`` (thinner), ``faint`` or ``aim`` (dashed)
    tone:  colour of a ``line`` or ``run``, 0 to 9
    band:  lower and upper ends, [P] each, or None
    """

    label: str
    x: Double
    y: Double
    style: str = "line"
    tone: int = 0
    band: tuple[Double, Double] | None = None

    @property
    def colour(self) -> str:
        """Name of the line's colour in the theme."""
        return {"faint": "faint", "aim": "ink"}.get(self.style, f"c{self.tone % TONES}")

    @property
    def known(self) -> tuple[Double, Double]:
        """Steps and values without the gaps."""
        known = np.isfinite(self.y)
        return _clipped(self.x[known]), _clipped(self.y[known])


@dataclass(frozen=True)
class Chart:
    """Curves over environment steps, for a page; lines without values are left out.

    large: as wide as the page
    log:   logarithmic if the values are positive and span a factor of 20
    """

    title: str
    lines: Sequence[Line]
    _: KW_ONLY
    large: bool = False
    log: bool = False

    @property
    def named(self) -> list[Line]:
        """Lines with a label."""
        return [line for line in self._known if line.label]

    @property
    def _known(self) -> list[Line]:
        return [line for line in self.lines if np.isfinite(line.y).any()]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing in pixels."""
        return _LARGE if self.large else _SMALL

    @property
    def svg(self) -> str:
        """The chart as an SVG; a point of it is a pixel."""
        width, height = self.size
        inside, across = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        with figure_of(figsize=(width / 72, height / 72), dpi=72) as figure:
            rectangle = _LEFT / width, _BOTTOM / height, inside / width, across / height
            axes = figure.add_axes(rectangle)
            figure.patch.set_visible(False)
            axes.patch.set_visible(False)
            draw(axes, self._known, log=self.log, ticks=(max(4, width // 96), max(6, height // 55)))
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
            return themed(buffer.getvalue())

    @property
    def url(self) -> str:
        """The chart as the source of an image."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@contextlib.contextmanager
def figure_of(**options: Any) -> Iterator[Figure]:  # noqa: ANN401 - of matplotlib
    """Yield a figure in the style of the theme; close it after the block."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(MATPLOTLIB):
        yield Figure(**options)


def suits_logarithm(values: Double) -> bool:
    """Return whether to draw values on a logarithmic scale: positive ones that span a factor of 20."""
    return len(values) > 0 and bool(values.min() > 1 / _LARGEST and values.max() / values.min() >= _LOG_SPAN)


def _clipped(values: Double) -> Double:
    """Clip values to numbers that matplotlib can draw."""
    return np.clip(values, -_LARGEST, _LARGEST)


def themed(svg: str) -> str:
    """Return an SVG whose colours follow the light or dark theme of its reader."""
    for name, colour in LIGHT.items():
        svg = svg.replace(colour, f"var(--{name})")
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in of.items()) for of in (LIGHT, DARK))
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    start = svg.index(">", svg.index("<svg ")) + 1
    return f"{svg[:start]}{style}{svg[start:].replace(*_FONT)}"


def draw(axes: Axes, lines: Sequence[Line], *, ticks: tuple[int, int], log: bool = False) -> None:
    """Draw lines and bands; ``ticks``: about how many along x and y."""
    for line in lines:
        x, y = line.known
        colour, looks = LIGHT[line.colour], _LOOKS[line.style]
        marker = "o" if len(x) <= _MOST_POINTS and line.style == "line" else ""
        axes.plot(x, y, color=colour, label=line.label, marker=marker, markersize=4, clip_on=False, **looks)
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

    if log and suits_logarithm(values):
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
