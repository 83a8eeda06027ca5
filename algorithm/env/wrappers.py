"""Gymnasium wrappers by name, so that preprocessing is configuration: ``wrappers: [{RepeatAction: {…}}]``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from algorithm.env.extras import advice
from algorithm.errors import EnvError, UsageError

Wrapper = Mapping[str, Mapping[str, Any] | None]
"""One entry of ``base_config.wrappers``: name -> keyword arguments."""

_KEY = "base_config.wrappers"


def find(entry: Wrapper) -> tuple[type[gym.Wrapper], Mapping[str, Any]]:
    """The class and the keyword arguments of one entry.

    The name is a class of ``gymnasium.wrappers`` or ``module:Class``. Raises UsageError.
    """
    if len(entry) != 1:
        raise UsageError(
            f"an entry of {_KEY} has {len(entry)} names",
            where=_KEY,
            why=f"it is {dict(entry)}",
            fix="give every wrapper an entry of its own, innermost first: [{Name: {kwargs}}, …]",
        )
    ((name, kwargs),) = entry.items()
    found = _imported(name) if ":" in name else getattr(gym.wrappers, name, None)
    if not (isinstance(found, type) and issubclass(found, gym.Wrapper)):
        raise _unknown(name)
    return found, kwargs or {}


def apply(env: gym.Env, wrappers: Sequence[tuple[type[gym.Wrapper], Mapping[str, Any]]]) -> gym.Env:
    """Put the wrappers around ``env``, the first one innermost. Raises EnvError."""
    for wrapper, kwargs in wrappers:
        try:
            env = wrapper(env, **kwargs)
        except Exception as error:
            raise EnvError(
                "a wrapper could not be put around the environment",
                where=f"{_KEY}, {wrapper.__name__} with {dict(kwargs)} around {env}",
                why=f"{type(error).__name__}: {error}",
                fix=advice(error, "compare its arguments with the wrapper's documentation"),
            ) from error
    return env


def _imported(name: str) -> object:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise UsageError(
            f"the wrapper {name!r} cannot be imported",
            where=_KEY,
            why=f"{type(error).__name__}: {error}",
            fix="module:Class needs a module that python can import from here",
        ) from error


def _unknown(name: str) -> UsageError:
    known = [
        known
        for known, value in vars(gym.wrappers).items()
        if isinstance(value, type) and issubclass(value, gym.Wrapper)
    ]
    close = difflib.get_close_matches(name, known, n=1)
    return UsageError(
        f"there is no wrapper {name!r}",
        where=_KEY,
        why=f"did you mean {close[0]!r}?" if close else "gymnasium.wrappers has no class of that name",
        fix="name a class of gymnasium.wrappers, or module:Class",
    )
