"""A monitor of the metrics that reports known problems, each once, with the key to change."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from algorithm.agents.base import Family
from algorithm.agents.health import WINDOW, History, Summary
from algorithm.keys.behaviour import BehaviourConfig

_EXTREMES = ("largest_return", "largest_reward", "longest_episode")


class HealthMonitor:
    """A monitor of one behaviour's rows of metrics.

    family, config: algorithm and configuration of the behaviour

    A rule that has returned a line is silent from then on, in a resumed run as well.
    """

    def __init__(self, family: Family, config: BehaviourConfig) -> None:
        self._rules = family.health_rules(config)
        self._watched = family.watched
        self._history = History(config.run.start_step, config.base_config.reward_scale)
        self._reported: set[str] = set()

    def update(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Return one line for each problem that this row makes certain.

        step: environment steps so far, more than at the last call
        values: metrics by their names in ``METRICS``; values that are not finite count as missing
        """
        finite = [name for name in self._watched if math.isfinite(values.get(name, math.nan))]
        self._history.add(Summary(step, {name: float(values[name]) for name in finite}))
        lines = []
        for name, rule in self._rules.items():
            if name not in self._reported and (line := rule(self._history)) is not None:
                self._reported.add(name)
                lines.append(line)
        return lines

    def state(self) -> dict[str, Any]:
        """Return all rows and reported rules, as strict JSON."""
        history = self._history
        return {
            "reported": sorted(self._reported),
            "rows": [asdict(row) for row in history.rows],
            "extremes": {name: getattr(history, name) for name in _EXTREMES},
            "random_returns": list(history.random_returns),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of :meth:`state`. Raises ValueError for any other value."""
        try:
            history = replace(
                self._history,
                rows=deque((Summary(**row) for row in state["rows"]), WINDOW),
                random_returns=list(state["random_returns"]),
            )
            for name in _EXTREMES:
                setattr(history, name, float(state["extremes"][name]))
            reported = set(map(str, state["reported"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the watchdog's state is not one of this version: {error!r}") from error
        self._history = history
        self._reported = reported
