"""The history of a run's summaries, and the type of the rules that check it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

WINDOW = 12
"""Number of summaries that a history keeps."""

RETURNS = ("rollout/return_mean", "rollout/return_min", "rollout/return_max", "rollout/length")
"""Metrics of a summary that the rules of every family read."""


@dataclass(frozen=True)
class Summary:
    """Summary at an environment step, with those of the family's watched metrics that are finite."""

    step: int
    values: Mapping[str, float]


@dataclass
class History:
    """The last summaries, and the extremes of the whole run.

    random_until:    number of steps with random actions, ``start_step``
    reward_scale:    ``base_config.reward_scale``, a factor in values and temperatures but not in returns
    rows:            the last summaries, oldest first
    largest_return:  size of the largest return of any episode times ``reward_scale``; 0 before the first
    largest_reward:  the same divided by the episode's steps
    longest_episode: largest mean length of episodes in a summary, in steps
    random_returns:  mean returns of the summaries with random actions, and always of the first one
    """

    random_until: int
    reward_scale: float = 1.0
    rows: deque[Summary] = field(default_factory=lambda: deque(maxlen=WINDOW))
    largest_return: float = 0.0
    largest_reward: float = 0.0
    longest_episode: float = 0.0
    random_returns: list[float] = field(default_factory=list)

    def add(self, row: Summary) -> None:
        """Store a summary, and update the extremes."""
        self.rows.append(row)
        *names, length_name = RETURNS
        sizes = [self.reward_scale * abs(row.values[name]) for name in names if name in row.values]
        length = row.values.get(length_name)
        if not sizes or not length:
            return
        size = max(sizes)
        self.largest_return = max(self.largest_return, size)
        self.largest_reward = max(self.largest_reward, size / length)
        self.longest_episode = max(self.longest_episode, length)
        if not self.random_returns or row.step <= self.random_until:
            self.random_returns.append(row.values["rollout/return_mean"])

    def known(self, name: str, count: int = WINDOW) -> list[float]:
        """Return the values of a metric in the last ``count`` summaries, without those that lack it."""
        return [row.values[name] for row in list(self.rows)[-count:] if name in row.values]

    def last(self, name: str, count: int = WINDOW) -> list[float]:
        """Return the values of a metric in the last ``count`` summaries; empty unless all have it."""
        values = self.known(name, count)
        return values if len(values) == count else []

    def now(self, name: str) -> float:
        """Return a metric of the last summary; if it is missing, NaN, for which no comparison holds."""
        return self.rows[-1].values.get(name, math.nan)

    def least(self, name: str, count: int = WINDOW) -> float:
        """Return the smallest value of :meth:`last`; NaN without any."""
        return min(self.last(name, count), default=math.nan)

    def most(self, name: str, count: int = WINDOW) -> float:
        """Return the largest value of :meth:`last`; NaN without any."""
        return max(self.last(name, count), default=math.nan)

    def returns(self, count: int = WINDOW) -> float:
        """Return the mean return over the last ``count`` summaries; NaN unless half of them have one."""
        returns = self.known("rollout/return_mean", count)
        return sum(returns) / len(returns) if len(returns) >= (count + 1) // 2 else math.nan

    def span(self, count: int) -> int:
        """Return the environment steps between the last summary and the one ``count`` before it."""
        return self.rows[-1].step - self.rows[-1 - count].step

    def ahead(self, gamma: float) -> float:
        """Return the largest horizon of a value in steps: 1 / (1 − γ), or the longest episode if γ is 1."""
        return 1 / (1 - gamma) if gamma < 1 else self.longest_episode

    def horizon(self, gamma: float) -> float:
        """Return the horizon of a value in steps: 1 / (1 − γ), or the longest episode if that is shorter."""
        return min(self.longest_episode, self.ahead(gamma))

    def earned(self, gamma: float) -> float:
        """Return the largest possible value of rewards: the largest return, or reward at each step."""
        return max(self.largest_return, self.largest_reward * self.ahead(gamma))

    @property
    def random_return(self) -> float:
        """Mean return of random actions; NaN before an episode has ended."""
        return sum(self.random_returns) / len(self.random_returns) if self.random_returns else math.nan


def grows(values: list[float], factor: float = 1.0) -> bool:
    """Return whether each value is above the one before, and the last at least ``factor`` times the first."""
    rising = all(after > before for before, after in pairwise(values))
    return len(values) > 1 and rising and values[-1] >= factor * values[0]


Rule = Callable[[History], "str | None"]
"""Rule of the health monitor: returns a warning once trouble is certain, else None."""
