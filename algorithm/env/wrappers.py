"""Gymnasium wrappers by name, as in ``wrappers: [{RepeatAction: {…}}]``, and two of our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsFloat, TypeGuard

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.errors import COMMON_BLOCK, EnvError, UsageError, described
from algorithm.core.plugins import mismatch
from algorithm.env.env_id import advice, import_source, resolve_env_id, suggest_name
from algorithm.env.masks import MASK, MASKS_METHOD
from algorithm.env.outputs import Remark, results_of
from algorithm.env.pool.process_exit import exits_as_errors

Wrapper = Mapping[str, Mapping[str, Any] | None]
"""One entry of ``base_config.wrappers``: name -> keyword arguments."""

_KEY = "base_config.wrappers"

_WITH_STATISTICS = {
    gym.wrappers.NormalizeObservation: f"{COMMON_BLOCK}.use_normalization does the same, and is saved",
    gym.wrappers.NormalizeReward: f"{COMMON_BLOCK}.reward_scaling does the same, is saved, and does not "
    "change rewards in evaluations; eval_config.wrappers keeps a wrapper out "
    "of these",
}


def resolve_wrappers(wrappers: Iterable[Wrapper], folder: Path | None) -> tuple[Wrapper, ...]:
    """Resolve files in names, as :func:`~algorithm.env.env_id.resolve_env_id` does. Raises EnvError."""
    return tuple(
        {resolve_env_id(name, folder, key=_KEY): kwargs for name, kwargs in entry.items()}
        for entry in wrappers
    )


def load_wrapper(entry: Wrapper) -> tuple[type[gym.Wrapper], Mapping[str, Any]]:
    """Return the class and the keyword arguments of one entry.

    The name is a class of ``gymnasium.wrappers``, or ``module:Class`` or ``file.py:Class`` as
    :func:`resolve_wrappers` returns it. Raises UsageError.
    """
    if len(entry) != 1:
        raise UsageError(
            f"an entry of {_KEY} has {len(entry)} names",
            where=_KEY,
            why=f"it is {dict(entry)}",
            fix="give every wrapper its own entry, innermost first: [{Name: {kwargs}}, …]",
        )
    ((name, kwargs),) = entry.items()
    source, colon, wanted = name.rpartition(":")
    there = _module(name, source) if colon else gym.wrappers
    wrapper = getattr(there, wanted, None)
    if not _is_wrapper(wrapper):
        raise _unknown(name, [known for known, value in vars(there).items() if _is_wrapper(value)])
    return wrapper, kwargs or {}


def apply_wrappers(env: gym.Env, wrappers: Sequence[tuple[type[gym.Wrapper], Mapping[str, Any]]]) -> gym.Env:
    """Put the wrappers around ``env``, the first one innermost. Raises EnvError."""
    env = _with_masks(env)
    for wrapper, kwargs in wrappers:
        try:
            with exits_as_errors():
                env = _with_masks(wrapper(env, **kwargs))
        except Exception as error:
            raise EnvError(
                "a wrapper could not be put around the environment",
                where=f"{_KEY}, {wrapper.__name__} with {dict(kwargs)} around {env}",
                why=described(error),
                fix=advice(error, "check its arguments in the wrapper's documentation"),
            ) from error
    return env


def wrappers_around(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper]:
    """Yield the wrappers around an environment, from the outermost one on."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def running_statistics(env: gym.Env[Any, Any]) -> tuple[Remark, ...]:
    """Return a remark on each wrapper around ``env`` whose statistics no checkpoint holds."""
    return tuple(
        Remark(
            what=f"the wrapper {type(wrapper).__name__} keeps running statistics",
            why="checkpoints do not store them: evaluations and asac.load start with others, and a resumed "
            "run is not exact",
            fix=f"leave it out: {instead}",
        )
        for wrapper in wrappers_around(env)
        for kind, instead in _WITH_STATISTICS.items()
        if isinstance(wrapper, kind)
    )


def _module(name: str, source: str) -> ModuleType:
    """Import the module of a wrapper's name. Raises UsageError."""
    try:
        return import_source(source)
    except Exception as error:
        fix = (
            "module:Class and file.py:Class are searched for in the task's folder and on Python's module path"
        )
        raise UsageError(
            f"the wrapper {name!r} cannot be imported",
            where=_KEY,
            why=described(error),
            fix=advice(error, fix),
        ) from error


