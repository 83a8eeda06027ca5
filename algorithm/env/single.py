"""One copy of an environment, whatever simulator is behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from algorithm.data import Array, Float
from algorithm.spec import AgentSpec


class SingleEnv(Protocol):
    """An environment with one agent."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    @property
    def spec(self) -> AgentSpec:
        """What its agent sees and does."""
        ...

    @property
    def time_limit(self) -> int | None:
        """Steps after which an episode is truncated, where it is known."""
        ...

    def reset(self, seed: int) -> Mapping[str, Array]:
        """Begin an episode; name -> first observation. It may be the environment's own array."""
        ...

    def step(self, action: Float) -> tuple[Mapping[str, Array], float, bool, bool]:
        """A flat action [A] in [-1, 1] -> observation, reward, terminated, truncated."""
        ...

    def close(self) -> None:
        """Release the simulator."""
        ...


MakeSingle = Callable[[int], SingleEnv]
"""Index of a copy -> that copy. Pickled for worker processes, so not a lambda. Raises EnvError."""
