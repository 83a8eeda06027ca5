"""Environments of EnvPool (https://envpool.readthedocs.io), many stepped at once by threads in C++."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from typing_extensions import override

from algorithm.core.data import Array
from algorithm.env.base import VecEnv
from algorithm.env.registry import wrap_vector_env
from algorithm.env.request import EnvRequest


class EnvPoolVector(VectorEnv):
    """Vector environment of Gymnasium with N environments of one task. A step after an end is a reset.

    args: arguments of ``envpool.make``, such as ``num_threads``
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's attribute

    def __init__(self, task: str, num_envs: int, **args: Any) -> None:  # noqa: ANN401 - the task's own
        import envpool  # an extra of its own

        self._make = partial(envpool.make, task, env_type="gymnasium", num_envs=num_envs, **args)
        self._pool, self._begun = self._make(), False
        self.num_envs, self.spec = num_envs, None
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._obs: Any = None

    @override
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        chosen = (options or {}).get("reset_mask")
        if chosen is None:
            if seed is not None or self._begun:  # a pool gets its only seed when it is made
                self._pool.close()
                self._pool = self._make(**({} if seed is None else {"seed": seed % 2**31}))
            self._begun = True
            self._obs, _ = self._pool.reset()
        else:
            ids = np.flatnonzero(chosen).astype(np.int32)
            some, info = self._pool.reset(ids)
            self._obs = _replaced(self._obs, info["env_id"], some)
        return self._obs, {}

    @override
    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self._obs, reward, terminated, truncated, infos = self._pool.step(actions)
        return self._obs, reward, terminated, truncated, infos

    @override
    def close_extras(self, **kwargs: Any) -> None:
        """Release the threads."""
        self._pool.close()


def _replaced(whole: Any, ids: Array, rows: Any) -> Any:  # noqa: ANN401 - arrays, or a dict of them
    """Return a copy of observations in which those of the environments ``ids`` are replaced by ``rows``."""
    if isinstance(whole, dict):
        return {name: _replaced(value, ids, rows[name]) for name, value in whole.items()}
    copied = np.array(whole)
    copied[ids] = rows
    return copied


def make_envpool(request: EnvRequest) -> VecEnv:
    """Return the environments of a task. Raises EnvError if EnvPool does not have it."""
    task = request.env_name.removeprefix("envpool.")
    return wrap_vector_env(partial(EnvPoolVector, task, request.n, **request.env_args), request)
