"""Gymnasium environments in this process: one agent each, stepped one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.data import Float
from algorithm.env.base import EpisodeSeed, Observation, StepResult
from algorithm.env.spaces import BoxActions, obs_spec
from algorithm.errors import EnvError
from algorithm.spec import DEFAULT_BEHAVIOUR, AgentSpec


def make_env(env_id: str, env_args: Mapping[str, Any], *, render: bool = False) -> gym.Env:
    """``gym.make`` with errors that say what to do.

    env_id: a registered id, or ``module:Id``, which imports the module first.
    Raises :class:`EnvError`.
    """
    kwargs = {**env_args, **({"render_mode": "human"} if render else {})}
    try:
        # The passive checker costs a third of a small environment's step.
        return gym.make(env_id, disable_env_checker=True, **kwargs)
    except Exception as error:
        raise EnvError(
            "the environment could not be made",
            where=f"{env_id} with {dict(kwargs)}" if kwargs else env_id,
            why=f"{type(error).__name__}: {error}",
            fix="check base_config.env_name and env_args; module:Id imports a module first",
        ) from error


class GymVecEnv:
    """N copies of one Gymnasium environment with Box observations and actions.

    make:    builds the copy of an index
    n:       number of copies
    seed_of: seed of each episode
    options: given to every ``reset`` (``reset_config``)
    """

    def __init__(
        self,
        make: Callable[[int], gym.Env],
        n: int,
        *,
        seed_of: EpisodeSeed,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._envs = [make(index) for index in range(n)]
        self._seed_of = seed_of
        self._options = dict(options) if options else None
        first = self._envs[0]
        self._name = first.spec.id if first.spec else type(first.unwrapped).__name__
        self._actions = BoxActions(first.action_space, self._name)
        self._obs = obs_spec(first.observation_space, self._name)
        self.specs = {DEFAULT_BEHAVIOUR: AgentSpec(self._obs, self._actions.spec)}
        self._shape = self._obs.shapes[0]
        self._episode = [-1] * n
        self._step = [0] * n

    @property
    def time_limit(self) -> int | None:
        """Steps after which an episode is truncated, where the registry knows it."""
        spec = self._envs[0].spec
        return spec.max_episode_steps if spec else None

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, Observation]:
        """See :class:`~algorithm.env.base.VecEnv`."""
        indices = range(len(self._envs)) if indices is None else indices
        obs = np.empty((len(indices), *self._shape), np.float32)
        for row, index in enumerate(indices):
            if episode is not None:
                self._episode[index] = episode - 1
            self._reset(index, obs, row)
        return {DEFAULT_BEHAVIOUR: self._observation(np.array(indices, np.int64), obs)}

    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        """See :class:`~algorithm.env.base.VecEnv`."""
        n = len(self._envs)
        scaled = self._actions.to_env(actions[DEFAULT_BEHAVIOUR])
        obs = np.empty((n, *self._shape), np.float32)
        reward = np.empty(n, np.float32)
        terminated, truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        for i, env in enumerate(self._envs):
            try:
                obs[i], reward[i], terminated[i], truncated[i], _ = env.step(scaled[i])
            except Exception as error:
                raise self._error(i, "step", error, f"action {scaled[i].tolist()}") from error
            self._step[i] += 1
        ids = np.arange(n)
        ended = np.flatnonzero(terminated | truncated)
        final = None
        if len(ended):
            final = self._observation(ids, obs.copy())
            for i in ended.tolist():
                self._reset(i, obs, i)
        return {
            DEFAULT_BEHAVIOUR: StepResult(
                **vars(self._observation(ids, obs)),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                final=final,
            )
        }

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            env.close()

    def _reset(self, index: int, out: np.ndarray, row: int) -> None:
        self._episode[index] += 1
        self._step[index] = 0
        seed = self._seed_of(index, self._episode[index])
        try:
            first, _ = self._envs[index].reset(seed=seed, options=self._options)
        except Exception as error:
            raise self._error(index, "reset", error, f"seed {seed}") from error
        if np.shape(first) != self._shape:  # assignment would broadcast it silently
            wrong = ValueError(f"observation has shape {np.shape(first)}, its space says {self._shape}")
            raise self._error(index, "reset", wrong, f"seed {seed}")
        out[row] = first

    def _observation(self, ids: np.ndarray, obs: np.ndarray) -> Observation:
        return Observation(ids=ids, obs={"obs": obs}, action_mask=np.zeros((len(ids), 0), np.bool_))

    def _error(self, index: int, call: str, error: Exception, last: str) -> EnvError:
        return EnvError(
            f"{self._name} failed in {call}",
            where=f"copy {index}, episode {self._episode[index]}, step {self._step[index]}, {last}",
            why=f"{type(error).__name__}: {error}",
            fix="run with --debug for the environment's own traceback",
        )
