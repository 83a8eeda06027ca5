"""One copy of an environment, whatever simulator is behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from algorithm.data import Array, Bool, Float
from algorithm.env.base import Picture
from algorithm.spec import AgentSpec


class BrokenSpaceError(Exception):
    """An environment does not keep to what it announced."""


class Seen(NamedTuple):
    """What an agent sees and may do."""

    obs: Mapping[str, Array]  # name -> observation; it may be the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None where all are


class OwnActions(Protocol):
    """Turns flat actions into a simulator's own. Pickled by worker processes."""

    def to_env(self, action: Float) -> Any:  # noqa: ANN401 - whatever the simulator takes
        """Of a flat action [A]."""
        ...


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
    def actions(self) -> OwnActions:
        """What becomes of a flat action."""
        ...

    @property
    def time_limit(self) -> int | None:
        """Steps after which an episode is truncated, where it is known."""
        ...

    @property
    def fps(self) -> float | None:
        """Steps per second of the simulator's own time, where it is known."""
        ...

    @property
    def render_modes(self) -> tuple[str, ...]:
        """Gymnasium's names of the ways in which it can be shown."""
        ...

    def reset(self, seed: int) -> Seen:
        """Begin an episode; its first observation. Raises BrokenSpaceError."""
        ...

    def step(self, action: Float) -> tuple[Seen, float, bool, bool]:
        """A flat action [A] -> observation, reward, terminated, truncated. Raises BrokenSpaceError."""
        ...

    def render(self) -> Picture | None:
        """A picture of it; None if it was not made to give any. Raises EnvError."""
        ...

    def close(self) -> None:
        """Release the simulator."""
        ...


MakeSingle = Callable[[int], SingleEnv]
"""Index of a copy -> that copy. Pickled for worker processes, so not a lambda. Raises EnvError."""
