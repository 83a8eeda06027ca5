"""The losses of TD3: actions of targets with clipped noise, and a policy that climbs the first critic."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from algorithm.actions.discrete import DiscretePolicy, NoBranches
from algorithm.actions.parts import ActionParts
from algorithm.agents.off_policy.variant import SATURATED, Heads
from algorithm.agents.td3.acting import Deterministic
from algorithm.agents.td3.config import Td3Config
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec
from algorithm.nn.distributions import HybridAction
from algorithm.ops.shapes import masked_mean


class DeterministicHeads(Heads):
    """A deterministic policy, without an entropy bonus. Raises UsageError for discrete actions."""

    slow_policy = True

    def __init__(self, action: ActionSpec, own: Td3Config) -> None:
        super().__init__(action, ActionParts(NoBranches(), Deterministic(own.exploration_noise)))
        if action.branches:
            raise UsageError(
                "TD3 is for continuous actions alone",
                where="algorithm",
                why="the environment has discrete actions, whose values have no gradient",
                fix="set algorithm: SAC, PPO or A2C",
            )
        self.climbed = [0]
        self._std, self._clip = own.target_noise, own.target_noise_clip
        self.words = [f"noise {own.exploration_noise:g}, of targets {own.target_noise:g}"]

    @override
    def ahead(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return clip(u + clip(σ ε, ±c), ±1) [P, A_c] (arXiv 1802.09477, eq. 14), ε the ``noise``; zeros."""
        u, logp = self.sample(policy, noise)
        return (u + (self._std * noise).clamp(-self._clip, self._clip)).clamp(-1.0, 1.0), logp

    @override
    def losses(self, choice: DiscretePolicy, logp: Tensor, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return ``mean −Q_1(s, u)`` as ``policy`` (arXiv 1802.09477, algorithm 1)."""
        return {"policy": masked_mean(-q.squeeze(-1), share)}

    @override
    def metrics(self, choice: DiscretePolicy, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return the mask of saturated components of u [A_c, P]."""
        return {"policy/saturation": u.detach().t().abs() > SATURATED}
