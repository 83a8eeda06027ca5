"""Environments of any kind, by ``env_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import gymnasium as gym
from typing_extensions import TypeIs, override

from algorithm.core.errors import UsageError
from algorithm.core.extras import extra
from algorithm.core.plugins import mismatch
from algorithm.core.program import as_typed
from algorithm.env.base import VecEnv
from algorithm.env.env_id import resolve_env_id, use_folder
from algorithm.env.gym import GymEnv, GymRecipe
from algorithm.env.kinds import OBJECT, EnvKind, kind_of, plugin_of
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.objects import ExternalTensorEnv, ExternalVectorEnv
from algorithm.env.pool.executor import Executor, InProcessExecutor, WorkerExecutor
from algorithm.env.pool.pool import EnvPool
from algorithm.env.registered import has_vector_class, make_vector
from algorithm.env.request import EnvRequest
from algorithm.env.sources import EnvMaker, EnvSource, GamePassedError, GameSource
from algorithm.env.wrappers import resolve_wrappers

Maker = type[GymRecipe] | Callable[[EnvRequest], VecEnv]
"""Maker of a kind's environments: a recipe of single ones, or a function that makes all at once."""


@dataclass(frozen=True, kw_only=True)
class ObjectRecipe(GymRecipe):
    """Recipe of environments that were passed as objects; building without a source raises UsageError."""

    source: EnvSource | None = None

    @override
    def _build(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        if self.source is None:
            raise missing_object(self.env_id)
        return self.source(**kwargs)

    @override
    def _advice(self, error: Exception) -> str:
        return "fix it where it is made; base_config.env_args are its arguments"


def missing_object(name: str) -> UsageError:
    """Return the error for an environment that was passed as an object, and is missing now."""
    return UsageError(
        "the run's environment was a Python object, which cannot be made from a name",
        where=f"base_config.env_name: {name}",
        why="the run was started with an instance, a class or a function",
        fix="continue in Python, where the object is: run = asac.Run(FOLDER, env=env), then run.resume(), "
        "run.evaluate(10) or run.policy()",
    )


def find_recipe(request: EnvRequest) -> GymRecipe:
    """Return the recipe of single environments.

    Raises :class:`EnvError` for a missing file, UsageError for a kind that cannot be used, or whose
    environments are not single ones of Gymnasium.
    """
    source = None if isinstance(request.env, str) else request.env
    env_type, env_args = request.env_type, request.env_args
    if source and env_type != OBJECT.name:  # the arguments are those of the environment that has the name
        env_type, env_args = OBJECT.name, {}
    use_folder(request.folder, env_type)
    maker = load_maker(kind_of(env_type))
    if not _is_recipe(maker):
        raise UsageError(
            f"{env_type} environments are not Gymnasium environments",
            where=f"base_config.env_type: {env_type}",
            why="their simulator makes and steps all of them itself",
            fix="play them from the command line: "
            + as_typed("python main.py TASK -n NAME --run or --eval N"),
        )
    recipe = maker(
        env_id=resolve_env_id(request.env_name, request.folder),
        env_args=env_args,
        wrappers=resolve_wrappers(request.wrappers, request.folder),
        options=request.options,
        parameters=dict(request.parameters.targets),
        render=request.render,
        video=request.video,
        infos=request.infos,
        interventions=request.interventions,
    )
    return replace(recipe, source=source) if isinstance(recipe, ObjectRecipe) else recipe


def load_maker(kind: EnvKind) -> Maker:
    """Import the recipe or function that makes the environments of a kind.

    Raises UsageError for a user's kind that cannot be loaded, or makes no environments.
    """
    plugin = plugin_of(kind)
    maker: Maker = extra(kind.extra_name) if kind.extra_name else plugin.load()
    if _is_recipe(maker):
        names = [field.name for field in fields(GymRecipe)]
        why, taken = mismatch(maker, **dict.fromkeys(names)), f"a recipe is made from {', '.join(names)} only"
    elif VecEnv in maker.__mro__ if isinstance(maker, type) else callable(maker):
        why, taken = mismatch(maker, None), "it must take an algorithm.env.request.EnvRequest"
    else:
        raise plugin.error(
            "makes no environments",
            f"{plugin.value} is {maker!r}",
            "it must name a class derived from algorithm.env.gym.GymRecipe or "
            "algorithm.env.base.VecEnv, or a function that returns a VecEnv",
        )
    if why:
        raise plugin.error("cannot be made", f"{plugin.value}: {why}", taken)
    return maker


def make_vec_env(request: EnvRequest) -> VecEnv:
    """Make the environments of a request, ready to reset.

    Several sub-environments run in the environment's own vector class where it has one, unless there are
    wrappers, parameters, workers, a window, a video or ``control_hz``. Failures of that class are not
    survived.

    Raises :class:`EnvError` if the environment cannot be built, UsageError as :func:`load_maker`.
    """
    if request.video and (request.render or request.workers):
        raise ValueError("a video needs an environment in this process, without a window")
    use_folder(request.folder, request.env_type)
    if not isinstance(request.env, str):
        return _of_object(request.env, request)
    kind = kind_of(request.env_type)
    maker = load_maker(kind)
    if not _is_recipe(maker):
        return _made_at_once(kind, maker, request)
    recipe, n = find_recipe(request), request.n
    altered = (
        request.workers
        or request.wrappers
        or request.parameters.names
        or request.render
        or request.video
        or request.control_hz
    )
    if kind.registered and not altered and has_vector_class(recipe.env_id, n):
        return wrap_vector_env(partial(make_vector, recipe.env_id, n, recipe.env_args), request)
    return make_pool(recipe, request)


def _of_object(source: EnvSource, request: EnvRequest) -> VecEnv:
    """Return the environments of an object. Raises UsageError for features that it cannot have."""
    asked = {
        "wrappers": request.wrappers,
        "window": request.render,
        "film": request.video,
        "parameters": request.parameters.names,
        "arguments": request.env_type == OBJECT.name and request.env_args,
        "control_hz": request.control_hz,
    }
    source.check(request.n, request.workers, [what for what, value in asked.items() if value])
    if isinstance(source, ExternalTensorEnv):
        from algorithm.env.lanes.tensor import TensorVecEnv  # it loads torch

        return TensorVecEnv(lambda: source.tensors, request, lent=True)
    if isinstance(source, ExternalVectorEnv):
        return wrap_vector_env(source.make, request)
    if isinstance(source, GameSource):
        games: VecEnv = extra("PettingZooVecEnv")(request)
        return games
    try:
        return make_pool(find_recipe(request), request)
    except GamePassedError:
        if not isinstance(source, EnvMaker):
            raise
        return _of_object(source.game, replace(request, env=source.game))


def make_pool(recipe: GymRecipe, request: EnvRequest) -> EnvPool:
    """Make single environments, in this process or in workers. Raises EnvError if they cannot be built."""
    n, timeout, waiting = request.n, request.timeout, request.waiting

    def make_one(index: int) -> GymEnv:
        waiting(f"{index:,} of {n:,} environments are made")
        return recipe(index)

    executor: Executor
    if request.workers:
        executor = WorkerExecutor(
            recipe, n, request.workers, timeout=timeout, log=request.log, waiting=waiting
        )
    else:
        executor = InProcessExecutor(make_one, n, timeout=timeout, on_hang=request.on_hang)
    make: Callable[..., EnvPool] = EnvPool
    if request.control_hz is not None:
        from algorithm.env.pool.pace import Pace, PacedPool  # for robots alone

        make = partial(PacedPool, pace=Pace(request.control_hz))
    return make(
        executor,
        seed_of=request.seed_of,
        parameters=request.parameters,
        restarts=request.restarts,
        on_fault=request.on_fault,
    )


def wrap_vector_env(make: Callable[[], Any], request: EnvRequest) -> GymVectorEnv:
    """Return the environments of Gymnasium's vector environment. make: builds that."""
    return GymVectorEnv(
        lambda: request.watch(make()),
        seed_of=request.seed_of,
        options=request.options,
        name=request.env_name,
        infos=request.infos,
        interventions=request.interventions,
        on_fault=request.on_fault,
    )


def _is_recipe(maker: object) -> TypeIs[type[GymRecipe]]:
    """Return whether a maker is a class of recipes."""
    return isinstance(maker, type) and issubclass(maker, GymRecipe)


def _made_at_once(kind: EnvKind, maker: Callable[[EnvRequest], VecEnv], request: EnvRequest) -> VecEnv:
    """Return environments that a simulator makes all at once. Raises UsageError for features it lacks."""
    unable = {
        "video": request.video and not kind.films,
        "window": request.render and kind.lanes,
        "options of reset": request.options and kind.lanes,
        "workers": request.workers,
        "wrappers": request.wrappers,
    }
    if asked := [name for name, value in unable.items() if value]:
        raise _unable(kind, asked)
    env = maker(request)
    if VecEnv not in type(env).__mro__:
        raise plugin_of(kind).error(
            "makes no environments",
            f"it has returned {env!r:.80}",
            "it must be an object of a class derived from algorithm.env.base.VecEnv",
        )
    if request.parameters.names and type(env).renew_parameters is VecEnv.renew_parameters:
        env.close()
        raise _unable(kind, ["parameters"])
    if request.video and "rgb_array" not in env.render_modes:
        env.close()
        raise _unable(kind, ["video"])
    return env


def _unable(kind: EnvKind, asked: Sequence[str]) -> UsageError:
    """Return the error for features that a kind of environments lacks."""
    return UsageError(
        f"{kind.name} environments have no {' and no '.join(asked)}",
        why="their simulator makes and steps all of them itself; they are not Gymnasium environments",
        fix="leave that out" + "; --run and --render show a window" * kind.player,
    )
