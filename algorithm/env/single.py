"""One copy of an environment, whatever simulator is behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from algorithm.data import Array, Bool, Float
from algorithm.env.base import Picture
from algorithm.spec import AgentSpec


class BrokenSpaceError(Exception):
    """An environment does not keep to what it announced."""


def number(value: Any, what: str) -> float:  # noqa: ANN401 - whatever an environment returns
    """A real number, also as an array of one; ``float`` would take text. Raises BrokenSpaceError."""
    if type(value) is float or isinstance(value, (int, np.floating)):
        return float(value)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "fiub" or array.size != 1:
        raise BrokenSpaceError(f"{what} is {value!r:.40}, a {type(value).__name__}, and no number")
    return float(array.item())


def flag(value: Any, what: str) -> bool:  # noqa: ANN401 - whatever an environment returns
    """True or false, also as a number; ``bool`` would take 'False' for true. Raises BrokenSpaceError."""
    return bool(value) if isinstance(value, (bool, np.bool_)) else bool(number(value, what))


class Seen(NamedTuple):
    """What an agent sees and may do."""

    obs: Mapping[str, Array]  # name -> observation; it may be the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None where all are
    outside: Mapping[str, str] = MappingProxyType({})  # name -> what left its bounds for the first time


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
