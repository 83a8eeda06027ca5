"""Adapters by ``env_type``. A new simulator is one file and one line here, or a package of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.plugins import ENVS, accepts, find, unknown
from algorithm.env.base import EpisodeSeed, Fault, OnFault, VecEnv
from algorithm.env.dmc import DmControlRecipe
from algorithm.env.env_id import resolve_env_id, use_folder
from algorithm.env.gym import GymRecipe, has_vector_class, make_vector
from algorithm.env.gym_vector import GymVectorEnv
from algorithm.env.pool.executor import Executor, InProcessExecutor, ignore_hang
from algorithm.env.pool.pool import EnvPool
from algorithm.env.pool.restart_budget import RestartBudget
from algorithm.env.pool.worker_executor import WorkerExecutor
from algorithm.env.pool.worker_process import ignore_text
from algorithm.env.single import MakeEnv, SingleEnv
from algorithm.env.unity.seat import UnityOptions
from algorithm.env.unity.vec import UnityVecEnv
from algorithm.env.wrappers import Wrapper, resolve_wrappers


def _ignore_fault(fault: Fault) -> None:
    """Ignore a fault."""


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """Place of single environments, and the treatment of their failures.

    workers:  processes for the sub-environments, at most n; 0 for this process only
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by a restart; ``on_fault`` is called with each
    on_hang:  called before a hang in this process ends it, in another thread; it gets a minute
    waiting:  called again and again while sub-environments are made, with a text on how far that is; what it
              raises ends that
    log:      folder for the output of worker processes, and of Unity's players; a temporary one by default
    unity:    more about Unity's players
    """

    workers: int = 0
    timeout: float = 120.0
    restarts: int = 10
    on_fault: OnFault = _ignore_fault
    on_hang: Callable[[EnvError], None] = ignore_hang
    waiting: Callable[[str], None] = ignore_text
    log: Path | None = None
    unity: UnityOptions = field(default_factory=UnityOptions)

    def make(self, make: MakeEnv, *, n: int, seed_of: EpisodeSeed) -> EnvPool:
        """Return a pool of n environments. Raises EnvError if they cannot be built."""
        executor: Executor
        if self.workers:
            executor = WorkerExecutor(
                make, n, self.workers, timeout=self.timeout, log=self.log, waiting=self.waiting
            )
        else:

            def make_one(index: int) -> SingleEnv:
                self.waiting(f"{index:,} of {n:,} environments are made")
                return make(index)

            executor = InProcessExecutor(make_one, n, timeout=self.timeout, on_hang=self.on_hang)
        return EnvPool(executor, seed_of=seed_of, restarts=self.restarts, on_fault=self.on_fault)


_IN_PROCESS = PoolOptions()


@dataclass(frozen=True, kw_only=True)
class EnvRequest:
    """The arguments of :func:`make_vec_env` that an adapter needs."""

    env_type: str
    env_name: str
    folder: Path | None
    env_args: Mapping[str, Any]
    n: int
    seed_of: EpisodeSeed
    options: Mapping[str, Any] | None
    render: bool
    video: bool
    wrappers: tuple[Wrapper, ...]
    pool: PoolOptions


MakePool = Callable[[MakeEnv], VecEnv]
"""Constructor of N environments from single ones, in this process or in workers."""


def _gym(request: EnvRequest, make_pool: MakePool) -> VecEnv:
    env_id = resolve_env_id(request.env_name, request.folder)
    plain = not (request.pool.workers or request.wrappers or request.render or request.video)
    if plain and has_vector_class(env_id, request.n):
        make = partial(make_vector, env_id, request.n, request.env_args)
        return GymVectorEnv(make, seed_of=request.seed_of, options=request.options, name=request.env_name)
    return make_pool(_recipe(request))


def _single(request: EnvRequest, make_pool: MakePool) -> VecEnv:
    return make_pool(_recipe(request))


def _recipe(request: EnvRequest) -> GymRecipe:
    return find_recipe(
        request.env_type,
        request.env_name,
        folder=request.folder,
        env_args=request.env_args,
        options=request.options,
        wrappers=request.wrappers,
        render=request.render,
        video=request.video,
    )


def _unity(request: EnvRequest, make_pool: MakePool) -> VecEnv:
    pool = request.pool
    impossible = {"video": request.video, "workers": pool.workers, "wrappers": request.wrappers}
    if asked := [name for name, value in impossible.items() if value]:
        raise UsageError(
            f"Unity environments have no {' and no '.join(asked)}",
            why="a player draws in its own window, is a process already, and is no Gymnasium environment",
            fix="leave that out; --run and --render show a player's window",
        )
    return UnityVecEnv(
        request.env_name,
        request.env_args,
        n=request.n,
        options=replace(pool.unity, watched=pool.unity.watched or request.render),
        parameters=request.options,
        seed_of=request.seed_of,
        folder=request.folder,
        log=pool.log,
        timeout=pool.timeout,
        budget=RestartBudget(pool.restarts, pool.on_fault),
    )


RECIPES: Mapping[str, type[GymRecipe]] = {"GYM": GymRecipe, "DM_CONTROL": DmControlRecipe}
"""``env_type`` -> recipe of its single environments; for those of other packages see :func:`recipe_class`."""

_ADAPTERS: dict[str, Callable[[EnvRequest, MakePool], VecEnv]] = {
    "GYM": _gym,
    "DM_CONTROL": _single,
    "UNITY": _unity,
}


def find_recipe(
    env_type: str,
    env_name: str,
    *,
    folder: Path | None,
    env_args: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    wrappers: Sequence[Wrapper],
    render: bool = False,
    video: bool = False,
) -> GymRecipe:
    """Return the recipe of single environments; for its arguments see :func:`make_vec_env`.

    Raises :class:`EnvError` for a file that is not there, UsageError as :func:`recipe_class`.
    """
    use_folder(folder, env_type)
    return recipe_class(env_type)(
        env_id=resolve_env_id(env_name, folder),
        env_args=env_args or {},
        wrappers=resolve_wrappers(wrappers, folder),
        options=options,
        render=render,
        video=video,
    )


def recipe_class(env_type: str) -> type[GymRecipe]:
    """Return the recipe of a kind's single environments: ours, or that of a plug-in.

    Raises UsageError for a kind that nobody has, for a plug-in that cannot be loaded, and for what is no
    recipe.
    """
    if env_type in RECIPES:
        return RECIPES[env_type]
    plugin = find(ENVS, env_type)
    if plugin is None:
        raise unknown(ENVS, env_type)
    found = plugin.load()
    if not (isinstance(found, type) and issubclass(found, GymRecipe)):
        raise plugin.error(
            "has no recipe",
            f"{plugin.value} is {found!r}",
            "its entry point has to name a class derived from algorithm.env.gym.GymRecipe",
        )
    names = [one.name for one in fields(GymRecipe)]
    if why := accepts(found, **dict.fromkeys(names)):
        raise plugin.error(
            "cannot be made", f"{found.__name__}: {why}", f"a recipe is made of {', '.join(names)} alone"
        )
    return found


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
    pool: PoolOptions = _IN_PROCESS,
) -> VecEnv:
    """Make N environments of a kind, ready to reset.

    Several sub-environments run in the environment's own vector class where it has one, unless there are
    wrappers, workers, a window or a video.

    folder:   of the task, searched first for files and modules
    env_args: keyword arguments of the environment
    options:  passed to every reset
    render:   show sub-environment 0 in a window
    video:    sub-environment 0 renders images; excludes a window and workers
    wrappers: ``base_config.wrappers``, innermost first
    pool:     of single environments and of Unity's players; without effect on the environment's own vector
              class
    Raises :class:`EnvError` if the environment cannot be built, UsageError as :func:`recipe_class`.
    """
    if video and (render or pool.workers):
        raise ValueError("a video needs an environment in this process, without a window")
    request = EnvRequest(
        env_type=env_type,
        env_name=env_name,
        folder=folder,
        env_args=env_args or {},
        n=n,
        seed_of=seed_of,
        options=options,
        render=render,
        video=video,
        wrappers=tuple(wrappers),
        pool=pool,
    )
    adapter = _ADAPTERS.get(env_type, _single)
    return adapter(request, partial(pool.make, n=n, seed_of=seed_of))
