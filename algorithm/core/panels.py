"""Metrics that are shown together: a small chart of a report, a line of the live panel."""

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


@dataclass(frozen=True)
class Readout:
    """One line of the live panel.

    fields: metric -> its name there, at most four
    """

    title: str
    fields: Mapping[str, str]


def readout(title: str, **fields: str) -> Readout:
    """Return a line; ``fields``: name there -> metric."""
    return Readout(title, {metric: name for name, metric in fields.items()})
