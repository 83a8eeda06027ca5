"""The objective of TD3, twin delayed deep deterministic policy gradient (arXiv 1802.09477).

Its policy is deterministic, with noise, and maximises the first critic.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.actions.continuous import Noise, continuous_part
from algorithm.actions.parts import ActionParts, DiscretePolicy, NoBranches
from algorithm.agents.off_policy.objective import SATURATED, Objective
from algorithm.agents.td3.config import Td3Config
from algorithm.core.data import Float
from algorithm.core.errors import UsageError
from algorithm.core.spec import Z_LIMIT, ActionSpec
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.ops import library
from algorithm.ops.densities import normal_logp

_LARGEST = math.tanh(Z_LIMIT)


class Deterministic:
    """Continuous part u = tanh(m), m the mean of the policy's output; its standard deviation is not used.

    std: standard deviation of the noise ε in u = clip(tanh(m) + ε, −1, 1) (arXiv 1802.09477, algorithm 1)
    exploring: add the noise
    """

    def __init__(self, std: float, *, exploring: bool = True) -> None:
        self._log_std, self._exploring = math.log(std), exploring

    @staticmethod
    def squash(z: Float) -> Float:
        """Return u = tanh(z)."""
        return np.tanh(z)

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c] within ±Z_LIMIT, and the log-density [N] of u = tanh(z), as if not clipped.

        normal: [N, A_c] standard normal numbers; None for the mode. noise: ``action_noise``, which widens ε
        """
        mean = continuous_part(policy).mean
        lib = library.of(mean)
        part = noise.widen(TanhNormal(lib.tanh(mean), 0 * mean + self._log_std))
        if normal is None or not self._exploring:
            z, u = lib.clip(mean, -Z_LIMIT, Z_LIMIT), part.mean
        else:
            u = lib.clip(part.mean + lib.exp(part.log_std) * normal, -_LARGEST, _LARGEST)
            z = 0.5 * (lib.log1p(u) - lib.log1p(-u))  # artanh
        return z, normal_logp(u, part.mean, part.log_std)

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return u = tanh(m) [P, A_c] without noise, and zeros [P] in place of a log-density."""
        u = continuous_part(policy).mean.tanh()
        return u, u.new_zeros(u.shape[:-1])

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Raise NotImplementedError: no target of TD3 is corrected."""
        raise NotImplementedError("a deterministic policy has no density")


class Td3Objective(Objective):
    """A deterministic policy, without an entropy bonus. Raises UsageError for discrete actions."""

    slow_policy = True

    def __init__(self, action: ActionSpec, config: Td3Config) -> None:
        super().__init__(ActionParts(NoBranches(), Deterministic(config.exploration_noise)))
        if action.branches:
            raise UsageError(
                "TD3 supports continuous actions only",
                where="algorithm",
                why="the environment has discrete actions, whose values have no gradient",
                fix="set algorithm: SAC, PPO or A2C",
            )
        self.policy_critics = [0]
        self._std, self._clip = config.target_noise, config.target_noise_clip
        self.words = [f"noise {config.exploration_noise:g}, of targets {config.target_noise:g}"]

    @override
    def next_action(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return clip(u + clip(σ ε, ±c), ±1) [P, A_c] (arXiv 1802.09477, eq. 14), ε the ``noise``; zeros."""
        u, logp = self.parts.continuous.sample(policy, noise)
        return (u + (self._std * noise).clamp(-self._clip, self._clip)).clamp(-1.0, 1.0), logp

    @override
    def entropy_bonus(self, logp: Tensor, choice: DiscretePolicy | None) -> Tensor:
        """Return zeros [P]: there is no bonus."""
        return torch.zeros_like(logp)

    @override
    def losses(
        self, logp: Tensor, choice: DiscretePolicy | None, q: Tensor, value: Tensor, share: Tensor
    ) -> dict[str, Tensor]:
        """Return ``mean −Q_1(s, u)`` as ``policy`` (arXiv 1802.09477, algorithm 1)."""
        return {"policy": (-value * share).sum()}

    @override
    def metrics(self, u: Tensor, logp: Tensor, choice: DiscretePolicy | None) -> dict[str, Tensor]:
        """Return the mask of saturated components of u [A_c, P]."""
        return {"policy/saturation": u.detach().t().abs() > SATURATED}
