"""The two kinds of action of ACER: values, importance weights, and gradients by the policy's parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.continuous import continuous_part, logits_of
from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.core.spec import ActionSpec
from algorithm.nn.protocols import HybridAction, Obs
from algorithm.ops import on_policy as ops
from algorithm.ops.densities import normal_entropy, normal_logp
from algorithm.ops.discrete import branch_log_probs, branch_values, reduce_branches

DRAWS = 5
"""Number of actions by which the mean advantage of a state is estimated (arXiv 1611.01224, section 3.2)."""


@dataclass(frozen=True, kw_only=True)
class Positions:
    """B windows of T transitions, with their T+1 states."""

    state: Tensor  # [B, T+1, S], with gradient except for the last
    obs: Obs  # name -> [B, T+1, ...]
    mask: Tensor  # [B, T+1, ΣN]
    action: Tensor  # [B, T, A]
    z: Tensor  # [B, T, A_c]
    recorded: Tensor  # [B, T, H] the whole distribution μ of the policy that acted
    reward: Tensor  # [B, T] scaled, with bonuses
    terminated: Tensor  # [B, T] bool
    valid: Tensor  # [B, T] bool
    policy: HybridAction  # [B, T+1]
    average: HybridAction  # [B, T], of the average network


@dataclass(frozen=True, kw_only=True)
class AcerTerms:
    """Terms of ACER's losses for B windows of T transitions. D: parameters of a distribution."""

    q: Tensor  # [B, T] Q(s, a), with gradient
    target: Tensor  # [B, T] Q_ret, of Retrace
    own_value: Tensor | None  # [B, T] V(s), with gradient, of a value network; None without one
    ratio: Tensor  # [B, T] π/μ of the action
    parameters: Tensor  # [B, T, D] φ, with gradient
    ascent: Tensor  # [B, T, D] gradient of the objective by φ
    divergence: Tensor  # [B, T, D] ∂KL(average ‖ π)/∂φ
    entropy: Tensor  # [B, T]


class AcerHeads(ABC):
    """Kind of action, which computes the terms of the losses; keys: the family's; gamma: discount factor."""

    def __init__(self, action: ActionSpec, keys: AcerConfig, gamma: float) -> None:
        self._action, self._keys, self._gamma = action, keys, gamma

    @abstractmethod
    def terms(self, at: Positions, generator: torch.Generator) -> AcerTerms:
        """Return the terms of the losses at these positions; generator: of sampled actions."""

    def _returns(self, at: Positions, value: Tensor, q: Tensor, trace: Tensor) -> Tensor:
        """Return the returns [B, T] of Retrace; value: [B, T+1], q, trace: [B, T]."""
        return ops.retrace(at.reward, at.terminated, at.valid, value, q, trace, gamma=self._gamma)


class ChoiceHeads(AcerHeads):
    """Categorical branches, whose critic has a value for each choice.

    For several branches Q(s, a) = mean_b q_b(a_b), and the importance weight is that of the joint action. The
    correction for truncated weights is computed for each branch, as if the others were not truncated.

    q: the critic
    """

    def __init__(self, action: ActionSpec, keys: AcerConfig, gamma: float, q: nn.Module) -> None:
        super().__init__(action, keys, gamma)
        self._q = q

    @override
    def terms(self, at: Positions, generator: torch.Generator) -> AcerTerms:
        branches, number, limit = self._action.branches, len(self._action.branches), self._keys.ratio_max
        shape = at.mask.shape
        log_probs, probs = branch_log_probs(logits_of(at.policy), at.mask, branches)
        nothing = at.state.new_empty(shape[0] * shape[1], 0)
        q_all = self._q(at.state.flatten(0, 1), nothing).view(shape)
        constant, here = probs.detach(), slice(0, shape[1] - 1)
        value = reduce_branches(q_all.detach(), constant, number)
        probs_here, log_ratio = constant[:, here], log_probs[:, here].detach() - at.recorded
        ratio, of_joint = log_ratio.exp(), (log_ratio * at.action).sum(-1).exp()
        advantages = q_all[:, here].detach()
        advantages = (advantages - branch_values(advantages, probs_here, branches)) / number
        _, average = branch_log_probs(logits_of(at.average), at.mask[:, here], branches)
        q = reduce_branches(q_all[:, here], at.action, number)
        target = self._returns(at, value, q.detach(), of_joint.clamp(max=1.0))
        gain = of_joint.clamp(max=limit) * (target - value[:, here])
        ascent = ops.choice_gradient(probs_here, ratio, at.action, gain, advantages, ratio_max=limit)
        return AcerTerms(
            q=q,
            target=target,
            own_value=None,
            ratio=of_joint,
            parameters=probs[:, here],
            ascent=ascent - self._keys.entropy_coef * (log_probs[:, here].detach() + 1.0),
            divergence=ops.choice_divergence(average, probs_here),
            entropy=-(constant * log_probs.detach()).sum(-1)[:, here],
        )


