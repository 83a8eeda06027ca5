"""Arguments of the Python API: environments, by a task's name or as objects, flags and overrides."""

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
from algorithm.env.objects import EnvMaker, EnvObject, EnvSource, ManyAgents, source_of
from algorithm.env.registry import find_recipe
from algorithm.run.experience.requests import env_request

_Name: TypeAlias = str | os.PathLike[str]

_SCHEDULE = (
    "numbers: learning_rate=3e-4, learning_rate_schedule='linear', learning_rate_end=0.0, a share of it"
)

EnvLike: TypeAlias = (
    _Name
    | gym.Env[Any, Any]
    | VectorEnv
    | TensorEnv
    | ManyAgents
    | Callable[..., gym.Env[Any, Any] | ManyAgents]
    | EnvObject
)
"""A task by name, or an object: an environment, its class, a function that makes it, many at once."""

AlgorithmName: TypeAlias = Literal["SAC", "TD3", "PPO", "A2C", "A3C", "ACKTR", "ACER"]
"""Names of the algorithms in this package."""

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
"""Names of devices without a number."""


def is_name(env: EnvLike) -> TypeIs[_Name]:
    """Return whether an environment is a task by name."""
    return isinstance(env, str | os.PathLike)


def passed_env(env: EnvLike | None, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return the environments of a training that are passed as objects; None for a task's name, or for None.

    eval_env: environment of evaluations
    Raises UsageError for an object that is no environment, and for an ``eval_env`` beside a name, or alone.
    """
    if isinstance(env, EnvObject):
        return env if eval_env is None else EnvObject(env.train, env_to_play(eval_env).evaluate)
    if env is not None and not is_name(env):
        return EnvObject.of(env, None if eval_env is None else env_to_play(eval_env).evaluate)
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


def env_to_play(env: EnvLike) -> EnvObject:
    """Return an environment to play in, passed by name or as an object. Raises UsageError for neither."""
    if isinstance(env, EnvObject):
        return env
    if is_name(env):
        task = os.fspath(env)
        loaded = load_config(task, seed=0, require_runnable=True)
        # The run that plays in it adds its own wrappers and parameters.
        recipe = find_recipe(replace(env_request(loaded, "evaluate"), wrappers=()))
        source: EnvSource = EnvMaker(recipe.make_gym_env, name=task)
    else:
        source = source_of(env)
    return EnvObject(source, source)


def env_for_run(env: EnvLike | None, eval_env: EnvLike | None = None) -> EnvObject | None:
    """Return environments for an existing run, passed by name or as objects; None for the run's own.

    Raises UsageError as :func:`passed_env`.
    """
    env_object = passed_env(env, eval_env)
    return env_object if env_object or env is None else env_to_play(env)


def set_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags that are not None."""
    return {key: value for key, value in flags.items() if value is not None}


def with_keys(overrides: Overrides | None, keys: Mapping[str, object]) -> dict[str, object]:
    """Merge overrides, a mapping or texts such as ``batch_size=64``, with ``keys``, which win.

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
    """Raise UsageError if the environment was passed in the place of the algorithm."""
    if not isinstance(algorithm, str | None) or (isinstance(env, str) and env in FAMILIES):
        raise UsageError(
            "the algorithm comes first, and then the environment",
            where=f"Agent({algorithm!r:.60}, {env!r:.60})",
            fix='write asac.Agent("SAC", env)',
        )
