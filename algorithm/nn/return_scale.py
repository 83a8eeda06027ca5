"""Scaling of rewards by running statistics of returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import Rewarded, StepBatch
from algorithm.core.open_streams import OpenStreams
from algorithm.nn.normalise import UNUSABLE

LARGEST = 5.0
"""Bound of the largest return so far, after scaling."""

SMALLEST = 1e-8
"""Smallest divisor of rewards: a smaller spread of returns is rounding."""

ORDINARY = (0.5, 500.0)
"""Range of spreads of returns that ``reward_scaling: auto`` does not scale."""

FIRST = 1000
"""Number of steps after which ``auto`` decides, if a training does not begin with random actions."""

USUAL = 15.0
"""Spread to which ``auto`` scales other returns: about that of MuJoCo's and Bullet's tasks."""


def _ignore(line: str) -> None:
    """Ignore a message: nothing is to be reported."""


class NoReturnScale:
    """Scale of 1: rewards are not changed."""

    factor = scale = 1.0
    on_message: Callable[[str], None] = staticmethod(_ignore)

    def observe(self, new: Rewarded) -> None:
        """Do nothing: there are no statistics."""

    def close(self, stream: int) -> None:
        """Do nothing: no return is open."""

    def metrics(self) -> dict[str, Tensor]:
        """Return {}: there is nothing to log."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return {}: there is no state."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""

    def roll_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""


