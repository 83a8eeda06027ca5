"""Which adapter serves which ``env_type``. A new simulator is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithm.env.base import EpisodeSeed, Fault, OnFault, VecEnv
from algorithm.env.executor import Executor, InProcess
from algorithm.env.gym import GymRecipe
from algorithm.env.pool import EnvPool
from algorithm.env.single import MakeSingle
from algorithm.env.workers import Workers
from algorithm.env.wrappers import Wrapper
from algorithm.errors import EnvError

_RECIPES: dict[str, Callable[..., MakeSingle]] = {"GYM": GymRecipe}


def _untold(fault: Fault) -> None:
    """Nobody asked to be told of faults."""


def make_vec_env(
    env_type: str,
    env_name: str,
    *,
    env_args: Mapping[str, Any] | None = None,
    n: int = 1,
    seed_of: EpisodeSeed,
    options: Mapping[str, Any] | None = None,
    render: bool = False,
    wrappers: Sequence[Wrapper] = (),
    workers: int = 0,
    timeout: float = 120.0,
    restarts: int = 10,
    on_fault: OnFault = _untold,
    log: Path | None = None,
) -> VecEnv:
    """N environments of a kind, ready to reset.

    env_args: keyword arguments of the environment
    options:  given to every reset
    render:   show copy 0
    wrappers: ``base_config.wrappers``, innermost first
    workers:  processes for the copies, at most n; 0 for none but this one
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by starting a copy anew, each of which ``on_fault`` is told
    log:      folder for what worker processes print; by default a temporary one
    Raises :class:`EnvError` if there is no adapter for ``env_type`` or the environment cannot be made.
    """
    recipe = _RECIPES.get(env_type)
    if recipe is None:
        raise EnvError(
            f"env_type {env_type} is not available in this version",
            where="base_config.env_type",
            fix=f"set it to one of {', '.join(_RECIPES)}",
        )
    make = recipe(
        env_id=env_name, env_args=env_args or {}, wrappers=tuple(wrappers), options=options, render=render
    )
    executor: Executor
    if workers:
        executor = Workers(make, n, workers, timeout=timeout, log=log)
    else:
        executor = InProcess(make, n, timeout=timeout)
    return EnvPool(executor, seed_of=seed_of, restarts=restarts, on_fault=on_fault)
