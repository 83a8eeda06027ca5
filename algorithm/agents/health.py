"""The history of a run's summaries, and the type of the rules that check it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

WINDOW = 12
"""Summaries that are kept."""


@dataclass(frozen=True)
class Summary:
    """One summary: environment steps and the finite ones among the family's watched metrics."""

    step: int
    values: Mapping[str, float]


@dataclass
class History:
    """The last summaries and the extremes of the whole run.

    random_until:    steps with random actions, ``start_step``
    reward_scale:    ``base_config.reward_scale``, a factor of values and temperatures but not of returns
    largest_return:  size of the largest return of any episode times ``reward_scale``, 0 before the first
    largest_reward:  the same per step of the episode
    longest_episode: mean steps of an episode, the largest so far
    random_returns:  means of the summaries with random actions, and in any case of the first one
    """

    random_until: int
    reward_scale: float = 1.0
    rows: deque[Summary] = field(default_factory=lambda: deque(maxlen=WINDOW))
    largest_return: float = 0.0
    largest_reward: float = 0.0
    longest_episode: float = 0.0
    random_returns: list[float] = field(default_factory=list)

    def add(self, row: Summary) -> None:
        """Store a summary."""
        self.rows.append(row)
        names = ("rollout/return_mean", "rollout/return_min", "rollout/return_max")
        sizes = [self.reward_scale * abs(row.values[name]) for name in names if name in row.values]
        length = row.values.get("rollout/length")
        if not sizes or not length:
            return
        size = max(sizes)
        self.largest_return = max(self.largest_return, size)
        self.largest_reward = max(self.largest_reward, size / length)
        self.longest_episode = max(self.longest_episode, length)
        if not self.random_returns or row.step <= self.random_until:
            self.random_returns.append(row.values["rollout/return_mean"])

    def known(self, name: str, count: int) -> list[float]:
        """Return the metric in those of the last ``count`` summaries that have it."""
        return [row.values[name] for row in list(self.rows)[-count:] if name in row.values]

    def last(self, name: str, count: int) -> list[float]:
        """Return the metric in the last ``count`` summaries; empty unless all of them have it."""
        values = self.known(name, count)
        return values if len(values) == count else []

    def span(self, count: int) -> int:
        """Return the environment steps between the last summary and the one ``count`` before it."""
        return self.rows[-1].step - self.rows[-1 - count].step

    def ahead(self, gamma: float) -> float:
        """Return the maximum horizon of a value in steps: 1 / (1 − γ), or an episode with γ = 1."""
        return 1 / (1 - gamma) if gamma < 1 else self.longest_episode

    @property
    def scaled(self) -> str:
        """Words behind ``largest_return``; none where it is in the environment's own unit."""
        return "" if self.reward_scale == 1 else f", scaled by reward_scale ({self.reward_scale:g})"

    def horizon(self, gamma: float) -> float:
        """Return the horizon of a value in steps: 1 / (1 − γ), or an episode where that is shorter."""
        return min(self.longest_episode, self.ahead(gamma))

    @property
    def random_return(self) -> float:
        """Mean return of random actions; an episode must have ended."""
        return sum(self.random_returns) / len(self.random_returns)

    def earned(self, gamma: float) -> float:
        """Return the largest value of rewards alone: the largest return or a lasting largest reward."""
        return max(self.largest_return, self.largest_reward * self.ahead(gamma))

    @property
    def return_scale(self) -> float:
        """Reward that corresponds to 1 in the learner's unit."""
        return next(iter(self.last("value/return_scale", 1)), 1.0)

    def bonus(self, gamma: float, parts: str) -> dict[str, float]:
        """Return the present entropy's bonus in a value over the whole horizon, by part: ``c``, ``d``."""
        found = {}
        for part in parts:
            alpha, entropy = self.last(f"policy/alpha_{part}", 1), self.last(f"policy/entropy_{part}", 1)
            if alpha and entropy:
                found[part] = alpha[0] * entropy[0] * self.return_scale * self.ahead(gamma)
        return found


def rises(values: list[float]) -> bool:
    """Return whether each value is above the one before."""
    return all(after > before for before, after in pairwise(values))


Rule = Callable[[History], "str | None"]
"""A rule of the health monitor: a line for a person once trouble is certain, else None."""