class NormalHeads(AcerHeads):
    """Gaussian actions with a stochastic dueling critic (arXiv 1611.01224, section 3.2).

    ``Q(s, a) = V(s) + A(s, a) − mean_i A(s, u_i)``, u_i drawn from π. φ are mean and log σ. The policy learns
    from returns with traces of 1.

    advantage, value: the networks of A and V
    """

    def __init__(
        self, action: ActionSpec, keys: AcerConfig, gamma: float, advantage: nn.Module, value: nn.Module
    ) -> None:
        super().__init__(action, keys, gamma)
        self._advantage, self._value = advantage, value

    @override
    def terms(self, at: Positions, generator: torch.Generator) -> AcerTerms:
        size, limit = self._action.continuous, self._keys.ratio_max
        shape, here = at.state.shape[:2], slice(0, at.state.shape[1] - 1)
        flat = {name: x.flatten(0, 1) for name, x in at.obs.items()}
        value = self._value(at.state.flatten(0, 1), flat).view(shape)
        constant, own_value = value.detach(), value[:, here]
        part, average = continuous_part(at.policy), continuous_part(at.average)
        mean, log_std = part.mean[:, here], part.log_std[:, here]
        m, s = mean.detach(), log_std.detach()
        drawn = m + s.exp() * torch.randn((DRAWS + 1, *m.shape), generator=generator).to(m.device)
        other = drawn[DRAWS]  # the action of the bias correction
        state = at.state[:, here]
        advantage = self._advantages(state, torch.cat([drawn[:DRAWS], at.z.unsqueeze(0)]))
        centred = advantage[DRAWS] - advantage[:DRAWS].mean(0)
        acted = at.recorded.split(size, -1)
        log_ratio = normal_logp(at.z, m, s) - normal_logp(at.z, *acted)
        ratio = log_ratio.exp()
        q = own_value + centred
        with torch.no_grad():
            target = self._returns(at, constant, q, (log_ratio / size).exp().clamp(max=1.0))
            whole = self._returns(at, constant, q, torch.ones_like(ratio))
            gain = ratio.clamp(max=limit) * (whole - constant[:, here])
            advantage_other = self._advantages(state, drawn[DRAWS:])[0] - advantage[:DRAWS].mean(0)
            ratio_other = (normal_logp(other, m, s) - normal_logp(other, *acted)).exp()
            gain_other = (1.0 - limit / ratio_other).clamp(min=0.0) * advantage_other
            ascent = gain.unsqueeze(-1) * ops.normal_gradient(m, s, at.z)
            ascent = ascent + gain_other.unsqueeze(-1) * ops.normal_gradient(m, s, other)
            ascent[..., size:] += self._keys.entropy_coef
        return AcerTerms(
            q=q,
            target=target,
            own_value=own_value,
            ratio=ratio,
            parameters=torch.cat([mean, log_std], -1),
            ascent=ascent,
            divergence=ops.normal_divergence((average.mean, average.log_std), m, s),
            entropy=normal_entropy(s),
        )

    def _advantages(self, state: Tensor, z: Tensor) -> Tensor:
        """Return A [n, B, T] of n actions z [n, B, T, A_c], clipped to ±1, in each state [B, T, S]."""
        shape = z.shape[:-1]
        states = state.expand(*shape, state.shape[-1]).flatten(0, 2)
        advantage: Tensor = self._advantage(states, z.clamp(-1.0, 1.0).flatten(0, 2)).view(shape)
        return advantage
