"""One copy of an environment, whatever simulator is behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from algorithm.data import Array, Bool, Float
from algorithm.spec import AgentSpec


class BrokenSpaceError(Exception):
    """An environment does not keep to what it announced."""


class Seen(NamedTuple):
    """What an agent sees and may do."""

    obs: Mapping[str, Array]  # name -> observation; it may be the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None where all are


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

    def reset(self, seed: int) -> Seen:
        """Begin an episode; its first observation. Raises BrokenSpaceError."""
        ...

    def step(self, action: Float) -> tuple[Seen, float, bool, bool]:
        """A flat action [A] -> observation, reward, terminated, truncated. Raises BrokenSpaceError."""
        ...

    def close(self) -> None:
        """Release the simulator."""
        ...


MakeSingle = Callable[[int], SingleEnv]
"""Index of a copy -> that copy. Pickled for worker processes, so not a lambda. Raises EnvError."""
