"""Both spaces of a gymnasium environment, and its action masks."""

from __future__ import annotations

import gymnasium as gym

from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.env.actions import Actions
from algorithm.env.masks import MASK, Masks
from algorithm.env.observations import Observations
from algorithm.env.spaces import Space


class Adapter:
    """Conversion of observations, masks and actions between a pair of spaces and the project's arrays.

    env:   name of the environment, for messages
    stack: frames of the observation's frame stack, 1 for none
    Raises :class:`EnvError` for unsupported spaces.
    """

    def __init__(self, observation_space: Space, action_space: Space, env: str, *, stack: int = 1) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.actions = Actions(action_space, env)
        in_obs = isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces
        if in_obs and not self.actions.spec.branches:
            raise EnvError(
                f"the observation {MASK!r} has nothing to mask",
                where=f"{env}, actions {action_space}",
                why="a mask says which choices are allowed, and a Box has none",
                fix="rename it or leave it out with a wrapper (base_config.wrappers)",
            )
        self.obs_space = _without_mask(observation_space) if in_obs else observation_space
        self.observations = Observations(self.obs_space, env, stack=stack)
        self.masks = Masks(action_space, self.actions, observed=in_obs)
        self.spec = AgentSpec(self.observations.spec, self.actions.spec)


def _without_mask(space: Space) -> Space:
    assert isinstance(space, gym.spaces.Dict)
    return gym.spaces.Dict([(key, part) for key, part in space.spaces.items() if key != MASK])
