"""Which adapter serves which ``env_type``. A new simulator is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.env.base import EpisodeSeed, Fault, OnFault, VecEnv
from algorithm.env.env_id import resolve_env_id
from algorithm.env.gym import GymRecipe, has_vector_class, make_vector
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.pool.executor import Executor, InProcessExecutor, ignore_hang
from algorithm.env.pool.pool import EnvPool
from algorithm.env.pool.worker_executor import WorkerExecutor
from algorithm.env.single import MakeEnv
from algorithm.env.wrappers import Wrapper, resolve_wrappers
from algorithm.errors import EnvError


@dataclass(frozen=True, kw_only=True)
class EnvRequest:
    """Which environments are wanted; see :func:`make_vec_env`."""

    env_name: str
    folder: Path | None
    env_args: Mapping[str, Any]
    n: int
    seed_of: EpisodeSeed
    options: Mapping[str, Any] | None
    render: bool
    video: bool
    wrappers: tuple[Wrapper, ...]
    workers: int


MakePool = Callable[[MakeEnv], VecEnv]
"""Makes N environments of single copies, in this process or in workers."""


def _gym(request: EnvRequest, make_pool: MakePool) -> VecEnv:
    env_id = resolve_env_id(request.env_name, request.folder)
    recipe = GymRecipe(
        env_id=env_id,
        env_args=request.env_args,
        wrappers=resolve_wrappers(request.wrappers, request.folder),
        options=request.options,
        render=request.render,
        video=request.video,
    )
    plain = not (request.workers or request.wrappers or request.render or request.video)
    if plain and has_vector_class(env_id, request.n):
        make = partial(make_vector, env_id, request.n, request.env_args)
        return GymVectorEnv(make, seed_of=request.seed_of, options=request.options, name=request.env_name)
    return make_pool(recipe)


_ADAPTERS: dict[str, Callable[[EnvRequest, MakePool], VecEnv]] = {"GYM": _gym}


def _ignore_fault(fault: Fault) -> None:
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
    video: bool = False,
    wrappers: Sequence[Wrapper] = (),
    workers: int = 0,
    timeout: float = 120.0,
    restarts: int = 10,
    on_fault: OnFault = _ignore_fault,
    on_hang: Callable[[EnvError], None] = ignore_hang,
    log: Path | None = None,
) -> VecEnv:
    """N environments of a kind, ready to reset.

    Several copies of an environment that brings a vector class of its own run in that class, unless there are
    wrappers, workers, a window or a film.

    folder:   of the request, where files and modules of its own are looked for first
    env_args: keyword arguments of the environment
    options:  given to every reset
    render:   show copy 0 in a window
    video:    copy 0 gives pictures; it can neither be shown nor run in another process then
    wrappers: ``base_config.wrappers``, innermost first
    workers:  processes for the copies, at most n; 0 for none but this one
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by starting a copy anew, each of which ``on_fault`` is told
    on_hang:  told before a hang in this process ends it, in another thread; it gets a minute
    log:      folder for what worker processes print; by default a temporary one
    Raises :class:`EnvError` if there is no adapter for ``env_type`` or the environment cannot be made.
    """
    if video and (render or workers):
        raise ValueError("pictures are taken in this process, of an environment without a window")
    adapter = _ADAPTERS.get(env_type)
    if adapter is None:
        raise EnvError(
            f"env_type {env_type} is not available in this version",
            where="base_config.env_type",
            fix=f"set it to one of {', '.join(_ADAPTERS)}",
        )

    def make_pool(make: MakeEnv) -> VecEnv:
        executor: Executor
        if workers:
            executor = WorkerExecutor(make, n, workers, timeout=timeout, log=log)
        else:
            executor = InProcessExecutor(make, n, timeout=timeout, on_hang=on_hang)
        return EnvPool(executor, seed_of=seed_of, restarts=restarts, on_fault=on_fault)

    request = EnvRequest(
        env_name=env_name,
        folder=folder,
        env_args=env_args or {},
        n=n,
        seed_of=seed_of,
        options=options,
        render=render,
        video=video,
        wrappers=tuple(wrappers),
        workers=workers,
    )
    return adapter(request, make_pool)
