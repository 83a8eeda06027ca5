"""Parameters of an episode on their way into a Gymnasium environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from typing_extensions import override

from algorithm.core.data import Double
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream
from algorithm.env.parameters.config import KEY
from algorithm.env.parameters.source import ParameterSource

Targets = Mapping[str, str | None]
"""Parameter -> attribute or method that takes its value; None: the option of that name of ``reset``."""

NO_TARGETS: Targets = MappingProxyType({})

_SHOWN = 8  # names in a message


class Applied(Protocol):
    """Resets of an environment with the parameters of an episode."""

    def reset(
        self, env: gym.Env, seed: int | None, options: dict[str, Any] | None, values: Sequence[float] | Double
    ) -> tuple[Any, Any]:
        """Return what ``reset`` of the environment returns, with the values [K]."""


class NoParameters(Applied):
    """A plain reset."""

    @override
    def reset(
        self, env: gym.Env, seed: int | None, options: dict[str, Any] | None, values: Sequence[float] | Double
    ) -> tuple[Any, Any]:
        return env.reset(seed=seed, options=options)


def apply_to(env: gym.Env, targets: Targets) -> Applied:
    """Return what hands parameters to this environment. Raises UsageError for a target that it lacks."""
    return SetAttributes(env, targets) if targets else NoParameters()


def with_parameters(env: gym.Env[Any, Any], source: ParameterSource) -> gym.Env[Any, Any]:
    """Return an environment whose episodes have these parameters; itself, if there are none."""
    return WithParameters(env, source) if source.names else env


class Noted(dict[str, Any]):
    """Options of a reset that note which names the environment has looked at."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.seen: set[object] = set()

    def _all(self) -> Noted:
        self.seen.update(self.copy_plain())
        return self

    def copy_plain(self) -> dict[str, Any]:
        """Return the options without a note."""
        return {key: dict.__getitem__(self, key) for key in dict.__iter__(self)}

    @override
    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    @override
    def __contains__(self, key: object) -> bool:
        self.seen.add(key)
        return super().__contains__(key)

    @override
    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    @override
    def pop(self, key: str, *default: Any) -> Any:
        self.seen.add(key)
        return super().pop(key, *default)

    @override
    def setdefault(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().setdefault(key, default)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._all().copy_plain())

    @override
    def keys(self) -> Any:
        return self._all().copy_plain().keys()

    @override
    def values(self) -> Any:
        return self._all().copy_plain().values()

    @override
    def items(self) -> Any:
        return self._all().copy_plain().items()

    @override
    def copy(self) -> dict[str, Any]:
        return self._all().copy_plain()


class SetAttributes(Applied):
    """Resets with options for some parameters, and with attributes or methods that take the others.

    Attributes are set before the reset. The first reset shows whether the environment looks at its options.

    targets: in the order of the values
    Raises UsageError for a target that the environment and its wrappers do not have.
    """

    def __init__(self, env: gym.Env, targets: Targets) -> None:
        self._setters = {
            place: _find(env, name, path)
            for place, (name, path) in enumerate(targets.items())
            if path is not None
        }
        self._options = {place: name for place, (name, path) in enumerate(targets.items()) if path is None}
        self._unseen = bool(self._options)

    @override
    def reset(
        self, env: gym.Env, seed: int | None, options: dict[str, Any] | None, values: Sequence[float] | Double
    ) -> tuple[Any, Any]:
        values = [float(value) for value in values]
        for place, setter in self._setters.items():
            setter.set(values[place])
        named = {name: values[place] for place, name in self._options.items()}
        if not self._unseen:
            return env.reset(seed=seed, options={**(options or {}), **named} or None)
        noted = Noted({**(options or {}), **named})
        found = env.reset(seed=seed, options=noted)
        for name in named:
            if name not in noted.seen:
                raise _passed_over(env, name)
        self._unseen = False
        return found


