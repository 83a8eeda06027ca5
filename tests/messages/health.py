"""Advice of the health monitor: a line for each rule, and for what changes it."""

from __future__ import annotations

from collections.abc import Iterator

from algorithm.agents.registry import family
from algorithm.run.health import HealthMonitor
from tests.run.health_cases import TROUBLES


def messages() -> Iterator[tuple[str, str]]:
    for case in TROUBLES:
        monitor = HealthMonitor(family(case.config), case.config)
        lines = [f"{step:,}: {line}" for step, values in case.rows for line in monitor.update(step, values)]
        yield case.name, "\n".join(lines)
