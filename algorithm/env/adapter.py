"""Conversion between the spaces of an environment and the project's arrays."""

from __future__ import annotations

from contextlib import closing

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.env.actions import Actions
from algorithm.env.masks import MASK, MASKS_METHOD, Masks
from algorithm.env.observations import Observations
from algorithm.env.spaces import Space


class Adapter:
    """Conversion between a Gymnasium environment's observations, masks and actions and the project's arrays.

    env:   name of the environment, for messages
    stack: frames of the observation's frame stack, 1 for none
    Raises :class:`EnvError` for unsupported spaces.
    """

    def __init__(self, observation_space: Space, action_space: Space, env: str, *, stack: int = 1) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.actions = Actions(action_space, env)
        self.obs_space, in_obs = observation_space, False
        if isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces:
            in_obs = True
            parts = observation_space.spaces.items()
            self.obs_space = gym.spaces.Dict([(key, part) for key, part in parts if key != MASK])
        if in_obs and not self.actions.spec.branches:
            raise EnvError(
                f"the observation {MASK!r} has nothing to mask",
                where=f"{env}, actions {action_space}",
                why="a mask marks the allowed choices, and a Box has no choices",
                fix="rename it or leave it out with a wrapper (base_config.wrappers)",
            )
        self.observations = Observations(self.obs_space, env, stack=stack)
        self.masks = Masks(self.actions, observed=in_obs)
        self.spec = AgentSpec(self.observations.spec, self.actions.spec)


def has_mask_method(env: VectorEnv, adapter: Adapter) -> bool:
    """Return whether the environments have action masks only as the method ``action_masks``."""
    observed = adapter.obs_space is not adapter.observation_space
    if observed or not adapter.spec.action.branches:
        return False
    if isinstance(env, SyncVectorEnv):
        return bool(env.envs[0].has_wrapper_attr(MASKS_METHOD))
    if not isinstance(env, AsyncVectorEnv):
        return False
    with closing(env.env_fns[0]()) as single:
        return bool(single.has_wrapper_attr(MASKS_METHOD))
