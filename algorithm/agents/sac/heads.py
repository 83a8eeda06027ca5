"""The losses of Soft Actor-Critic by kind of action part, and their sums over the parts.

A head adds temperature, entropy bonus and losses to an action part. The head of an absent part is neutral:
bonus 0, nothing to learn. Positions P are flattened batches of states.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.discrete import DiscretePolicy, MeanQ
from algorithm.actions.parts import make_parts
from algorithm.agents.off_policy.variant import SATURATED, Heads
from algorithm.agents.sac.config import SacConfig
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.spec import ActionSpec
from algorithm.nn.distributions import HybridAction
from algorithm.ops import discrete as ops
from algorithm.ops.sac import policy_loss, temperature_loss
from algorithm.ops.shapes import masked_mean


class Temperature(Protocol):
    """α of one action part."""

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return the scalar loss of α; entropy [P] without gradient, target one number or [P], share [P]."""


class FixedTemperature(nn.Module):
    """A constant α (``use_auto_alpha: false``)."""

    log_alpha: Tensor

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.register_buffer("log_alpha", torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar."""
        return self.log_alpha.exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return zero: nothing is learned."""
        return torch.zeros_like(self.log_alpha)


class LearnedTemperature(nn.Module):
    """α adjusted so that the policy's entropy reaches its target (arXiv 1812.05905, section 5)."""

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return ``log α · mean(H − H̄)``."""
        return temperature_loss(self.log_alpha, entropy, target, share)


class ContinuousHead(Protocol):
    """Losses of the continuous part."""

    def bonus(self, logp: Tensor) -> Tensor:
        """Return this part's term of h(s), [P]: −α log π(u|s)."""

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return scalar losses ``policy`` and ``alpha``; logp, value, share [P]."""

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return values to log, scalars or [..., P], without gradient."""


class DiscreteHead(Protocol):
    """Losses of the discrete part, and the values that follow from a critic's outputs q [..., N]."""

    def q_of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [..., P] of flat actions [P, A]."""

    def expected(self, q: Tensor, choice: DiscretePolicy) -> Tensor:
        """Return R(q, π) [..., P]: a state's value under the discrete part of π, without gradient to π."""

    def bonus(self, choice: DiscretePolicy) -> Tensor | float:
        """Return this part's term of h(s), [P]: α mean_b H(π_b) with soft targets, else 0."""

    def losses(self, choice: DiscretePolicy, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return scalar losses ``policy`` and ``alpha``; q [P, N] without gradient, share [P]."""

    def metrics(self, choice: DiscretePolicy) -> dict[str, Tensor]:
        """Return values to log, scalars or [..., P], without gradient."""


class TanhNormalHead(nn.Module):
    """Losses of a squashed Gaussian.

    target_entropy: target of the entropy under a learned temperature
    """

    def __init__(self, temperature: Temperature, target_entropy: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.target_entropy = target_entropy

    def bonus(self, logp: Tensor) -> Tensor:
        """Return −α log π(u|s)."""
        return -self.temperature.alpha * logp

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return :func:`algorithm.ops.sac.policy_loss` and :func:`~algorithm.ops.sac.temperature_loss`."""
        return {
            "policy": policy_loss(logp, value, self.temperature.alpha, share),
            "alpha": self.temperature.loss(-logp.detach(), self.target_entropy, share),
        }

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return entropy, its target, temperature, and a mask of saturated components of u [A_c, P]."""
        return {
            "policy/entropy_c": -logp.detach(),
            "policy/target_entropy_c": torch.tensor(self.target_entropy),
            "policy/alpha_c": self.temperature.alpha,
            "policy/saturation": u.detach().t().abs() > SATURATED,
        }


class NoContinuousHead(nn.Module):
    """Losses of an absent continuous part."""

    def bonus(self, logp: Tensor) -> Tensor:
        """Return zeros: the log-density of an empty u."""
        return logp

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return nothing."""
        return {}

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return nothing."""
        return {}


class _Branches(nn.Module):
    """Reductions of a critic's outputs over branches."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.branches = action.branches
        self._width, self._num = action.discrete, len(action.branches)

    def q_of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return the mean over branches of the chosen outputs."""
        return ops.reduce_branches(q, action[..., : self._width], self._num)

    def expected(self, q: Tensor, choice: DiscretePolicy) -> Tensor:
        """Return the mean over branches of the expected outputs."""
        return ops.reduce_branches(q, choice.probs.detach(), self._num)


class CategoricalHead(_Branches):
    """Losses of categorical branches (arXiv 1910.07207).

    target_share: share of the largest possible entropy, the target under a learned temperature
    soft_target:  values include the entropy bonus; otherwise they are those of the rewards alone (arXiv
        2509.09838)
    """

    def __init__(
        self, action: ActionSpec, temperature: Temperature, target_share: float, *, soft_target: bool
    ) -> None:
        super().__init__(action)
        self.temperature = temperature
        self.target_share = target_share
        self._soft_target = soft_target

    def entropy(self, choice: DiscretePolicy) -> Tensor:
        """Return mean_b H(π_b), [P]."""
        return ops.mean_entropy(choice.log_probs, choice.probs, self._num)

    def bonus(self, choice: DiscretePolicy) -> Tensor | float:
        """Return α mean_b H(π_b) with soft targets, else 0."""
        return self.temperature.alpha * self.entropy(choice) if self._soft_target else 0.0

    def losses(self, choice: DiscretePolicy, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return :func:`algorithm.ops.discrete.discrete_policy_loss`; target 0 for one allowed action."""
        alpha = self.temperature.alpha
        loss = ops.discrete_policy_loss(choice.log_probs, choice.probs, q, alpha, self._num)
        target = self.target_share * ops.largest_entropy(choice.mask, self.branches)
        return {
            "policy": masked_mean(loss, share),
            "alpha": self.temperature.loss(self.entropy(choice).detach(), target, share),
        }

    def metrics(self, choice: DiscretePolicy) -> dict[str, Tensor]:
        """Return entropy, its target and temperature."""
        return {
            "policy/entropy_d": self.entropy(choice).detach(),
            "policy/target_entropy_d": self.target_share * ops.largest_entropy(choice.mask, self.branches),
            "policy/alpha_d": self.temperature.alpha,
        }


class GreedyHead(_Branches):
    """Head of ``discrete_dqn_like``: no entropy, nothing to learn."""

    def bonus(self, choice: DiscretePolicy) -> float:
        """Return 0."""
        return 0.0

    def losses(self, choice: DiscretePolicy, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return nothing."""
        return {}

    def metrics(self, choice: DiscretePolicy) -> dict[str, Tensor]:
        """Return nothing."""
        return {}


class NoBranchesHead(GreedyHead):
    """Head of an absent discrete part: the critic's only output is Q."""

    @override
    def q_of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return the only output."""
        return q.squeeze(-1)

    @override
    def expected(self, q: Tensor, choice: DiscretePolicy) -> Tensor:
        """Return the only output."""
        return q.squeeze(-1)


class ActionHeads(Heads):
    """Both parts of an agent's action with their heads.

    One u per state is drawn and shared by all terms. Outputs q [..., P, N] come from critics that were given
    u: discrete outputs are conditioned on the continuous action (arXiv 1912.11077).
    """

    def __init__(
        self, action: ActionSpec, config: SacConfig, discrete: DiscreteHead, continuous: ContinuousHead
    ) -> None:
        super().__init__()
        self.parts = make_parts(action, greedy_branches=config.discrete_dqn_like)
        self.discrete, self.continuous = discrete, continuous
        self.learns = isinstance(discrete, CategoricalHead) or isinstance(continuous, TanhNormalHead)
        self.learning_rate = config.alpha_learning_rate
        self.words = ["learned α" if config.use_auto_alpha else "fixed α"]
        if config.discrete_dqn_like and action.branches:
            self.words.append(f"greedy branches, ε {config.discrete_dqn_epsilon:g}")
        elif config.discrete_dqn_like:
            self.notices = [f"{RUN_BLOCK}.discrete_dqn_like has no effect: there is no discrete action"]

    @override
    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.parts.continuous.sample(policy, noise)

    @override
    def choose(self, policy: HybridAction, mask: Tensor, mean_q: MeanQ) -> DiscretePolicy:
        return self.parts.discrete.distribution(policy, mask, mean_q)

    @override
    def entropy_bonus(self, choice: DiscretePolicy, logp: Tensor) -> Tensor:
        """Return h(s) [P] = α_d mean_b H(π_b) − α_c log π_c(u); the first term only with soft targets."""
        return self.continuous.bonus(logp) + self.discrete.bonus(choice)

    @override
    def q_of_action(self, q: Tensor, action: Tensor) -> Tensor:
        return self.discrete.q_of_action(q, action)

    @override
    def expected(self, q: Tensor, choice: DiscretePolicy) -> Tensor:
        return self.discrete.expected(q, choice)

    @override
    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, z: Tensor, behaviour_logp: Tensor
    ) -> Tensor:
        """Return the joint log π(a|s)/μ(a|s) [...] of stored actions, the sum over the parts."""
        continuous = self.parts.continuous.log_ratio(policy, z, behaviour_logp)
        return continuous + self.parts.discrete.log_ratio(policy, mask, action, behaviour_logp)

    @override
    def losses(self, choice: DiscretePolicy, logp: Tensor, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return policy and temperature loss by name, each the sum over the parts; empty without either."""
        losses = self.continuous.losses(logp, self.expected(q, choice), share)
        for name, loss in self.discrete.losses(choice, q.detach(), share).items():
            losses[name] = losses[name] + loss if name in losses else loss
        return losses

    @override
    def metrics(self, choice: DiscretePolicy, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return entropies, temperatures and saturation: scalars or [..., P], without gradient."""
        return {**self.discrete.metrics(choice), **self.continuous.metrics(u, logp)}


def make_heads(action: ActionSpec, config: SacConfig) -> ActionHeads:
    """Return the heads of an action space, a temperature for each that has one."""

    def temperature() -> Temperature:
        kind = LearnedTemperature if config.use_auto_alpha else FixedTemperature
        return kind(config.init_log_alpha)

    discrete: DiscreteHead = NoBranchesHead(action)
    if action.branches and config.discrete_dqn_like:
        discrete = GreedyHead(action)
    elif action.branches:
        discrete = CategoricalHead(
            action, temperature(), config.target_d_alpha, soft_target=config.discrete_soft_target
        )
    continuous: ContinuousHead = NoContinuousHead()
    if action.continuous:
        continuous = TanhNormalHead(temperature(), -config.target_c_alpha * action.continuous)
    return ActionHeads(action, config, discrete, continuous)
