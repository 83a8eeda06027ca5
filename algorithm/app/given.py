"""Environments that Python code hands in: the name of a task, or an object."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
from gymnasium.vector import VectorEnv
from typing_extensions import TypeIs

from algorithm.config.loader import load_config
from algorithm.core.errors import UsageError
from algorithm.env.objects import EnvMaker, EnvObject, EnvSource, source_of
from algorithm.env.registry import find_recipe

_Name: TypeAlias = str | os.PathLike[str]

EnvLike: TypeAlias = _Name | gym.Env[Any, Any] | VectorEnv | Callable[..., gym.Env[Any, Any]] | EnvObject
"""A task by name, or an object: an environment, its class, a function that makes it, a vector environment."""


def is_name(env: EnvLike) -> TypeIs[_Name]:
    """Return whether it is a task by name."""
    return isinstance(env, str | os.PathLike)


def handed_in(env: EnvLike, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return environments that are objects, for a training; None for the name of a task.

    eval_env: that evaluations are played in
    Raises UsageError for what is no environment, and for an ``eval_env`` beside a name.
    """
    if isinstance(env, EnvObject):
        return env if eval_env is None else EnvObject(env.train, played_in(eval_env).evaluate)
    if not is_name(env):
        return EnvObject.of(env, None if eval_env is None else played_in(eval_env).evaluate)
    if eval_env is None:
        return None
    raise UsageError(
        "eval_env is for an environment that is an object",
        where=f"eval_env={eval_env!r:.80}",
        why=f"{os.fspath(env)} is the name of a task, and its evaluations are made by name, too",
        fix="leave it out; eval_config.wrappers gives evaluations wrappers of their own",
    )


def played_in(env: EnvLike) -> EnvObject:
    """Return an environment, by name or an object, to play in. Raises UsageError for what is none."""
    if isinstance(env, EnvObject):
        return env
    if is_name(env):
        task = os.fspath(env)
        loaded = load_config(task, seed=0, require_runnable=True)
        base = loaded.config.base_config
        recipe = find_recipe(  # the run that is played in it has wrappers and parameters of its own
            base.env_type,
            base.env_name,
            folder=loaded.env_dir,
            env_args=base.env_args,
            options=loaded.config.reset_config,
            wrappers=(),
        )
        source: EnvSource = EnvMaker(recipe.make_gym_env, name=task)
    else:
        source = source_of(env)
    return EnvObject(source, source)


def as_object(env: EnvLike | None, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return environments for a run that is there, by name or objects; None where none is given.

    Raises UsageError as :func:`handed_in`, and for an ``eval_env`` alone.
    """
    if env is not None:
        return handed_in(env, eval_env) or played_in(env)
    if eval_env is None:
        return None
    raise UsageError(
        "eval_env is for an environment that is an object",
        where=f"eval_env={eval_env!r:.80}",
        why="env is not given, so the run has its own by name, and its evaluations too",
        fix="give env as well, or leave eval_env out",
    )


def given_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags that are set."""
    return {key: value for key, value in flags.items() if value is not None}
