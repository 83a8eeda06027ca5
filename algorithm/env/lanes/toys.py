"""Tensor environments of any number of lanes: a pendulum, and an arm that reaches a point."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.env.lanes.contract import TensorEnv, TensorStep


class _TorchEnv(TensorEnv):
    """Base of the toys: a row of numbers is the state of a lane, and is reset where an episode ends.

    A subclass defines the first state, the observation of a state, and the step.
    """

    width: ClassVar[int]
    """Numbers of a lane's state."""
    limit: ClassVar[int]

    def __init__(self, num_envs: int, device: torch.device | str = "cpu") -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.time_limit = self.limit
        self._random = torch.Generator(self.device)
        self._state = torch.zeros(num_envs, self.width, device=self.device)
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    @abstractmethod
    def _begin(self, draws: Tensor) -> Tensor:
        """Return first states [N, width] from uniform ``draws`` in [−1, 1) of the same shape."""

    @abstractmethod
    def _see(self, state: Tensor) -> Tensor:
        """Return the observations [N, …] of states [N, width]."""

    @abstractmethod
    def _move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next states [N, width], and the rewards [N]."""

    @override
    def reset(self, seed: int | None = None, lanes: Tensor | None = None) -> Tensor:
        if seed is not None:
            self._random.manual_seed(seed)
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._restart(everywhere if lanes is None else lanes)
        return self._see(self._state)

    @override
    def step(self, actions: Tensor) -> TensorStep:
        self._state, reward = self._move(self._state, actions)
        self._steps = self._steps + 1
        truncated = self._steps >= self.limit
        final = self._see(self._state)
        self._restart(truncated)
        return TensorStep(self._see(self._state), reward, torch.zeros_like(truncated), truncated, final)

    @override
    def state(self) -> Mapping[str, Tensor]:
        return {"state": self._state, "steps": self._steps, "random": self._random.get_state()}

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._state, self._steps = state["state"].to(self.device), state["steps"].to(self.device)
        self._random.set_state(state["random"])

    def _restart(self, lanes: Tensor) -> None:
        """Begin new episodes in the lanes [N] that are true."""
        # All lanes draw in every step: their number would have to be waited for.
        draws = torch.rand(self._state.shape, generator=self._random, device=self.device) * 2 - 1
        self._state = torch.where(lanes[:, None], self._begin(draws), self._state)
        self._steps = torch.where(lanes, 0, self._steps)


class Pendulum(_TorchEnv):
    """Gymnasium's ``Pendulum-v1``: swing a pendulum up and hold it. State: angle from upright, velocity.

    Per step of 0.05 s: velocity += (15 sin θ + 3 u) · 0.05, at most 8; the reward is
    −(θ² + 0.1 velocity² + 0.001 u²) with θ in [−π, π).
    """

    width, limit = 2, 200
    observation_space = gym.spaces.Box(np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32))
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    @override
    def _begin(self, draws: Tensor) -> Tensor:
        return draws * torch.tensor([math.pi, 1.0], device=self.device)

    @override
    def _see(self, state: Tensor) -> Tensor:
        angle, velocity = state.unbind(-1)
        return torch.stack((angle.cos(), angle.sin(), velocity), -1)

    @override
    def _move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        angle, velocity = state.unbind(-1)
        torque = action[:, 0].clamp(-2.0, 2.0)
        centred = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = centred.square() + 0.1 * velocity.square() + 0.001 * torque.square()
        velocity = (velocity + (15.0 * angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0)
        return torch.stack((angle + velocity * 0.05, velocity), -1), -cost


class Reacher(_TorchEnv):
    """An arm of two links of length 0.1 in a plane moves its tip to a point; frictionless, without inertia.

    State: two angles, two velocities, the point. The torque changes the velocities, which decay by a fifth a
    step. The reward is −distance − 0.1 |u|². The best return is near −1: half a second to get there, then 0.
    """

    width, limit = 6, 50
    observation_space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @override
    def _begin(self, draws: Tensor) -> Tensor:
        angles, radius, turn = draws[:, :2] * math.pi, 0.05 + 0.125 * (draws[:, 4] + 1.0) / 2, draws[:, 5]
        point = torch.stack((radius * (turn * math.pi).cos(), radius * (turn * math.pi).sin()), -1)
        return torch.cat((angles, 0.1 * draws[:, 2:4], point), -1)

    @override
    def _see(self, state: Tensor) -> Tensor:
        angles, velocities, point = state[:, :2], state[:, 2:4], state[:, 4:]
        return torch.cat((angles.cos(), angles.sin(), velocities, point, self._tip(angles) - point), -1)

    @override
    def _move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        force = action.clamp(-1.0, 1.0)
        velocities = 0.8 * state[:, 2:4] + 2.0 * force
        angles = state[:, :2] + 0.1 * velocities
        distance = (self._tip(angles) - state[:, 4:]).norm(dim=-1)
        reward = -distance - 0.1 * force.square().sum(-1)
        return torch.cat((angles, velocities, state[:, 4:]), -1), reward

    def _tip(self, angles: Tensor) -> Tensor:
        """Return the tip's place [N, 2]."""
        first, both = angles[:, 0], angles.sum(-1)
        return 0.1 * torch.stack((first.cos() + both.cos(), first.sin() + both.sin()), -1)
