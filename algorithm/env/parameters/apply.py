"""Parameters of an episode on their way into a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from algorithm.core.errors import UsageError, described
from algorithm.core.plugins import mismatch
from algorithm.core.seeding import stream
from algorithm.core.steps import Double
from algorithm.env.parameters.config import KEY
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.wrappers import wrappers_around

Targets = Mapping[str, str | None]
"""Parameter -> attribute or method that takes its value; None: the option of that name of ``reset``."""

NO_TARGETS: Targets = MappingProxyType({})


def with_parameters(env: gym.Env[Any, Any], source: ParameterSource) -> gym.Env[Any, Any]:
    """Wrap an environment so that its episodes have the parameters; return it unchanged if there are none."""
    return WithParameters(env, source) if source.names else env


class SetAttributes:
    """Resets of an environment that apply parameters: by options of ``reset``, by attributes, or by methods.

    Attributes are set before the reset.

    targets: in the order of the values; empty for plain resets
    Raises UsageError for a target that the environment and its wrappers do not have.
    """

    def __init__(self, env: gym.Env, targets: Targets) -> None:
        self._env = env
        self._setters = {
            place: _find(env, name, path)
            for place, (name, path) in enumerate(targets.items())
            if path is not None
        }
        self._options = {place: name for place, (name, path) in enumerate(targets.items()) if path is None}

    def reset(
        self, seed: int | None, options: Mapping[str, Any] | None, values: Sequence[float] | Double
    ) -> tuple[Any, Any]:
        """Reset the environment with the values [K] of the parameters; return observation and info.

        Raises UsageError for a value that it does not take.
        """
        held = [(setter, setter.set(float(values[place]))) for place, setter in self._setters.items()]
        named = {name: float(values[place]) for place, name in self._options.items()}
        result = self._env.reset(seed=seed, options={**(options or {}), **named} or None)
        for setter, value in held:
            setter.check(value)
        return result


class WithParameters(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose episodes have parameters, drawn from the episode's seed.

    For a reset without a seed, the wrapper draws one itself.
    """

    def __init__(self, env: gym.Env[Any, Any], source: ParameterSource) -> None:
        super().__init__(env)
        self._source = source
        self._parameters = SetAttributes(env, source.targets)
        self._seeds = np.random.default_rng()

    @property
    @override
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # as in gymnasium.Wrapper
        """The spec of the wrapped environment, from which Gymnasium can make it again."""
        return self.env.spec

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self._seeds = stream(seed, "parameters", "later episodes")
        episode_seed = int(self._seeds.integers(2**31)) if seed is None else seed
        return self._parameters.reset(seed, options, self._source.draw(episode_seed))


@dataclass(frozen=True)
class _Setter:
    """A setter of one number in an environment: of an attribute, an item of an array, or by a method.

    The path is followed at every call, since a reset may replace the objects on it.

    where: key of the configuration, for messages
    original: the number that was there at first, or the method
    """

    where: str
    layer: Any
    path: Sequence[str | int]
    original: Any

    def set(self, value: float) -> Any:  # noqa: ANN401 - what is there
        """Set the number; return its value now, None for a method. Raises UsageError if that fails."""
        if callable(self.original):
            self._now()(value)
            return None
        *way, key = self.path
        owner = reduce(_get, way, self.layer)
        whole = np.asarray(self.original).dtype.kind in "iub"  # as range() requires
        number: Any = int(value) if whole and value.is_integer() else value
        try:
            if isinstance(self.original, np.ndarray):
                number = np.array(number, self.original.dtype)
            if isinstance(key, int):
                owner[key] = number
            else:
                setattr(owner, key, number)
        except _WRONG as error:
            raise _refusal(self.where, self.path, f"cannot be set to {value:g}", described(error)) from error
        held = self._now()
        if whole and held != value:
            why = f"it holds whole numbers and became {held}"
            raise _refusal(self.where, self.path, f"cannot be set to {value:g}", why)
        return held.item() if isinstance(held, np.ndarray) else held  # a reset may write into the array

    def check(self, held: Any) -> None:  # noqa: ANN401 - what was there
        """Raise UsageError if a reset has undone what :meth:`set` returned."""
        if held is not None and held != self.original and self._now() == self.original:
            raise _refusal(
                self.where, self.path, "has no effect", f"reset() sets it to {self.original} again"
            )

    def _now(self) -> Any:  # noqa: ANN401 - what is there
        """Return the present value at the path."""
        return reduce(_get, self.path, self.layer)


_WRONG = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
"""Errors of a path that does not exist, or takes no number."""


def _find(env: gym.Env, name: str, path: str) -> _Setter:
    """Return the setter of ``path``, in the outermost wrapper or environment that has its first name."""
    first, *others = path.split(".")
    layers = (*wrappers_around(env), env.unwrapped)
    layer = next((candidate for candidate in layers if hasattr(candidate, first)), env.unwrapped)
    way = [first, *(int(part) if part.isdecimal() else part for part in others)]
    where = f"{KEY}.{name}.set"
    try:
        target = reduce(_get, way, layer)
    except _WRONG as error:
        raise _refusal(where, way, "does not exist", described(error)) from error
    number = isinstance(target, int | float | np.number) or (
        isinstance(target, np.ndarray) and target.shape == () and target.dtype.kind in "iuf"
    )
    if mismatch(target, 0.0) if callable(target) else not number:
        raise _refusal(where, way, "is no number", f"it is {type(target).__name__} {target!r:.60}")
    return _Setter(where, layer, way, target)


def _get(owner: Any, key: str | int) -> Any:  # noqa: ANN401 - any object
    """Return an item or an attribute."""
    return owner[key] if isinstance(key, int) else getattr(owner, key)


def _refusal(where: str, path: Sequence[str | int], what: str, why: str) -> UsageError:
    """Return the error for a path that does not exist, or whose value cannot be set or has no effect."""
    return UsageError(
        f"'{'.'.join(map(str, path))}' {what}",
        where=where,
        why=why,
        fix="name an attribute that is a number, an item of an array such as gravity.2, a method of one "
        "argument, or an option that reset() reads",
    )
