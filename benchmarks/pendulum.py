"""A tensor environment of any number of lanes: a pendulum."""

from __future__ import annotations

import math
from collections.abc import Mapping

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.env.lanes.contract import TensorEnv, TensorStep

_LIMIT = 200  # steps of an episode


class Pendulum(TensorEnv):
    """Gymnasium's ``Pendulum-v1``: swing a pendulum up and hold it. State: angle from upright, velocity.

    Per step of 0.05 s: velocity += (15 sin θ + 3 u) · 0.05, at most 8; the reward is
    −(θ² + 0.1 velocity² + 0.001 u²) with θ in [−π, π). An episode is truncated after 200 steps.
    """

    observation_space = gym.spaces.Box(np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32))
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, num_envs: int, device: torch.device | str = "cpu") -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.time_limit = _LIMIT
        self._random = torch.Generator(self.device)
        self._state = torch.zeros(num_envs, 2, device=self.device)
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
        angle, velocity = self._state.unbind(-1)
        torque = actions[:, 0].clamp(-2.0, 2.0)
        centred = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = centred.square() + 0.1 * velocity.square() + 0.001 * torque.square()
        velocity = (velocity + (15.0 * angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0)
        self._state = torch.stack((angle + velocity * 0.05, velocity), -1)
        self._steps = self._steps + 1
        truncated = self._steps >= _LIMIT
        final = self._see()
        self._restart(truncated)
        return TensorStep(self._see(), -cost, torch.zeros_like(truncated), truncated, final)

    @override
    def state(self) -> Mapping[str, Tensor]:
        return {"state": self._state, "steps": self._steps, "random": self._random.get_state()}

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._state, self._steps = state["state"].to(self.device), state["steps"].to(self.device)
        self._random.set_state(state["random"])

    def _see(self) -> Tensor:
        """Return the observations [N, 3]."""
        angle, velocity = self._state.unbind(-1)
        return torch.stack((angle.cos(), angle.sin(), velocity), -1)

    def _restart(self, lanes: Tensor) -> None:
        """Begin new episodes in the lanes [N] that are true."""
        # All lanes draw in every step: their number would have to be waited for.
        draws = torch.rand(self._state.shape, generator=self._random, device=self.device) * 2 - 1
        first = draws * torch.tensor([math.pi, 1.0], device=self.device)
        self._state = torch.where(lanes[:, None], first, self._state)
        self._steps = torch.where(lanes, 0, self._steps)
