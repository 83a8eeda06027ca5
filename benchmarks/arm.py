"""A tensor environment of any number of lanes: an arm that reaches a point."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.env.lanes.contract import TensorEnv, TensorStep

_LIMIT = 50  # steps of an episode


class Reacher(TensorEnv):
    """An arm of two links of length 0.1 in a plane moves its tip to a point; frictionless, without inertia.

    State: two angles, two velocities, the point. The torque changes the velocities, which decay by a fifth a
    step. The reward is −distance − 0.1 |u|². The best return is near −1: half a second to get there, then 0.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, num_envs: int, device: torch.device | str = "cpu") -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.time_limit = _LIMIT
        self._random = torch.Generator(self.device)
        self._state = torch.zeros(num_envs, 6, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    @override
    def reset(self, seed: int | None = None, lanes: Tensor | None = None) -> Tensor:
        if seed is not None:
            self._random.manual_seed(seed)
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._restart(everywhere if lanes is None else lanes)
        return self._see()

    @override
    def step(self, actions: Tensor) -> TensorStep:
        force = actions.clamp(-1.0, 1.0)
        velocities = 0.8 * self._state[:, 2:4] + 2.0 * force
        angles = self._state[:, :2] + 0.1 * velocities
        distance = (_tip(angles) - self._state[:, 4:]).norm(dim=-1)
        reward = -distance - 0.1 * force.square().sum(-1)
        self._state = torch.cat((angles, velocities, self._state[:, 4:]), -1)
        self._steps = self._steps + 1
        truncated = self._steps >= _LIMIT
        final = self._see()
        self._restart(truncated)
        return TensorStep(self._see(), reward, torch.zeros_like(truncated), truncated, final)

    def _see(self) -> Tensor:
        """Return the observations [N, 10]."""
        angles, velocities, point = self._state[:, :2], self._state[:, 2:4], self._state[:, 4:]
        return torch.cat((angles.cos(), angles.sin(), velocities, point, _tip(angles) - point), -1)

    def _restart(self, lanes: Tensor) -> None:
        """Begin new episodes in the lanes [N] that are true."""
        # All lanes draw in every step: their number would have to be waited for.
        draws = torch.rand(self._state.shape, generator=self._random, device=self.device) * 2 - 1
        angles, radius, turn = draws[:, :2] * math.pi, 0.05 + 0.125 * (draws[:, 4] + 1.0) / 2, draws[:, 5]
        point = torch.stack((radius * (turn * math.pi).cos(), radius * (turn * math.pi).sin()), -1)
        first = torch.cat((angles, 0.1 * draws[:, 2:4], point), -1)
        self._state = torch.where(lanes[:, None], first, self._state)
        self._steps = torch.where(lanes, 0, self._steps)


def _tip(angles: Tensor) -> Tensor:
    """Return the tip's place [N, 2]."""
    first, both = angles[:, 0], angles.sum(-1)
    return 0.1 * torch.stack((first.cos() + both.cos(), first.sin() + both.sin()), -1)
