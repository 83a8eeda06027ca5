"""Gymnasium wrappers by name, so that preprocessing is configuration: ``wrappers: [{RepeatAction: {…}}]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import gymnasium as gym

from algorithm.core.errors import RUN_BLOCK, EnvError, UsageError, described
from algorithm.env.env_id import advice, import_source, resolve_env_id, suggest_name
from algorithm.env.outputs import Remark
from algorithm.env.pool.process_exit import exits_as_errors

Wrapper = Mapping[str, Mapping[str, Any] | None]
"""One entry of ``base_config.wrappers``: name -> keyword arguments."""

_KEY = "base_config.wrappers"

_WITH_STATISTICS = {
    gym.wrappers.NormalizeObservation: f"{RUN_BLOCK}.use_normalization does the same, and is saved",
    gym.wrappers.NormalizeReward: f"{RUN_BLOCK}.reward_scaling does the same, is saved, and leaves "
    "evaluations the environment's own rewards; eval_config.wrappers keeps a wrapper from them",
}


def resolve_wrappers(wrappers: Iterable[Wrapper], folder: Path | None) -> tuple[Wrapper, ...]:
    """Resolve files in names, as :func:`~algorithm.env.env_id.resolve_env_id` does. Raises EnvError."""
    return tuple(
        {resolve_env_id(name, folder, key=_KEY): kwargs for name, kwargs in entry.items()}
        for entry in wrappers
    )


def load_wrapper(entry: Wrapper) -> tuple[type[gym.Wrapper], Mapping[str, Any]]:
    """Return the class and the keyword arguments of one entry.

    The name is a class of ``gymnasium.wrappers``, or ``module:Class`` or ``file.py:Class`` as
    :func:`resolve_wrappers` returns it. Raises UsageError.
    """
    if len(entry) != 1:
        raise UsageError(
            f"an entry of {_KEY} has {len(entry)} names",
            where=_KEY,
            why=f"it is {dict(entry)}",
            fix="give every wrapper an entry of its own, innermost first: [{Name: {kwargs}}, …]",
        )
    ((name, kwargs),) = entry.items()
    source, colon, wanted = name.rpartition(":")
    there = _module(name, source) if colon else gym.wrappers
    found = getattr(there, wanted, None)
    if not _is_wrapper(found):
        raise _unknown(name, [known for known, value in vars(there).items() if _is_wrapper(value)])
    return found, kwargs or {}


def apply_wrappers(env: gym.Env, wrappers: Sequence[tuple[type[gym.Wrapper], Mapping[str, Any]]]) -> gym.Env:
    """Put the wrappers around ``env``, the first one innermost. Raises EnvError."""
    for wrapper, kwargs in wrappers:
        try:
            with exits_as_errors():
                env = wrapper(env, **kwargs)
        except Exception as error:
            raise EnvError(
                "a wrapper could not be put around the environment",
                where=f"{_KEY}, {wrapper.__name__} with {dict(kwargs)} around {env}",
                why=described(error),
                fix=advice(error, "compare its arguments with the wrapper's documentation"),
            ) from error
    return env


def wrappers_around(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper]:
    """Yield the wrappers around an environment, from the outermost one on."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def running_statistics(env: gym.Env[Any, Any]) -> tuple[Remark, ...]:
    """Return a remark on each wrapper around ``env`` whose statistics no checkpoint holds."""
    return tuple(
        Remark(
            what=f"the wrapper {type(wrapper).__name__} keeps running statistics",
            why="no checkpoint holds them: an evaluation and asac.load begin with others, and a resumed run "
            "is not exact",
            fix=f"leave it out: {instead}",
        )
        for wrapper in wrappers_around(env)
        for kind, instead in _WITH_STATISTICS.items()
        if isinstance(wrapper, kind)
    )


def _module(name: str, source: str) -> ModuleType:
    try:
        return import_source(source)
    except Exception as error:
        fix = "module:Class and file.py:Class lie in the task's folder, or where python finds them from here"
        raise UsageError(
            f"the wrapper {name!r} cannot be imported",
            where=_KEY,
            why=described(error),
            fix=advice(error, fix),
        ) from error


def _is_wrapper(value: object) -> TypeGuard[type[gym.Wrapper]]:
    return isinstance(value, type) and issubclass(value, gym.Wrapper)


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    source, _, wanted = name.rpartition(":")
    return UsageError(
        f"there is no wrapper {name!r}",
        where=_KEY,
        why=f"{wanted} is no subclass of gymnasium.Wrapper in {source or 'gymnasium.wrappers'}",
        fix=suggest_name(wanted, known),
    )
