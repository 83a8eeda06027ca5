"""Environments that are written in JAX: MuJoCo Playground and Brax."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack
from typing_extensions import override

from algorithm.core.errors import EnvError, UsageError
from algorithm.env.base import VecEnv
from algorithm.env.env_id import suggest_name
from algorithm.env.lanes.contract import TensorEnv, TensorObs, TensorStep
from algorithm.env.lanes.tensor import TensorVecEnv
from algorithm.env.request import EnvRequest

Jax = Any
"""An array, state or function of JAX, which is imported where it is used, since it is an extra."""


class JaxEnv(TensorEnv):
    """Lanes of an environment with Brax's interface, ``reset(key)`` and ``step(state, action)`` of one lane.

    The library's automatic reset loses the last observation, and starts every episode of a lane in the same
    state. So lanes are reset here, in the same compiled step. Arrays pass by DLPack, without a copy.

    limit: steps after which an episode is truncated
    """

    def __init__(self, env: Jax, num_envs: int, limit: int) -> None:
        import jax

        self._jax, self._limit = jax, limit
        self._reset_each, self._step_each = jax.vmap(env.reset), jax.vmap(env.step)
        self._begin, self._advance = jax.jit(self._reset_ended), jax.jit(self._step_lanes)
        self._key = jax.random.PRNGKey(0)
        self.num_envs, self.time_limit = num_envs, limit
        self.device = torch.device("cuda" if jax.default_backend() == "gpu" else "cpu")
        seen = jax.eval_shape(env.reset, self._key).obs
        self.observation_space = _space(seen)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
        self._state: Jax = None
        self._steps = jax.numpy.zeros(num_envs, jax.numpy.int32)

    @override
    def reset(self, seed: int | None = None, lanes: Tensor | None = None) -> TensorObs:
        if seed is not None:
            self._key = self._jax.random.PRNGKey(seed % 2**31)
        ended = self._jax.numpy.ones(self.num_envs, bool) if lanes is None else self._to_jax(lanes)
        if self._state is None:
            self._state = self._reset_each(self._jax.random.split(self._key, self.num_envs))
        self._key, self._state, self._steps = self._begin(self._key, self._state, self._steps, ended)
        obs: TensorObs = _torch(self._state.obs)
        return obs

    @override
    def step(self, actions: Tensor) -> TensorStep:
        after, outcome = self._advance(self._key, self._state, self._steps, self._to_jax(actions))
        self._key, self._state, self._steps = after
        reward, terminated, truncated, final = map(_torch, outcome)
        return TensorStep(_torch(self._state.obs), reward, terminated.bool(), truncated.bool(), final)

    @override
    def state(self) -> Mapping[str, Tensor]:
        leaves = self._jax.tree.leaves((self._key, self._state, self._steps))
        return {str(i): _torch(leaf) for i, leaf in enumerate(leaves)}

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        tree = self._jax.tree.structure((self._key, self._state, self._steps))
        leaves = [self._jax.numpy.asarray(state[str(i)].numpy()) for i in range(tree.num_leaves)]
        self._key, self._state, self._steps = self._jax.tree.unflatten(tree, leaves)

    def _to_jax(self, value: Tensor) -> Jax:
        return self._jax.dlpack.from_dlpack(value.contiguous())

    def _reset_ended(self, key: Jax, state: Jax, steps: Jax, ended: Jax) -> tuple[Jax, Jax, Jax]:
        """Reset the lanes that have ended, if there are any; return key, state and steps."""
        jax = self._jax
        key, reset_key = jax.random.split(key)

        def reset_state() -> Jax:
            first = self._reset_each(jax.random.split(reset_key, self.num_envs))
            return jax.tree.map(partial(_rows, jax, ended), first, state)

        state = jax.lax.cond(ended.any(), reset_state, lambda: state)
        return key, state, jax.numpy.where(ended, 0, steps)

    def _step_lanes(self, key: Jax, state: Jax, steps: Jax, action: Jax) -> tuple[Jax, Jax]:
        """Step all lanes and reset those that ended; return (key, state, steps) and the step's outcome."""
        after, steps = self._step_each(state, action), steps + 1
        terminated = after.done > 0
        truncated = (steps >= self._limit) & ~terminated
        begun = self._reset_ended(key, after, steps, terminated | truncated)
        flags = (flag.astype("uint8") for flag in (terminated, truncated))
        return begun, (after.reward, *flags, after.obs)


def _rows(jax: Jax, chosen: Jax, new: Jax, old: Jax) -> Jax:
    """Return the rows of ``new`` that are chosen, else those of ``old``, in its dtype."""
    where = chosen.reshape((-1,) + (1,) * (old.ndim - 1))
    return jax.numpy.where(where, new.astype(old.dtype), old)


def _space(seen: Jax) -> gym.Space[Any]:
    """Return the space of observations, by their shapes."""
    if isinstance(seen, Mapping):
        return gym.spaces.Dict({name: _space(leaf) for name, leaf in seen.items()})
    return gym.spaces.Box(-np.inf, np.inf, seen.shape, np.float32)


def _torch(value: Jax) -> Any:  # noqa: ANN401 - a tensor, or a dict of them
    """Return arrays of JAX as tensors, without a copy."""
    if isinstance(value, Mapping):
        return {name: _torch(leaf) for name, leaf in value.items()}
    return from_dlpack(value)


def make_playground(request: EnvRequest) -> VecEnv:
    """Return lanes of MuJoCo Playground; ``env_args`` replace values of the task's configuration."""
    return TensorVecEnv(partial(_playground, request), request)


def _playground(request: EnvRequest) -> TensorEnv:
    """Make the lanes of a Playground task. Raises EnvError and UsageError."""
    from mujoco_playground import registry

    task = request.env_name.removeprefix("playground.")
    if task not in registry.ALL_ENVS:
        raise _unknown(task, registry.ALL_ENVS)
    config, overrides = registry.get_default_config(task), dict(request.env_args)
    if "impl" in config and _on_cpu():
        overrides.setdefault("impl", "jax")  # Warp, which is the default, steps on a GPU only
    if overrides.get("action_repeat", 1) != 1:
        raise UsageError(
            "actions of Playground are not repeated here",
            where="base_config.env_args.action_repeat",
            why="Playground's own training does that outside of its environments",
            fix="leave it out, or set ctrl_dt, the time of an action",
        )
    env = registry.load(task, config=config, config_overrides=overrides)
    return JaxEnv(env, request.n, config.episode_length)


def _on_cpu() -> bool:
    """Return whether JAX computes on the CPU."""
    import jax  # here, so that a missing library of simulators is reported first

    return bool(jax.default_backend() == "cpu")


def make_brax(request: EnvRequest) -> VecEnv:
    """Return lanes of Brax; ``env_args``: the task's arguments, and ``episode_length``, by default 1000."""
    return TensorVecEnv(partial(_brax, request), request)


def _brax(request: EnvRequest) -> TensorEnv:
    """Make the lanes of a Brax task. Raises EnvError for an unknown one."""
    from brax import envs

    args, task = dict(request.env_args), request.env_name.removeprefix("brax.")
    if task not in envs._envs:
        raise _unknown(task, tuple(envs._envs))
    limit = args.pop("episode_length", 1000)
    return JaxEnv(envs.get_environment(task, **args), request.n, limit)


def _unknown(name: str, known: tuple[str, ...]) -> EnvError:
    return EnvError(
        "there is no such task",
        where=f"base_config.env_name: {name}",
        why="the library has no environment of that name",
        fix=suggest_name(name, known),
    )