def _is_wrapper(value: object) -> TypeGuard[type[gym.Wrapper]]:
    """Return whether a value is a class of wrappers."""
    return isinstance(value, type) and issubclass(value, gym.Wrapper)


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    """Return the error for a wrapper that does not exist."""
    source, _, wanted = name.rpartition(":")
    return UsageError(
        f"there is no wrapper {name!r}",
        where=_KEY,
        why=f"{wanted} is not a subclass of gymnasium.Wrapper in {source or 'gymnasium.wrappers'}",
        fix=f"{suggest_name(wanted, known)}; or name module:Class or file.py:Class",
    )


class MasksInInfos(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose infos have the mask that its method ``action_masks`` returns (sb3-contrib's way).

    A mask that is in the info already stays. Where the task has ended there is none.
    """

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, info = results_of("reset", self.env.reset(seed=seed, options=options))
        return obs, self._with_mask(info)

    @override
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = results_of("step", self.env.step(action))
        return obs, reward, terminated, truncated, info if terminated else self._with_mask(info)

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return the info with the mask of the method, unless it has one."""
        return info if MASK in info else {**info, MASK: self.env.get_wrapper_attr(MASKS_METHOD)()}


def _with_masks(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the environment, wrapped in MasksInInfos if its masks come from a method ``action_masks()``.

    It is returned as it is if its actions are a Box, its observations have a mask, the method is missing or
    takes arguments, or it has that wrapper.
    """
    seen = env.observation_space
    known = isinstance(env.action_space, gym.spaces.Box) or (
        isinstance(seen, gym.spaces.Dict) and MASK in seen.spaces
    )
    if known or not env.has_wrapper_attr(MASKS_METHOD) or mismatch(env.get_wrapper_attr(MASKS_METHOD)):
        return env
    is_wrapped = any(isinstance(wrapper, MasksInInfos) for wrapper in wrappers_around(env))
    return env if is_wrapped else MasksInInfos(env)


class KeepElements(gym.ObservationWrapper[NDArray[Any], Any, NDArray[Any]], RecordConstructorArgs):
    """A wrapper that keeps the listed elements of a vector, in that order.

    By configuration: ``wrappers: [{"algorithm.env.wrappers:KeepElements": {indices: [0, 2]}}]``.

    indices: from 0
    Raises ValueError for an observation that is not a 1-d Box, and for invalid indices.
    """

    def __init__(self, env: gym.Env[NDArray[Any], Any], indices: Sequence[int]) -> None:
        RecordConstructorArgs.__init__(self, indices=indices)
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"the observation is {space}; elements can be kept of a Box with one dimension")
        size = space.shape[0]
        if [*indices] != [i for i in indices if type(i) is int and 0 <= i < size]:
            raise ValueError(f"indices is {indices!r}; the elements of this observation are 0 to {size - 1}")
        self._kept = np.array(indices, np.int64)
        dtype: Any = space.dtype
        self.observation_space = gym.spaces.Box(space.low[self._kept], space.high[self._kept], dtype=dtype)

    @override
    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the kept elements, [n] -> [len(indices)], as a copy."""
        kept: NDArray[Any] = observation[self._kept]
        return kept


class PressFire(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that begins each episode with FIRE and the next action in the list (Mnih et al. 2015).

    Some games start with that button only, and a policy that never presses it would learn nothing. A game
    without the button is left alone. Rewards of the two actions are not counted.

    By configuration, behind ``AtariPreprocessing``: ``wrappers: ["algorithm.env.wrappers:PressFire"]``.
    Raises ValueError for an environment that is no Atari game.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        meanings = getattr(env.unwrapped, "get_action_meanings", None)
        if meanings is None:
            raise ValueError(f"{env.unwrapped} is not an Atari game, so it has no button to press")
        names = meanings()
        fire = names.index("FIRE") if "FIRE" in names else None
        self._actions = () if fire is None or len(names) <= fire + 1 else (fire, fire + 1)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode; if it ends during the two actions, begin another one."""
        obs, info = self.env.reset(seed=seed, options=options)
        for action in self._actions:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        return obs, info


class KeptOpen(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of the user, which the end of a training does not close."""

    @override
    def close(self) -> None:
        """Leave the environment open."""


class LanesKeptOpen(VectorWrapper):
    """A vector environment of the user, which the end of a training does not close."""

    @override
    def close(self, **kwargs: Any) -> None:
        """Leave it open."""


@contextmanager
def closed_after_error(env: gym.Env[Any, Any]) -> Iterator[None]:
    """Close the environment where the block raises."""
    try:
        yield
    except BaseException:
        with suppress(Exception), exits_as_errors():  # the first error is the one to report
            env.close()
        raise
