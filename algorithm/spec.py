"""What an agent sees and does: names, shapes, dtypes and the layout of the flat action.

These are plain values. Everything that depends on a space (replay columns, default networks, heads) is
built from them, never from a simulator's own space objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Z_LIMIT = 7.0
"""Acting clamps the pre-tanh value to ±Z_LIMIT: beyond it float32 ``tanh`` rounds to ±1."""

DEFAULT_BEHAVIOUR = "default"
"""The behaviour name of environments that know only one kind of agent."""


@dataclass(frozen=True)
class ObsSpec:
    """Any mix of named observations, in a fixed order.

    names:  one per observation; a plain Box is called ``obs``.
    shapes: without batch or time dimension.
    dtypes: numpy dtype names as the replay stores them; real numbers are always ``float32``.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.shapes) == len(self.dtypes):
            raise ValueError("ObsSpec: names, shapes and dtypes must have the same length")
        if not self.names:
            raise ValueError("ObsSpec: an agent needs at least one observation")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"ObsSpec: names must be unique, got {self.names}")

    def items(self) -> tuple[tuple[str, tuple[int, ...], str], ...]:
        """(name, shape, dtype) of each observation, in order."""
        return tuple(zip(self.names, self.shapes, self.dtypes, strict=True))

    @property
    def flat_size(self) -> int:
        """Number of elements of one whole observation."""
        return sum(prod(shape) for shape in self.shapes)

    def zeros(self, *lead: int) -> dict[str, NDArray[np.generic]]:
        """An all-zero observation with leading dimensions ``lead``."""
        return {name: np.zeros((*lead, *shape), dtype) for name, shape, dtype in self.items()}


@dataclass(frozen=True)
class ActionSpec:
    """Layout of the flat action: a one-hot per discrete branch, then the continuous part in [-1, 1].

    branches:   number of choices of each discrete branch; empty when there is none.
    continuous: size of the continuous part; 0 when there is none.
    """

    branches: tuple[int, ...] = ()
    continuous: int = 0

    def __post_init__(self) -> None:
        if self.continuous < 0 or any(n < 1 for n in self.branches):
            raise ValueError(f"ActionSpec: sizes must be positive, got {self}")
        if self.size == 0:
            raise ValueError("ActionSpec: an agent needs at least one action")

    @property
    def discrete(self) -> int:
        """Width of the one-hot part, the sum of all branches."""
        return sum(self.branches)

    @property
    def size(self) -> int:
        """Width A of the flat action."""
        return self.discrete + self.continuous

    @property
    def num_heads(self) -> int:
        """H: parts whose behaviour log-probability is stored apart (discrete, continuous)."""
        return bool(self.branches) + bool(self.continuous)

    def padding(self, *lead: int) -> NDArray[np.float32]:
        """The action "before the first step": all zeros, [*lead, A]."""
        return np.zeros((*lead, self.size), np.float32)

    def random(
        self, rng: np.random.Generator, n: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Uniformly random actions as the warm-up takes them.

        Returns the flat action [n, A], its pre-tanh value z [n, continuous] and the behaviour log-probability
        [n, H] (discrete part first): −Σ log n_b and −|A_c|·log 2, the density of u on [-1, 1].
        """
        action = np.zeros((n, self.size), np.float32)
        start = 0
        for width in self.branches:
            action[np.arange(n), start + rng.integers(width, size=n)] = 1.0
            start += width
        uniform = rng.uniform(-1.0, 1.0, (n, self.continuous))
        z = np.arctanh(uniform).clip(-Z_LIMIT, Z_LIMIT).astype(np.float32)
        action[:, self.discrete :] = np.tanh(z)
        parts = []
        if self.branches:
            parts.append(-float(np.log(np.array(self.branches)).sum()))
        if self.continuous:
            parts.append(-self.continuous * float(np.log(2.0)))
        return action, z, np.tile(np.array(parts, np.float32), (n, 1))


@dataclass(frozen=True)
class AgentSpec:
    """What one behaviour sees and does."""

    obs: ObsSpec
    action: ActionSpec


def stack_obs(observations: list[Mapping[str, NDArray[np.generic]]]) -> dict[str, NDArray[np.generic]]:
    """Stack single observations along a new first dimension, name by name."""
    return {name: np.stack([obs[name] for obs in observations]) for name in observations[0]}
