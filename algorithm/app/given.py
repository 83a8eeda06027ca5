"""Environments that Python code hands in: the name of a task, or an object."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import gymnasium as gym
from gymnasium.vector import VectorEnv
from typing_extensions import TypeIs
from yaml import YAMLError

from algorithm.agents.registry import FAMILIES
from algorithm.config.loader import load_config
from algorithm.config.resolve import Overrides, parse_override
from algorithm.config.tree import plain
from algorithm.config.yaml_io import inline
from algorithm.core.errors import UsageError
from algorithm.env.lanes.contract import TensorEnv
from algorithm.env.objects import EnvMaker, EnvObject, EnvSource, source_of
from algorithm.env.registry import find_recipe
from algorithm.run.experience.requests import env_request

_Name: TypeAlias = str | os.PathLike[str]

_SCHEDULE = (
    "numbers: learning_rate=3e-4, learning_rate_schedule='linear', learning_rate_end=0.0, a share of it"
)

EnvLike: TypeAlias = (
    _Name | gym.Env[Any, Any] | VectorEnv | TensorEnv | Callable[..., gym.Env[Any, Any]] | EnvObject
)
"""A task by name, or an object: an environment, its class, a function that makes it, many at once."""

AlgorithmName: TypeAlias = Literal["SAC", "TD3", "PPO", "A2C", "A3C", "ACKTR", "ACER"]
"""Families of the package."""

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
"""Devices without a number."""


def is_name(env: EnvLike) -> TypeIs[_Name]:
    """Return whether it is a task by name."""
    return isinstance(env, str | os.PathLike)


def handed_in(env: EnvLike | None, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return environments that are objects, for a training; None for the name of a task, or for none.

    eval_env: that evaluations are played in
    Raises UsageError for what is no environment, and for an ``eval_env`` beside a name, or alone.
    """
    if isinstance(env, EnvObject):
        return env if eval_env is None else EnvObject(env.train, played_in(eval_env).evaluate)
    if env is not None and not is_name(env):
        return EnvObject.of(env, None if eval_env is None else played_in(eval_env).evaluate)
    if eval_env is None:
        return None
    raise UsageError(
        "eval_env requires env to be an object",
        where=f"eval_env={eval_env!r:.80}",
        why=f"{'the run' if env is None else os.fspath(env)} names its environment, also for evaluations",
        fix=(
            "pass env as an object, or leave eval_env out; eval_config.wrappers sets wrappers for "
            "evaluations only"
        ),
    )


def played_in(env: EnvLike) -> EnvObject:
    """Return an environment, by name or an object, to play in. Raises UsageError for what is none."""
    if isinstance(env, EnvObject):
        return env
    if is_name(env):
        task = os.fspath(env)
        loaded = load_config(task, seed=0, require_runnable=True)
        # The run that is played in it has wrappers and parameters of its own.
        recipe = find_recipe(replace(env_request(loaded, "evaluate"), wrappers=()))
        source: EnvSource = EnvMaker(recipe.make_gym_env, name=task)
    else:
        source = source_of(env)
    return EnvObject(source, source)


def as_object(env: EnvLike | None, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return environments for a run that is there, by name or objects; None where none is given.

    Raises UsageError as :func:`handed_in`.
    """
    given = handed_in(env, eval_env)
    return given if given or env is None else played_in(env)


def given_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags that are set."""
    return {key: value for key, value in flags.items() if value is not None}


def with_keys(overrides: Overrides | None, keys: Mapping[str, object]) -> dict[str, object]:
    """Return overrides, a mapping or texts such as ``batch_size=64``, with keys over them.

    Raises UsageError for a text that cannot be read, and for a value that no configuration can hold.
    """
    texts = [overrides] if isinstance(overrides, str) else overrides or ()
    if isinstance(texts, Mapping):
        changes = {**texts, **keys}
    else:
        try:
            changes = {".".join(path): value for path, value in map(parse_override, texts)} | dict(keys)
        except (ValueError, AttributeError) as error:
            raise UsageError(
                "overrides cannot be read",
                where=f"overrides={overrides!r:.80}",
                why=str(error),
                fix="write overrides={'sac_config.batch_size': 64}, or a list of strings: "
                "['sac_config.batch_size=64']",
            ) from error
    for key, value in changes.items():
        try:
            inline(plain(value))
        except YAMLError as error:
            raise UsageError(
                f"`{key}` has a value that a configuration cannot hold",
                why="it contains something other than strings, numbers, lists and mappings",
                fix=f"write {_SCHEDULE if callable(value) else 'one of these'}",
            ) from error
    return changes


def check_order(algorithm: object, env: object) -> None:
    """Raise UsageError for an environment in the place of the algorithm."""
    if not isinstance(algorithm, str | None) or (isinstance(env, str) and env in FAMILIES):
        raise UsageError(
            "the algorithm comes first, and then the environment",
            where=f"Agent({algorithm!r:.60}, {env!r:.60})",
            fix='write asac.Agent("SAC", env)',
        )
