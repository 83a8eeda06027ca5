"""Numbers and tables as text for the user."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Rows = Sequence[tuple[str, str]]
"""Lines of a table: (name, text)."""


def short(value: float) -> str:
    """Format a number for reading: whole from 1,000 on, below that with up to four figures.

    ``12,345``, ``451.3``, ``0.0031``; from ten million on and below 0.0001 ``1.20e+07``; ``unknown`` if it
    is not finite.
    """
    if not math.isfinite(value):
        return "unknown"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return f"{value:.2e}"
    if size >= 999.95:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if size >= 99.95 else f"{value:.3g}"
    return text.removesuffix(".0")


def plus_minus(mean: float, half_width: float) -> str:
    """Format ``mean ± half width``, both to the same decimals; the mean alone without an interval."""
    if not math.isfinite(half_width):
        return short(mean)
    size = max(abs(mean), abs(half_width))
    if size >= 1e9 or 0 < size < 1e-4:
        return f"{mean:.2e} ± {half_width:.2e}"
    decimals = 0 if size >= 1000 or not size else max(1, 2 - math.floor(math.log10(size)))
    if half_width:  # a small interval is not shown as 0, but for numbers of more than seven figures
        decimals = max(decimals, min(-math.floor(math.log10(half_width)), 6 - math.floor(math.log10(size))))
    return f"{mean:,.{decimals}f} ± {half_width:,.{decimals}f}"


def info_name(key: str) -> str:
    """Return the name of a number from an environment's infos."""
    return "success rate" if key == "is_success" else key


def info_rows(infos: Mapping[str, float]) -> Rows:
    """Return a line on each number from an environment's infos; ``is_success`` is a share of episodes."""
    return [
        (info_name(key), f"{value:.0%}" if key == "is_success" else short(value))
        for key, value in infos.items()
    ]


def steps_text(steps: float) -> str:
    """Format environment steps on an axis: ``500``, ``12k``, ``1.5M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:g}"


def format_bytes(n: int) -> str:
    """Format ``28.3 GB``, ``512 MB``, ``1.4 MB``, ``3 KB``: powers of 1024, as everywhere in the output."""
    if n >= 2**30:
        return f"{n / 2**30:,.1f} GB"
    if n >= 2**20:
        return f"{n / 2**20:.{0 if n >= 10 * 2**20 else 1}f} MB"
    return f"{n / 2**10:.0f} KB"


def clock_time(seconds: float) -> str:
    """Format ``m:ss``, from an hour on ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """Format ``1 run``, ``3 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(values: Sequence[object]) -> str:
    """Join values by commas, each once."""
    return ", ".join(dict.fromkeys(map(str, values)))
