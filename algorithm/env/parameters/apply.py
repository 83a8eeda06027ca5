"""Parameters of an episode on their way into a Gymnasium environment."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.core.plugins import mismatch
from algorithm.core.seeding import stream
from algorithm.core.steps import Double
from algorithm.env.parameters.config import KEY
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.wrappers import wrappers_around

Targets = Mapping[str, str | None]
"""Parameter -> attribute or method that takes its value; None: the option of that name of ``reset``."""

NO_TARGETS: Targets = MappingProxyType({})

_SHOWN = 8  # names in a message


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
        whole = isinstance(self.original, Integral)  # as range() requires
        number = int(value) if whole and value.is_integer() else value
        try:
            if isinstance(key, int):
                owner[key] = number
            else:
                setattr(owner, key, number)
        except (AttributeError, TypeError, ValueError) as error:
            raise self._refusal(f"cannot be set to {value:g}", f"{type(error).__name__}: {error}") from error
        held = self._now()
        if whole and held != value:
            raise self._refusal(f"cannot be set to {value:g}", f"it holds whole numbers and became {held}")
        return held

    def check(self, held: Any) -> None:  # noqa: ANN401 - what was there
        """Raise UsageError if a reset has undone what :meth:`set` returned."""
        if held is not None and held != self.original and self._now() == self.original:
            raise self._refusal("has no effect", f"reset() sets it to {self.original} again")

    def _now(self) -> Any:  # noqa: ANN401 - what is there
        """Return the present value at the path."""
        return reduce(_get, self.path, self.layer)

    def _refusal(self, what: str, why: str) -> UsageError:
        """Return the error for a value that cannot be set, or has no effect."""
        return UsageError(
            f"'{'.'.join(map(str, self.path))}' {what}",
            where=self.where,
            why=why,
            fix="name another attribute, or a method, or an option that reset() reads",
        )


def _find(env: gym.Env, name: str, path: str) -> _Setter:
    """Return the setter of ``path``, in the outermost wrapper or environment that has its first name."""
    first, *others = path.split(".")
    layer: Any = next(
        (candidate for candidate in (*wrappers_around(env), env.unwrapped) if hasattr(candidate, first)), None
    )
    if layer is None:
        raise _missing(name, path, first, env.unwrapped)
    owner = layer
    key: str | int = first
    way = [key]
    for part in others:
        owner = _get(owner, key)
        key = int(part) if part.isdecimal() else part
        way.append(key)
        is_there = key < _length(owner) if isinstance(key, int) else hasattr(owner, key)
        if not is_there:
            raise _missing(name, path, part, owner)
    target = _get(owner, key)
    if mismatch(target, 0.0) if callable(target) else not _is_number(target):
        raise UsageError(
            f"{path!r} cannot be set to a number",
            where=f"{KEY}.{name}.set",
            why=f"it is {type(target).__name__} {target!r:.60}",
            fix="name an attribute that is a number, an item of an array such as gravity.2, or a method of "
            "one argument",
        )
    return _Setter(f"{KEY}.{name}.set", layer, way, target)


def _names(owner: Any) -> list[str]:  # noqa: ANN401 - any object
    """Return the public attributes of an object."""
    return [name for name in dir(owner) if not name.startswith("_")]


def _get(owner: Any, key: str | int) -> Any:  # noqa: ANN401 - any object
    """Return an item or an attribute."""
    return owner[key] if isinstance(key, int) else getattr(owner, key)


def _is_number(value: object) -> bool:
    """Return whether a value is a single number."""
    return isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray) and value.ndim == 0)


def _numbers(owner: Any) -> list[str]:  # noqa: ANN401 - any object
    """Return the names of an object's attributes that are numbers."""
    names = (name for name in _names(owner) if not name.startswith("np_random"))
    return [name for name in names if _is_number(getattr(owner, name, None))]


def _length(owner: Any) -> int:  # noqa: ANN401 - any object
    """Return how many items of an object can be set; 0 if none can."""
    return len(owner) if hasattr(owner, "__setitem__") and hasattr(owner, "__len__") else 0


def _missing(name: str, path: str, part: str, owner: Any) -> UsageError:  # noqa: ANN401 - any object
    """Return the error for a name in a path that ``owner`` does not have."""
    close = difflib.get_close_matches(part, _names(owner), n=3, cutoff=0.5)
    if part.isdecimal():
        size = _length(owner)
        fix = f"write an index from 0 to {size - 1}" if size else "leave the index out: it is not an array"
    elif close:
        fix = f"did you mean {' or '.join(close)}?"
    else:
        fix = f"its numeric attributes: {', '.join(_numbers(owner)[:_SHOWN]) or 'none'}"
    return UsageError(
        f"the environment has no {path!r}",
        where=f"{KEY}.{name}.set",
        why=f"there is no {part!r} in {type(owner).__name__}",
        fix=fix,
    )
