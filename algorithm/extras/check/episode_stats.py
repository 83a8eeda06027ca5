"""Statistics of episodes with random actions, as in the warm-up of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd

from algorithm.core.data import Array, Double
from algorithm.core.spec import ObsSpec
from algorithm.env.outputs import Remark, bad_number, fits_float32
from algorithm.env.spaces import Leaf, leaves
from algorithm.extras.check.context import CheckContext, CheckStep, EnvInstance, play

ROUNDING = 1e-6
"""Relative tolerance; float32 has about 1.2e-7, and computed values some times that."""


class RunningMoments(RunningMeanStd):
    """Count, mean, variance, minimum and maximum of arrays of one shape, element by element."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(epsilon=0, shape=shape)  # type: ignore[no-untyped-call]
        self.low = np.full(shape, np.inf)
        self.high = np.full(shape, -np.inf)

    def add(self, value: Double) -> None:
        """Include an array of that shape in the moments."""
        self.update(value[None])  # type: ignore[no-untyped-call]
        np.minimum(self.low, value, out=self.low)
        np.maximum(self.high, value, out=self.high)

    @property
    def std(self) -> Double:
        """Standard deviation of the population."""
        deviation: Double = np.sqrt(self.var)
        return deviation


class ObsStats:
    """Statistics of one leaf of the observation space.

    dtype:      of the observation in the replay
    moments:    of the observations that are finite
    not_finite: the first NaN or infinity, and where
    """

    def __init__(self, name: str, leaf: Leaf, spec: ObsSpec) -> None:
        at = spec.names.index(name)
        self.name, self.dtype = name, spec.dtypes[at]
        self.space = leaf.space
        self.is_box = isinstance(leaf.space, gym.spaces.Box)
        self.is_image = self.is_box and name in spec.images
        self.moments = RunningMoments(leaf.space.shape or ())
        self.not_finite = ""

    def add(self, value: Array, place: str) -> None:
        """Include an observation; ``place``: its seed and step, for messages."""
        numbers = np.asarray(value, np.float64)
        bad = ~fits_float32(numbers)
        if not bad.any():
            self.moments.add(numbers)
        elif not self.not_finite:
            at = np.argwhere(bad)[0].tolist()
            self.not_finite = f"{self.name}{at or ''} is {bad_number(numbers[bad][0])}, {place}"

    @property
    def outside(self) -> str:
        """Element, value and bounds of the number that was furthest outside of its Box, as text; or empty."""
        if not self.is_box or not self.moments.count:
            return ""
        ends = (self.space.low, self.moments.low), (self.space.high, self.moments.high)  # type: ignore[attr-defined]
        (low, least), (high, most) = ((end.astype(np.float64), seen) for end, seen in ends)
        beyond = np.maximum(low - least, most - high)
        if beyond.max() <= ROUNDING * max(1.0, float(np.abs([least, most]).max())):
            return ""
        at = np.unravel_index(int(beyond.argmax()), beyond.shape)
        value = least[at] if least[at] < low[at] else most[at]
        return f"{self.name}{[int(i) for i in at] or ''} = {value:.6g} in [{low[at]:g}, {high[at]:g}]"


class EpisodeEnd(NamedTuple):
    """Length and outcome of a finished episode."""

    length: int
    terminated: bool
    truncated: bool  # by the environment itself; both are false at the length limit of the check


@dataclass
class EpisodeStats:
    """Statistics of random episodes.

    instance: the one that was stepped; closed by now
    wrappers: remarks on wrappers that keep statistics
    not_finite: the first reward that is not finite, and where
    """

    instance: EnvInstance
    actions: list[Leaf]
    records: dict[str, ObsStats]
    wrappers: tuple[Remark, ...]
    rewards: RunningMoments = field(default_factory=lambda: RunningMoments(()))
    nonzero: int = 0
    not_finite: str = ""
    episodes: list[EpisodeEnd] = field(default_factory=list)
    steps: int = 0

    def add(self, now: CheckStep, limit: int) -> None:
        """Add the result of a reset or a step. limit: steps after which an episode is cut off."""
        place = self.instance.place
        for name, record in self.records.items():
            record.add(now.obs[name], place)
        if now.number:
            self._add_reward(now.reward, place)
        if now.over or now.number == limit:
            self.episodes.append(EpisodeEnd(now.number, now.terminated, now.truncated))

    def _add_reward(self, reward: float, place: str) -> None:
        self.steps += 1
        if fits_float32(reward):
            self.nonzero += reward != 0
            self.rewards.add(np.asarray(reward))
        elif not self.not_finite:
            self.not_finite = f"it is {bad_number(np.float64(reward))}, {place}"


def collect_stats(context: CheckContext) -> EpisodeStats:
    """Play random episodes until a limit is reached. Raises FindingError if the environment fails."""
    with context.instance() as instance:
        env = instance.bare
        # The names of the spec leave out an action mask among the observations.
        known = {leaf.name or "obs": leaf for leaf in leaves(env.observation_space, "observation", "")}
        spec = instance.spec.obs
        records = {name: ObsStats(name, known[name], spec) for name in spec.names}
        actions = leaves(env.action_space, "action", instance.env.name)
        stats = EpisodeStats(instance, actions, records, instance.env.remarks)
        over, limit = context.deadline(1.0), context.config.length_limit
        for now in play(instance, context.config, limit=limit):
            stats.add(now, limit)
            if stats.steps >= context.limits.steps or over():
                break
    return stats
