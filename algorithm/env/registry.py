"""Environments of any kind, by ``env_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from typing_extensions import TypeIs, override

from algorithm.core.errors import UsageError
from algorithm.core.extras import extra
from algorithm.core.plugins import accepts
from algorithm.core.program import as_typed
from algorithm.env.base import EpisodeSeed, VecEnv
from algorithm.env.env_id import resolve_env_id, use_folder
from algorithm.env.gym import GymRecipe
from algorithm.env.kinds import OBJECT, EnvKind, kind_of, plugin_of
from algorithm.env.lanes.gym_vector import GymVectorEnv
from algorithm.env.objects import EnvSource, LentLanes, LentTensors
from algorithm.env.parameters.apply import NO_TARGETS, Targets
from algorithm.env.registered import has_vector_class, make_vector
from algorithm.env.request import EnvRequest, PoolOptions
from algorithm.env.wrappers import Wrapper, resolve_wrappers

_IN_PROCESS = PoolOptions()

Maker = type[GymRecipe] | Callable[[EnvRequest], VecEnv]
"""Maker of the environments of a kind: of single ones, or of all at once."""


@dataclass(frozen=True, kw_only=True)
class ObjectRecipe(GymRecipe):
    """Recipe of environments that were handed in; without a source it names what is missing."""

    source: EnvSource | None = None

    @override
    def _build(self, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        if self.source is None:
            raise absent(self.env_id)
        return self.source(**kwargs)

    @override
    def _advice(self, error: Exception) -> str:
        return "fix it where it is made; base_config.env_args are its arguments"


def absent(name: str) -> UsageError:
    """Return the error for an environment that was an object of Python code, and is not here."""
    return UsageError(
        "the run's environment was a Python object, which cannot be made from a name",
        where=f"base_config.env_name: {name}",
        why="the run was started with an instance, a class or a function",
        fix="continue in Python, where the object is: run = asac.Run(FOLDER, env=env), then run.resume(), "
        "run.evaluate(10) or run.policy()",
    )


def find_recipe(
    env_type: str,
    env: str | EnvSource,
    *,
    folder: Path | None,
    env_args: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    wrappers: Sequence[Wrapper],
    parameters: Targets = NO_TARGETS,
) -> GymRecipe:
    """Return the recipe of single environments; for its arguments see :func:`make_vec_env`.

    Raises :class:`EnvError` for a file that is not there, UsageError for a kind that cannot be used, or whose
    environments are not single ones of Gymnasium.
    """
    source, name = (None, env) if isinstance(env, str) else (env, env.name)
    if source and env_type != OBJECT.name:  # the arguments are those of the environment that has the name
        env_type, env_args = OBJECT.name, None
    use_folder(folder, env_type)
    maker = load_maker(kind_of(env_type))
    if not _is_recipe(maker):
        raise UsageError(
            f"{env_type} environments are not Gymnasium environments",
            where=f"base_config.env_type: {env_type}",
            why="their simulator makes and steps all of them itself",
            fix=(
                "play them from the command line: "
                f"{as_typed('python main.py TASK -n NAME --run or --eval N')}"
            ),
        )
    recipe = maker(
        env_id=resolve_env_id(name, folder),
        env_args=env_args or {},
        wrappers=resolve_wrappers(wrappers, folder),
        options=options,
        parameters=dict(parameters),
    )
    return replace(recipe, source=source) if isinstance(recipe, ObjectRecipe) else recipe


def load_maker(kind: EnvKind) -> Maker:
    """Import what makes the environments of a kind.

    Raises UsageError for a plug-in that cannot be loaded, and for what makes no environments.
    """
    plugin = plugin_of(kind)
    maker: Maker = extra(kind.extra_name) if kind.extra_name else plugin.load()
    if _is_recipe(maker):
        names = [one.name for one in fields(GymRecipe)]
        why, taken = accepts(maker, **dict.fromkeys(names)), f"a recipe is made from {', '.join(names)} only"
    elif VecEnv in maker.__mro__ if isinstance(maker, type) else callable(maker):
        why, taken = accepts(maker, None), "it must take an algorithm.env.request.EnvRequest"
    else:
        raise plugin.error(
            "makes no environments",
            f"{plugin.value} is {maker!r}",
            "its entry point must name a class derived from algorithm.env.gym.GymRecipe or "
            "algorithm.env.base.VecEnv, or a function that returns a VecEnv",
        )
    if why:
        raise plugin.error("cannot be made", f"{plugin.value}: {why}", taken)
    return maker


def make_vec_env(
    env_type: str,
    env: str | EnvSource,
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
    wrappers, parameters, workers, a window or a video.

    env:      its name, or what was handed in instead of one
    folder:   of the task, searched first for files and modules
    env_args: keyword arguments of the environment
    options:  passed to every reset
    render:   show sub-environment 0 in a window
    video:    sub-environment 0 renders images; excludes a window and workers
    wrappers: ``base_config.wrappers``, innermost first
    pool:     of single environments and of Unity's players, with the parameters of episodes; all else of it
              has no effect on the environment's own vector class
    Raises :class:`EnvError` if the environment cannot be built, UsageError as :func:`load_maker`.
    """
    if video and (render or pool.workers):
        raise ValueError("a video needs an environment in this process, without a window")
    use_folder(folder, env_type)
    request = EnvRequest(
        env_name=env if isinstance(env, str) else env.name,
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
    if not isinstance(env, str):
        return _handed_in(env, env_type, request)
    kind = kind_of(env_type)
    maker = load_maker(kind)
    if not _is_recipe(maker):
        return _made_at_once(kind, maker, request)
    recipe = _recipe_for(env_type, env, request)
    plain = kind.registered and not (pool.workers or wrappers or pool.parameters.names or render or video)
    if plain and has_vector_class(recipe.env_id, n):
        return own_vector(partial(make_vector, recipe.env_id, n, recipe.env_args), request)
    return pool.make(recipe, n=n, seed_of=seed_of)


def _handed_in(source: EnvSource, env_type: str, request: EnvRequest) -> VecEnv:
    """Return the environments of an object. Raises UsageError for what such ones cannot have."""
    pool = request.pool
    asked = {
        "wrappers": request.wrappers,
        "window": request.render,
        "film": request.video,
        "parameters": pool.parameters.names,
        "arguments": env_type == OBJECT.name and request.env_args,
    }
    source.check(request.n, pool.workers, [what for what, value in asked.items() if value])
    if isinstance(source, LentTensors):
        from algorithm.env.lanes.tensor import TensorVecEnv  # it loads torch

        return TensorVecEnv(lambda: source.tensors, request, lent=True)
    if isinstance(source, LentLanes):
        return own_vector(source.make, request)
    return pool.make(_recipe_for(env_type, source, request), n=request.n, seed_of=request.seed_of)


def _recipe_for(env_type: str, env: str | EnvSource, request: EnvRequest) -> GymRecipe:
    recipe = find_recipe(
        env_type,
        env,
        folder=request.folder,
        env_args=request.env_args,
        options=request.options,
        wrappers=request.wrappers,
        parameters=request.pool.parameters.targets,
    )
    return replace(recipe, render=request.render, video=request.video, infos=request.pool.infos)


def own_vector(make: Callable[[], Any], request: EnvRequest) -> GymVectorEnv:
    """Return the environments of a vector class of their own."""
    return GymVectorEnv(
        lambda: request.pool.watch(make()),
        seed_of=request.seed_of,
        options=request.options,
        name=request.env_name,
        infos=request.pool.infos,
        on_fault=request.pool.on_fault,
    )


def _is_recipe(maker: object) -> TypeIs[type[GymRecipe]]:
    return isinstance(maker, type) and issubclass(maker, GymRecipe)


def _made_at_once(kind: EnvKind, maker: Callable[[EnvRequest], VecEnv], request: EnvRequest) -> VecEnv:
    """Return the environments that a simulator makes itself. Raises UsageError for what they cannot have."""
    unable = {
        "video": request.video and not kind.films,
        "window": request.render and kind.lanes,
        "options of reset": request.options and kind.lanes,
        "workers": request.pool.workers,
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
    if request.pool.parameters.names and type(env).renew_parameters is VecEnv.renew_parameters:
        env.close()
        raise _unable(kind, ["parameters"])
    if request.video and "rgb_array" not in env.render_modes:
        env.close()
        raise _unable(kind, ["video"])
    return env


def _unable(kind: EnvKind, asked: Sequence[str]) -> UsageError:
    return UsageError(
        f"{kind.name} environments have no {' and no '.join(asked)}",
        why="their simulator makes and steps all of them itself; they are not Gymnasium environments",
        fix="leave that out" + "; --run and --render show a window" * kind.player,
    )