class ReturnScale:
    """Factor on rewards: 1/max(σ_G, max |G|/5), of the discounted returns G so far.

    G ← γ G + r is updated along each stream; it is 0 at an episode's start and after a gap. σ_G is the
    standard deviation of all G since the start. The bound by the largest |G| keeps a rare large return, such
    as that of a goal, at order one (arXiv 2502.15280, section 4.3). The factor is 1 until a return differs
    from 0. The statistics are plain numbers, so that storing a transition does not wait for a device.

    gamma:   γ in [0, 1]
    count:   number of returns so far
    mean:    mean of these returns
    square:  sum of their squared deviations from the mean
    largest: the largest |G|
    factor:  factor on rewards, computed from the four above
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self.on_message: Callable[[str], None] = _ignore
        self._open = OpenStreams(np.float64)  # running discounted returns
        self.count = self.mean = self.square = self.largest = 0.0
        self.factor = 1.0
        # Of shape [1]: for a changed scalar tensor dynamo would compile again.
        self._scale = torch.ones(1, dtype=torch.float64)

    @property
    def scale(self) -> Tensor:
        """The factor as a tensor [], float64, which updates read."""
        return self._scale[0]

    def observe(self, new: Rewarded) -> None:
        """Add the rewards of new transitions to the statistics.

        Returns are added one at a time (Welford, 1962), so the result does not depend on the batches.
        """
        if isinstance(new, StepBatch) and new.follows is None and len(new) > 1:
            self._follow_step(new)  # arrays pay from two streams on
        else:
            for stream, start, rewards, ended in new.rewards():
                self._follow(stream, start, rewards, ended=ended)
        self._set_factor()

    def close(self, stream: int) -> None:
        """End the stream's episode here; if it goes on all the same, its return begins anew at 0."""
        self._open.close(stream)

    @property
    def spread(self) -> float:
        """max(σ_G, max |G|/5), or 0 while that is below :data:`SMALLEST`."""
        spread = max((self.square / self.count) ** 0.5, self.largest / LARGEST) if self.count else 0.0
        return spread if spread > SMALLEST else 0.0

    def _set_factor(self) -> None:
        self.factor = self._factor_of(self.spread) if self.spread else 1.0
        self._scale.fill_(self.factor)

    def _factor_of(self, spread: float) -> float:
        return 1.0 / spread

    def _follow(self, stream: int, start: int, rewards: list[float], *, ended: bool) -> None:
        """Count G after each of the stream's ``rewards`` from step ``start`` on; an unusable G resets it."""
        before = self._open.get(stream)
        value = before.number if before is not None and before.step == start > 0 else 0.0
        returns = []
        for reward in rewards:
            value = self._gamma * value + reward
            if abs(value) < UNUSABLE:
                returns.append(value)
            else:
                value = 0.0
        self._count(returns)
        if ended:
            self._open.close(stream)
        else:
            self._open.put(stream, start + len(rewards), value)

    def _follow_step(self, new: StepBatch) -> None:
        """Count G after a step of many streams, as :meth:`_follow` does for one stream."""
        starts = new.start_steps
        known, at, before = self._open.of(new.streams)
        follows = known & (at == starts) & (starts > 0)
        values = self._gamma * np.where(follows, before, 0.0) + new.reward.astype(np.float64)
        usable = np.abs(values) < UNUSABLE
        self._count(values[usable].tolist())
        ended = new.terminated | new.truncated
        self._open.renew(new.streams, starts + 1, np.where(usable, values, 0.0), ended)

    def _count(self, values: Sequence[float]) -> None:
        count, mean, square = self.count, self.mean, self.square  # local names are faster
        for value in values:
            delta, share = value - mean, 1.0 / (count + 1.0)
            square += delta * delta * count * share
            mean += delta * share
            count += 1.0
        self.count, self.mean, self.square = count, mean, square
        self.largest = max(self.largest, *map(abs, values), 0.0)

    def metrics(self) -> dict[str, Tensor]:
        """Return the divisor of rewards as ``value/return_scale``."""
        return {"value/return_scale": self.scale.reciprocal().float()}

    def tensors(self) -> dict[str, Tensor]:
        """Return ``statistics`` [4] float64: count, mean, square, largest; and the open returns.

        Those of n streams, oldest first, are ``stream`` and ``step`` [n] int64, and ``value`` [n].
        """
        opened = list(self._open)
        return {
            "statistics": torch.tensor(
                [self.count, self.mean, self.square, self.largest], dtype=torch.float64
            ),
            "stream": torch.tensor([stream for stream, _ in opened], dtype=torch.int64),
            "step": torch.tensor([x.step for _, x in opened], dtype=torch.int64),
            "value": torch.tensor([x.number for _, x in opened], dtype=torch.float64),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of :meth:`tensors`. Raises KeyError if something is missing."""
        rows = zip(*(tensors[name].tolist() for name in ("stream", "step", "value")), strict=True)
        self._open = OpenStreams(np.float64)
        for stream, step, value in rows:
            self._open.put(stream, step, value)
        self.roll_back(tensors)

    def roll_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the statistics only: episodes go on. Raises KeyError if they are missing."""
        self.count, self.mean, self.square, self.largest = tensors["statistics"].tolist()
        self._set_factor()


class FirstReturnScale(ReturnScale):
    """Factor that the first ``steps`` returns set for the whole run (``reward_scaling: auto``).

    It is 1 if their spread is within :data:`ORDINARY`. Otherwise it scales the spread to :data:`USUAL`, so
    that the unit of rewards does not matter. While all returns are 0, it is not set.
    """

    def __init__(self, gamma: float, steps: int) -> None:
        super().__init__(gamma)
        self._steps = steps

    @override
    def observe(self, new: Rewarded) -> None:
        """Add rewards to the statistics until the factor is set; report a factor other than 1."""
        if self.resolved:
            return
        super().observe(new)
        if self.resolved and self.factor != 1.0:
            self.on_message(f"rewards are {self}")

    @property
    def resolved(self) -> bool:
        """True if the factor is set for the rest of the run."""
        return self.count >= self._steps and self.spread > 0.0

    @override
    def _factor_of(self, spread: float) -> float:
        return 1.0 if ORDINARY[0] <= spread <= ORDINARY[1] else USUAL / spread

    @override
    def __str__(self) -> str:
        low, high = ORDINARY
        if not self.resolved:
            first = f"the first {self._steps:,} steps"
            return f"unscaled, unless returns of {first} spread by less than {low:g} or more than {high:g}"
        how = "unscaled" if self.factor == 1.0 else f"multiplied by {self.factor:.3g}"
        return f"{how}: returns of random actions spread by {self.spread:.3g}"


def make_return_scale(
    scaling: bool | Literal["auto"], gamma: float, first: int
) -> ReturnScale | NoReturnScale:
    """Return the scale that the key ``reward_scaling`` selects; first: steps before learning begins."""
    if scaling == "auto":
        return FirstReturnScale(gamma, first)
    return ReturnScale(gamma) if scaling else NoReturnScale()