class WithParameters(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose episodes have parameters, drawn from the seed of each.

    A reset without a seed takes one from this wrapper's own random numbers.
    """

    def __init__(self, env: gym.Env[Any, Any], source: ParameterSource) -> None:
        super().__init__(env)
        self._source = source
        self._applied = apply_to(env, source.targets)
        self._seeds = np.random.default_rng()

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self._seeds = stream(seed, "parameters", "later episodes")
        own = int(self._seeds.integers(2**31)) if seed is None else seed
        return self._applied.reset(self.env, seed, options, self._source.draw(own))


@dataclass(frozen=True)
class _Setter:
    """One place in an environment: an attribute, an item of an array, or a method.

    The way there is gone at every call, for a reset may build anew what lies on it.
    """

    layer: Any
    path: Sequence[str | int]
    is_call: bool

    def set(self, value: float) -> None:
        *way, key = self.path
        owner = self.layer
        for part in way:
            owner = _get(owner, part)
        if self.is_call:
            _get(owner, key)(value)
        elif isinstance(key, int):
            owner[key] = value
        else:
            setattr(owner, key, value)


def _find(env: gym.Env, name: str, path: str) -> _Setter:
    """Return the place of ``path``: on the outermost wrapper that has its first name, or further inside."""
    first, *others = path.split(".")
    layer: Any = next((one for one in _layers(env) if _has(one, first)), None)
    if layer is None:
        raise _missing(name, path, first, env.unwrapped)
    owner = layer
    key: str | int = first
    way = [key]
    for part in others:
        owner = _get(owner, key)
        key = int(part) if part.isdecimal() else part
        way.append(key)
        is_there = key < _length(owner) if isinstance(key, int) else _has(owner, key)
        if not is_there:
            raise _missing(name, path, part, owner)
    found = _get(owner, key)
    if not (callable(found) or _is_number(found)):
        raise UsageError(
            f"{path!r} takes no number",
            where=f"{KEY}.{name}.set",
            why=f"it is {type(found).__name__} {found!r:.60}",
            fix="name an attribute that is a number, an item of an array such as gravity.2, or a method",
        )
    return _Setter(layer, way, callable(found))


def _layers(env: gym.Env) -> Iterator[Any]:
    while True:
        yield env
        if not isinstance(env, gym.Wrapper):
            return
        env = env.env


def _has(owner: Any, name: str) -> bool:  # noqa: ANN401 - any object
    """Return whether it is the object's own; wrappers hand on what is not."""
    return name in _names(owner) or (not isinstance(owner, gym.Wrapper) and hasattr(owner, name))


def _names(owner: Any) -> list[str]:  # noqa: ANN401 - any object
    return [name for name in dir(owner) if not name.startswith("_")]


def _get(owner: Any, key: str | int) -> Any:  # noqa: ANN401 - any object
    return owner[key] if isinstance(key, int) else getattr(owner, key)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray) and value.ndim == 0)


def _numbers(owner: Any) -> list[str]:  # noqa: ANN401 - any object
    """Return the names of its attributes that are numbers."""
    names = (name for name in _names(owner) if not name.startswith("np_random"))
    return [name for name in names if _is_number(getattr(owner, name, None))]


def _length(owner: Any) -> int:  # noqa: ANN401 - any object
    """Return the number of items that can be set; 0 where there are none."""
    return len(owner) if hasattr(owner, "__setitem__") and hasattr(owner, "__len__") else 0


def _missing(name: str, path: str, part: str, owner: Any) -> UsageError:  # noqa: ANN401 - any object
    """Return the error of a part of a path that ``owner`` does not have."""
    close = difflib.get_close_matches(part, _names(owner), n=3, cutoff=0.5)
    if part.isdecimal():
        size = _length(owner)
        fix = f"write an index from 0 to {size - 1}" if size else "leave the index out: it is no array"
    elif close:
        fix = f"did you mean {' or '.join(close)}?"
    else:
        fix = f"its attributes that are numbers: {', '.join(_numbers(owner)[:_SHOWN]) or 'none'}"
    return UsageError(
        f"the environment has no {path!r}",
        where=f"{KEY}.{name}.set",
        why=f"there is no {part!r} in {type(owner).__name__}",
        fix=fix,
    )


def _passed_over(env: gym.Env, name: str) -> UsageError:
    """Return the error of a parameter that the environment has not looked for."""
    attributes = _numbers(env.unwrapped)
    close = difflib.get_close_matches(name, attributes, n=1, cutoff=0.5)
    line = f"{KEY}: {{{name}: {{value: …, set: {close[0] if close else 'ATTRIBUTE'}}}}}"
    return UsageError(
        f"the environment has no parameter {name!r}",
        where=f"{KEY}.{name}",
        why=f"its reset() did not look at the option {name!r}",
        fix=f"set an attribute instead: {line}\nattributes that are numbers: "
        f"{', '.join(attributes[:_SHOWN]) or 'none'}",
    )
