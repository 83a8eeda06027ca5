"""Which adapter serves which ``env_type``. A new simulator is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.env.base import EpisodeSeed, Fault, OnFault, VecEnv
from algorithm.env.env_id import locate
from algorithm.env.gym import GymRecipe, has_vector_class, make_vector
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.pool.executor import Executor, InProcess, unsaved
from algorithm.env.pool.pool import EnvPool
from algorithm.env.pool.worker_executor import Workers
from algorithm.env.single import MakeSingle
from algorithm.env.wrappers import Wrapper, located
from algorithm.errors import EnvError


@dataclass(frozen=True, kw_only=True)
class Task:
    """Which environments are wanted; see :func:`make_vec_env`."""

    env_name: str
    folder: Path | None
    env_args: Mapping[str, Any]
    n: int
    seed_of: EpisodeSeed
    options: Mapping[str, Any] | None
    render: bool
    film: bool
    wrappers: tuple[Wrapper, ...]
    workers: int


Pooled = Callable[[MakeSingle], VecEnv]
"""Makes N environments of single copies, in this process or in workers."""


def _gym(task: Task, pooled: Pooled) -> VecEnv:
    env_id = locate(task.env_name, task.folder)
    recipe = GymRecipe(
        env_id=env_id,
        env_args=task.env_args,
        wrappers=located(task.wrappers, task.folder),
        options=task.options,
        render=task.render,
        film=task.film,
    )
    plain = not (task.workers or task.wrappers or task.render or task.film)
    if plain and has_vector_class(env_id, task.n):
        make = partial(make_vector, env_id, task.n, task.env_args)
        return GymVectorEnv(make, seed_of=task.seed_of, options=task.options, name=task.env_name)
    return pooled(recipe)


_ADAPTERS: dict[str, Callable[[Task, Pooled], VecEnv]] = {"GYM": _gym}


def _untold(fault: Fault) -> None:
    """Nobody asked to be told of faults."""


def make_vec_env(
    env_type: str,
    env_name: str,
    *,
    folder: Path | None = None,
    env_args: Mapping[str, Any] | None = None,
    n: int = 1,
    seed_of: EpisodeSeed,
    options: Mapping[str, Any] | None = None,
    render: bool = False,
    film: bool = False,
    wrappers: Sequence[Wrapper] = (),
    workers: int = 0,
    timeout: float = 120.0,
    restarts: int = 10,
    on_fault: OnFault = _untold,
    on_hang: Callable[[EnvError], None] = unsaved,
    log: Path | None = None,
) -> VecEnv:
    """N environments of a kind, ready to reset.

    Several copies of an environment that brings a vector class of its own run in that class, unless there are
    wrappers, workers, a window or a film.

    folder:   of the task, where files and modules of its own are looked for first
    env_args: keyword arguments of the environment
    options:  given to every reset
    render:   show copy 0 in a window
    film:     copy 0 gives pictures; it can neither be shown nor run in another process then
    wrappers: ``base_config.wrappers``, innermost first
    workers:  processes for the copies, at most n; 0 for none but this one
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by starting a copy anew, each of which ``on_fault`` is told
    on_hang:  told before a hang in this process ends it, in another thread; it gets a minute
    log:      folder for what worker processes print; by default a temporary one
    Raises :class:`EnvError` if there is no adapter for ``env_type`` or the environment cannot be made.
    """
    if film and (render or workers):
        raise ValueError("pictures are taken in this process, of an environment without a window")
    adapter = _ADAPTERS.get(env_type)
    if adapter is None:
        raise EnvError(
            f"env_type {env_type} is not available in this version",
            where="base_config.env_type",
            fix=f"set it to one of {', '.join(_ADAPTERS)}",
        )

    def pooled(make: MakeSingle) -> VecEnv:
        executor: Executor
        if workers:
            executor = Workers(make, n, workers, timeout=timeout, log=log)
        else:
            executor = InProcess(make, n, timeout=timeout, on_hang=on_hang)
        return EnvPool(executor, seed_of=seed_of, restarts=restarts, on_fault=on_fault)

    task = Task(
        env_name=env_name,
        folder=folder,
        env_args=env_args or {},
        n=n,
        seed_of=seed_of,
        options=options,
        render=render,
        film=film,
        wrappers=tuple(wrappers),
        workers=workers,
    )
    return adapter(task, pooled)
