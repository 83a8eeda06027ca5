"""Small charts of a report: the metrics that belong into one picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
