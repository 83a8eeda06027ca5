"""One copy of an environment, whatever simulator is behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from algorithm.data import Array, Bool, Float
from algorithm.env.base import Picture
from algorithm.spec import AgentSpec


class SpaceMismatchError(Exception):
    """An environment does not keep to what it announced."""


def as_number(value: Any, what: str) -> float:  # noqa: ANN401 - whatever an environment returns
    """A real number, also as an array of one; ``float`` would take text. Raises SpaceMismatchError."""
    if type(value) is float or isinstance(value, (int, np.floating)):
        return float(value)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "fiub" or array.size != 1:
        raise SpaceMismatchError(f"{what} is {value!r:.40}, a {type(value).__name__}, and no number")
    return float(array.item())


def as_bool(value: Any, what: str) -> bool:  # noqa: ANN401 - whatever an environment returns
    """True or false, also as a number; ``bool`` would take 'False' for true. Raises SpaceMismatchError."""
    return bool(value) if isinstance(value, (bool, np.bool_)) else bool(as_number(value, what))


class TimeStep(NamedTuple):
    """What an agent sees and may do."""

    obs: Mapping[str, Array]  # name -> observation; it may be the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None where all are
    out_of_bounds: Mapping[str, str] = MappingProxyType({})  # name -> what left its bounds for the first time


class ActionDecoder(Protocol):
    """Turns flat actions into a simulator's own. Pickled by worker processes."""

    def to_env(self, action: Float) -> Any:  # noqa: ANN401 - whatever the simulator takes
        """Of a flat action [A]."""
        ...


class SingleEnv(Protocol):
    """An environment with one agent."""

    name: str  # for messages
    spec: AgentSpec
    actions: ActionDecoder
    time_limit: int | None  # steps after which an episode is truncated, where it is known
    fps: float | None  # steps per second of simulated time, where it is known
    render_modes: tuple[str, ...]  # Gymnasium's names of the ways in which it can be shown

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode; its first observation. Raises SpaceMismatchError."""
        ...

    def step(self, action: Float) -> tuple[TimeStep, float, bool, bool]:
        """A flat action [A] -> observation, reward, terminated, truncated. Raises SpaceMismatchError."""
        ...

    def render(self) -> Picture | None:
        """A picture of it; None if it was not made to give any. Raises EnvError."""
        ...

    def close(self) -> None:
        """Release the simulator."""
        ...


MakeEnv = Callable[[int], SingleEnv]
"""Index of a copy -> that copy. Pickled for worker processes, so not a lambda. Raises EnvError."""
