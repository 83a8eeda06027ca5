"""Facts of Gymnasium's registry about an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gymnasium as gym
import gymnasium.vector
from gymnasium.envs.registration import EnvSpec

from algorithm.core.system.output import silence
from algorithm.env.env_id import register_env
from algorithm.env.wrappers import Wrapper, load_wrapper

_PYBULLET = ("pybullet_envs_gymnasium", "pybullet_envs")
_PRINTING = (*_PYBULLET, "ale_py", "gymnasium_robotics")
"""Packages of environments that print when they are imported or built."""


def has_vector_class(env_id: str, n: int) -> bool:
    """Return whether ``n`` sub-environments should run in the environment's own vector class."""
    spec = _registered(env_id)
    return spec is not None and spec.vector_entry_point is not None and (n > 1 or spec.entry_point is None)


def reward_threshold(env_id: str, wrappers: Iterable[Wrapper]) -> float | None:
    """Return the mean return from which Gymnasium's registry counts an environment as solved.

    None if the registry has none, or if one of the wrappers changes rewards.
    """
    changing = (gym.RewardWrapper, gym.wrappers.NormalizeReward)
    if any(issubclass(load_wrapper(wrapper)[0], changing) for wrapper in wrappers):
        return None
    spec = _registered(env_id)
    return spec.reward_threshold if spec else None


def make_vector(env_id: str, n: int, env_args: Mapping[str, Any]) -> gym.vector.VectorEnv:
    """Make ``n`` sub-environments in the environment's own vector class."""
    return gym.make_vec(register_env(env_id), num_envs=n, vectorization_mode="vector_entry_point", **env_args)


def _registered(env_id: str) -> EnvSpec | None:
    """Return the entry of an environment in Gymnasium's registry; None if there is none."""
    try:
        with quietly(env_id):
            return gym.registry.get(register_env(env_id))
    except Exception:
        return None  # building the environment reports it


def _is_from(packages: tuple[str, ...], env_id: str) -> bool:
    """Return whether an environment belongs to one of these packages."""
    module, _, name = env_id.rpartition(":")
    spec = gym.registry.get(name)
    entry_point = spec.entry_point if spec else None
    origins = (module, entry_point.partition(":")[0] if isinstance(entry_point, str) else "")
    return any(origin.split(".")[0] in packages for origin in origins)


def is_pybullet(env_id: str) -> bool:
    """Return whether an environment is one of PyBullet."""
    return _is_from(_PYBULLET, env_id)


def quietly(env_id: str) -> AbstractContextManager[None]:
    """Return a context that discards output, for environments that print when they are imported or built."""
    return silence() if _is_from(_PRINTING, env_id) else nullcontext()
