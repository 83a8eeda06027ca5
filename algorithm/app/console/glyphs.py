"""Characters of the panel, and numbers in few of them."""

from __future__ import annotations

import math

_LEVELS = "▁▂▃▄▅▆▇█"


def spark(values: list[float]) -> str:
    """Return one character a value, from the lowest to the highest level; blank if it is not finite."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values)


def number(value: float | None, unknown: str = "nan") -> str:
    """Return about four digits in at most eight characters; ``unknown`` for None and NaN."""
    if value is None or math.isnan(value):
        return unknown
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.1e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 1 else f"{value:.4f}"
