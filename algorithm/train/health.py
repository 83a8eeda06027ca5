"""A monitor of the metrics that reports certain trouble, each once, with the key to change."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from algorithm.agents.health import WINDOW, History, Summary
from algorithm.agents.roles import BehaviourConfig, Family


class HealthMonitor:
    """A monitor of one behaviour's summaries.

    family, config: of that behaviour

    A rule that has returned a line is silent from then on, in a resumed run as well.
    """

    def __init__(self, family: Family, config: BehaviourConfig) -> None:
        self._rules, self._watched = family.health_rules(config), family.watched
        self._history = History(config.sac_config.start_step, config.base_config.reward_scale)
        self._reported: set[str] = set()

    def update(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Return one line for each trouble that has become certain with this summary.

        step: environment steps so far, later than at the last call
        values: metrics by their names in ``METRICS``; those that are not finite count as missing
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
        """Return all summaries and reported rules, as strict JSON."""
        history = self._history
        return {
            "reported": sorted(self._reported),
            "rows": [{"step": row.step, "values": dict(row.values)} for row in history.rows],
            "largest_return": history.largest_return,
            "largest_reward": history.largest_reward,
            "longest_episode": history.longest_episode,
            "random_returns": list(history.random_returns),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned."""
        history = History(self._history.random_until, self._history.reward_scale)
        history.rows = deque((Summary(row["step"], dict(row["values"])) for row in state["rows"]), WINDOW)
        history.largest_return = float(state["largest_return"])
        history.largest_reward = float(state["largest_reward"])
        history.longest_episode = float(state["longest_episode"])
        history.random_returns = [float(value) for value in state["random_returns"]]
        self._history, self._reported = history, set(state["reported"])
