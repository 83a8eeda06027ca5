"""Line charts as small SVG, coloured by the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algorithm.report.html import Markup, join, tag
from algorithm.wording import short, steps_text

Array = NDArray[np.float64]

MOST_POINTS = 240
"""Buckets of a long line; of each the lowest and the highest point are drawn."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 10, 26
_LOG_SPAN = 20.0
_DOTS = 60


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: y over x, both [P]; NaN is a gap.

    style: classes of the style sheet: ``line t0`` to ``line t5``, ``faint``, ``aim`` (dashed), ``seed t0``.
    band:  lower and upper ends, [P] each, or None.
    dots:  mark the points, where there are not too many.
    """

    label: str
    x: Array
    y: Array
    style: str = "line t0"
    band: tuple[Array, Array] | None = None
    dots: bool = False


class Scale:
    """From values to 0 … 1, linear or logarithmic, with ticks at round numbers.

    log: asked for, and granted where all values are positive and span a factor of 20.
    """

    def __init__(self, values: Array, *, log: bool = False, tight: bool = False) -> None:
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        self.log = log and low > 0 and high / low >= _LOG_SPAN
        if self.log:
            low, high = math.log10(low), math.log10(high)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # flat: give it some room
            low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
        room = 0.0 if tight else 0.04 * (high - low)
        self._low, self._high = low - room, high + room

    def place(self, values: Array) -> Array:
        """Positions of ``values``, NaN for those that have none."""
        if self.log:
            values = np.log10(np.where(values > 0, values, np.nan))
        return (values - self._low) / (self._high - self._low)

    def ticks(self, about: int) -> list[float]:
        """Round values within the scale, about ``about`` of them."""
        if self.log:
            first, last = math.ceil(self._low), math.floor(self._high)
            stride = max(1, math.ceil((last - first + 1) / about))
            return [10.0**power for power in range(first, last + 1, stride)]
        step = _round_step((self._high - self._low) / about)
        first = math.ceil(self._low / step - 1e-9)
        count = math.floor(self._high / step + 1e-9) - first + 1
        return [(first + k) * step for k in range(count)]


def figure(
    title: str, lines: Sequence[Line], *, width: int = 320, height: int = 180, log: bool = False
) -> Markup:
    """A chart with its title and the names of its lines; x is environment steps."""
    lines = [line for line in lines if np.isfinite(line.y).any()]
    drawing = chart(lines, label=f"{title}: {describe(lines)}", width=width, height=height, log=log)
    return _captioned(title, lines, drawing)


def large_figure(title: str, lines: Sequence[Line]) -> Markup:
    """The same in two shapes, of which the style sheet shows the one that fits the screen."""
    lines = [line for line in lines if np.isfinite(line.y).any()]
    label = f"{title}: {describe(lines)}"
    wide = chart(lines, label=label, width=960, height=380, class_="wide")
    narrow = chart(lines, label=label, width=360, height=260, class_="narrow")
    return _captioned(title, lines, join([wide, narrow]))


def describe(lines: Sequence[Line]) -> str:
    """What a chart shows, in words, for those who do not see it."""
    return "; ".join(_described(line) for line in lines if line.label) or "nothing was measured"


def chart(
    lines: Sequence[Line],
    *,
    label: str,
    width: int,
    height: int,
    log: bool = False,
    class_: str | None = None,
) -> Markup:
    """The drawing alone. Lines without a finite value must have been left out."""
    nothing = np.zeros(0)
    ends = [end for line in lines if line.band is not None for end in line.band]
    x_scale = Scale(np.concatenate([nothing, *(line.x[np.isfinite(line.y)] for line in lines)]), tight=True)
    y_scale = Scale(np.concatenate([nothing, *(line.y for line in lines), *ends]), log=log)
    canvas = _Canvas(x_scale, y_scale, width, height)
    parts = [*canvas.grid()]
    for line in lines:
        parts += canvas.curve(line)
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=label, class_=class_)


def thinned(x: Array, y: Array, most: int = MOST_POINTS) -> tuple[Array, Array]:
    """At most ``2 · most`` of the points [P]: the lowest and the highest of each bucket, in their order.

    Peaks stay what they are. NaN is ignored, but for a bucket of nothing else.
    """
    if len(x) <= 2 * most:
        return x, y
    chosen: list[int] = []
    for bucket in np.array_split(np.arange(len(x)), most):
        values = y[bucket]
        if np.isfinite(values).any():
            chosen += sorted({int(bucket[np.nanargmin(values)]), int(bucket[np.nanargmax(values)])})
        else:
            chosen.append(int(bucket[0]))
    return x[chosen], y[chosen]


class _Canvas:
    """Pixels of one drawing; y grows downwards."""

    def __init__(self, x_scale: Scale, y_scale: Scale, width: int, height: int) -> None:
        self._x_scale, self._y_scale = x_scale, y_scale
        self._width, self._height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x(self, values: Array) -> Array:
        return _LEFT + self._x_scale.place(values) * self._width

    def y(self, values: Array) -> Array:
        return _TOP + (1 - self._y_scale.place(values)) * self._height

    def grid(self) -> Iterator[Markup]:
        """Horizontal rules with their values, and steps below."""
        bottom, right = _TOP + self._height, _LEFT + self._width
        for value in self._y_scale.ticks(max(4, self._height // 60)):
            y = _pixel(self.y(np.asarray(value)))
            yield tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid")
            yield tag("text", short(value), x=_LEFT - 6, y=y + 4, text_anchor="end")
        for value in self._x_scale.ticks(max(4, self._width // 100)):
            x = _pixel(self.x(np.asarray(value)))
            yield tag("text", steps_text(value), x=x, y=bottom + 18, text_anchor="middle")

    def curve(self, line: Line) -> Iterator[Markup]:
        """Band, line and dots."""
        tone = line.style.split()[-1]
        if line.band is not None and (band := self._band(line.x, *line.band)):
            yield tag("path", d=band, class_=f"band {tone}")
        drawn = np.isfinite(line.y)
        x, y = thinned(line.x[drawn], line.y[drawn])
        if path := _path(self.x(x), self.y(y)):
            yield tag("path", d=path, class_=line.style)
        if len(x) == 1 or (line.dots and len(x) <= _DOTS):
            for at, value in zip(x, y, strict=True):
                tip = tag("title", f"step {at:,.0f}: {short(float(value))}")
                cx, cy = _pixel(self.x(np.asarray(at))), _pixel(self.y(np.asarray(value)))
                yield tag("circle", tip, cx=cx, cy=cy, r=3, class_=f"dot {tone}")

    def _band(self, x: Array, low: Array, high: Array) -> str:
        known = np.isfinite(low) & np.isfinite(high)
        if known.sum() < 2:
            return ""
        upper = _path(self.x(x[known]), self.y(high[known]))
        lower = _path(self.x(x[known])[::-1], self.y(low[known])[::-1])
        return f"{upper}L{lower[1:]}Z" if upper and lower else ""


def _pixel(position: Array) -> float:
    return round(float(position), 1)


def _captioned(title: str, lines: Sequence[Line], drawing: Markup) -> Markup:
    keys = [_key(line) for line in lines if line.label and len(lines) > 1]  # one alone has the title
    return tag("figure", tag("figcaption", tag("h3", title), *keys), drawing)


def _key(line: Line) -> Markup:
    sample = tag("path", d="M0 5H22", class_=line.style)
    return tag("span", tag("svg", sample, viewBox="0 0 22 10", aria_hidden="true"), line.label, class_="key")


def _described(line: Line) -> str:
    known = line.y[np.isfinite(line.y)]
    if not len(known):
        return f"{line.label} was not measured"
    first, last = short(float(known[0])), short(float(known[-1]))
    low, high = short(float(known.min())), short(float(known.max()))
    return f"{line.label} from {first} to {last}, lowest {low}, highest {high}"


def _path(x: Array, y: Array) -> str:
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points) if points else ""


def _round_step(rough: float) -> float:
    """The 1, 2 or 5 times a power of ten that is nearest to ``rough``, by their ratio."""
    power = 10.0 ** math.floor(math.log10(rough))
    return min((factor * power for factor in (1, 2, 5, 10)), key=lambda step: abs(math.log(step / rough)))
