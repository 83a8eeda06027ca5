"""Running statistics of returns, to scale rewards."""

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
"""Smallest divisor of rewards: a return below it is rounding."""

ORDINARY = (0.5, 500.0)
"""Spreads of returns that are learned as they are under ``reward_scaling: auto``."""

FIRST = 1000
"""Steps that decide where no random actions come first."""

USUAL = 15.0
"""Spread that other returns get there: about that of MuJoCo's and Bullet's tasks."""


def _ignore(line: str) -> None:
    """Drop a message."""


class NoReturnScale:
    """Absent scaling: rewards as they are."""

    factor = scale = 1.0
    on_message: Callable[[str], None] = staticmethod(_ignore)

    def observe(self, new: Rewarded) -> None:
        """Do nothing: there are no statistics."""

    def close(self, stream: int) -> None:
        """Do nothing: no return is open."""

    def metrics(self) -> dict[str, Tensor]:
        """Return nothing to log."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return no state."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""

    def roll_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""


class ReturnScale:
    """Factor on rewards: 1/max(σ_G, max |G|/5), of the discounted returns G so far.

    G ← γ G + r runs along each stream and is 0 at an episode's start and after a gap. σ_G is the standard
    deviation of every G since the start. The bound by the largest |G| keeps a rare large return, such as
    that of a goal, at order one (arXiv 2502.15280, section 4.3). The factor is 1 before a return differs
    from 0. The statistics are plain numbers, so that no transition waits for a device.

    gamma:   γ in [0, 1]
    count:   returns so far
    mean:    of these returns
    square:  sum of their squared deviations from the mean
    largest: the largest |G|
    factor:  of rewards, from the four above
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self.on_message: Callable[[str], None] = _ignore
        self._open = OpenStreams(np.float64)  # running discounted returns
        self.count = self.mean = self.square = self.largest = 0.0
        self.factor = 1.0
        # Of one number without dimensions dynamo would begin its analysis anew.
        self._scale = torch.ones(1, dtype=torch.float64)

    @property
    def scale(self) -> Tensor:
        """The factor as a tensor [], float64, which updates read."""
        return self._scale[0]

    def observe(self, new: Rewarded) -> None:
        """Take the rewards of new transitions into the statistics.

        One return at a time (Welford, 1962): most come alone, and it does not matter how many come at once.
        """
        if isinstance(new, StepBatch) and new.follows is None:
            self._follow_step(new)
        else:
            for stream, start, rewards, ended in new.rewards():
                self._follow(stream, start, rewards, ended=ended)
        self._set_factor()

    def close(self, stream: int) -> None:
        """End the stream's episode here; of one that goes on, the next return is its reward alone."""
        self._open.close(stream)

    @property
    def spread(self) -> float:
        """max(σ_G, max |G|/5), or 0 as long as that is no more than rounding."""
        spread = max((self.square / self.count) ** 0.5, self.largest / LARGEST) if self.count else 0.0
        return spread if spread > SMALLEST else 0.0

    def _set_factor(self) -> None:
        self.factor = self._factor_of(self.spread) if self.spread else 1.0
        self._scale.fill_(self.factor)

    def _factor_of(self, spread: float) -> float:
        return 1.0 / spread

    def _follow(self, stream: int, start: int, rewards: list[float], *, ended: bool) -> None:
        """Take G after each of the stream's ``rewards`` from step ``start`` on, where it is usable."""
        before = self._open.get(stream)
        value = before.number if before is not None and before.step == start > 0 else 0.0
        found = []
        for reward in rewards:
            value = self._gamma * value + reward
            if abs(value) < UNUSABLE:
                found.append(value)
            else:
                value = 0.0
        self._count(found)
        if ended:
            self._open.close(stream)
        else:
            self._open.put(stream, start + len(rewards), value)

    def _follow_step(self, new: StepBatch) -> None:
        """Do the same for a step of many streams."""
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
        """Return the divisor of rewards."""
        return {"value/return_scale": self.scale.reciprocal().float()}

    def tensors(self) -> dict[str, Tensor]:
        """Return ``statistics`` [4] float64: count, mean, square, largest.

        With the open returns of n streams, oldest first: ``stream`` and ``step`` [n] int64, ``value`` [n].
        """
        opened = list(self._open)
        return {
            "statistics": torch.tensor(
                [self.count, self.mean, self.square, self.largest], dtype=torch.float64
            ),
            "stream": torch.tensor([stream for stream, _ in opened], dtype=torch.int64),
            "step": torch.tensor([one.step for _, one in opened], dtype=torch.int64),
            "value": torch.tensor([one.number for _, one in opened], dtype=torch.float64),
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
    """One factor for the whole run, by the first ``steps`` returns (``reward_scaling: auto``).

    It is 1 where these spread by :data:`ORDINARY`. Otherwise it gives them the spread :data:`USUAL`, so that
    the unit of rewards does not matter. While every return is 0, it waits for the first other one.
    """

    def __init__(self, gamma: float, steps: int) -> None:
        super().__init__(gamma)
        self._steps = steps

    @override
    def observe(self, new: Rewarded) -> None:
        """Take rewards into the statistics until these decide."""
        if self.decided:
            return
        super().observe(new)
        if self.decided and self.factor != 1.0:
            self.on_message(f"rewards are {self}")

    @property
    def decided(self) -> bool:
        """The factor stays as it is."""
        return self.count >= self._steps and self.spread > 0.0

    @override
    def _factor_of(self, spread: float) -> float:
        return 1.0 if ORDINARY[0] <= spread <= ORDINARY[1] else USUAL / spread

    @override
    def __str__(self) -> str:
        low, high = ORDINARY
        if not self.decided:
            first = f"the first {self._steps:,} steps"
            return f"unscaled, unless returns of {first} spread by less than {low:g} or more than {high:g}"
        how = "unscaled" if self.factor == 1.0 else f"multiplied by {self.factor:.3g}"
        return f"{how}: returns of random actions spread by {self.spread:.3g}"


def make_return_scale(
    scaling: bool | Literal["auto"], gamma: float, first: int
) -> ReturnScale | NoReturnScale:
    """Return the scale that ``reward_scaling`` asks for; first: steps before learning begins."""
    if scaling == "auto":
        return FirstReturnScale(gamma, first)
    return ReturnScale(gamma) if scaling else NoReturnScale()
