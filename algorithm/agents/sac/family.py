"""Soft Actor-Critic as a family: its losses by kind of action part, and their sums over the parts.

A head adds temperature, entropy bonus and losses to an action part. The head of an absent part is neutral:
bonus 0, nothing to learn. Positions P are flattened batches of states.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.parts import ActionParts, DiscretePolicy, make_parts
from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.off_policy.agent import off_policy_family
from algorithm.agents.off_policy.variant import SATURATED, Heads, Variant
from algorithm.agents.sac.config import SacConfig, sac_keys
from algorithm.agents.sac.metrics import READOUTS, WATCHED, make_rules
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.spec import ActionSpec
from algorithm.ops import discrete as ops
from algorithm.ops.sac import policy_loss, temperature_loss
from algorithm.ops.shapes import masked_mean

_SMALLEST = 1e-12
"""Smallest temperature that values are divided by."""


class FixedTemperature(nn.Module):
    """A constant α (``use_auto_alpha: false``)."""

    log_alpha: Tensor

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.register_buffer("log_alpha", torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""
        return self.log_alpha.exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return the scalar loss of α: zero, since nothing is learned.

        entropy [P] without gradient, target one number or [P], share [P]
        """
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


Temperature = FixedTemperature | LearnedTemperature
"""α of one action part."""


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


class CategoricalHead(nn.Module):
    """Losses of categorical branches (arXiv 1910.07207).

    target_share: share of the largest possible entropy, the target under a learned temperature
    soft_target:  values include the entropy bonus; otherwise they are those of the rewards alone (arXiv
        2509.09838)
    """

    def __init__(
        self, action: ActionSpec, temperature: Temperature, target_share: float, *, soft_target: bool
    ) -> None:
        super().__init__()
        self.branches = action.branches
        self.temperature = temperature
        self.target_share = target_share
        self._soft_target = soft_target

    def entropy(self, choice: DiscretePolicy) -> Tensor:
        """Return mean_b H(π_b), [P]."""
        return ops.mean_entropy(choice.log_probs, choice.probs, len(self.branches))

    def bonus(self, choice: DiscretePolicy) -> Tensor | float:
        """Return α mean_b H(π_b) with soft targets, else 0."""
        return self.temperature.alpha * self.entropy(choice) if self._soft_target else 0.0

    def losses(self, choice: DiscretePolicy, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return :func:`algorithm.ops.discrete.discrete_policy_loss`; target 0 for one allowed action.

        An entropy below its target raises α only as long as that of softmax(q/α), which the policy climbs to,
        is below it, too. Otherwise α would run away while a policy that was certain follows.
        """
        alpha, n = self.temperature.alpha, len(self.branches)
        loss = ops.discrete_policy_loss(choice.log_probs, choice.probs, q, alpha, n)
        target = self.target_share * ops.largest_entropy(choice.mask, self.branches)
        climbed = ops.branch_log_probs(q / alpha.clamp(min=_SMALLEST), choice.mask, self.branches)
        entropy = self.entropy(choice).detach().maximum(ops.mean_entropy(*climbed, n).minimum(target))
        return {
            "policy": masked_mean(loss, share),
            "alpha": self.temperature.loss(entropy, target, share),
        }

    def metrics(self, choice: DiscretePolicy) -> dict[str, Tensor]:
        """Return entropy, its target and temperature."""
        return {
            "policy/entropy_d": self.entropy(choice).detach(),
            "policy/target_entropy_d": self.target_share * ops.largest_entropy(choice.mask, self.branches),
            "policy/alpha_d": self.temperature.alpha,
        }


class ActionHeads(Heads):
    """Both parts of an agent's action; one that is absent, or greedy, has no head."""

    def __init__(self, action: ActionSpec, config: SacConfig) -> None:
        super().__init__(action, make_parts(action, greedy_branches=config.discrete_dqn_like))
        kind = LearnedTemperature if config.use_auto_alpha else FixedTemperature
        self.discrete: CategoricalHead | None = None
        self.continuous: TanhNormalHead | None = None
        if action.branches and not config.discrete_dqn_like:
            soft, share = config.discrete_soft_target, config.target_d_alpha
            self.discrete = CategoricalHead(action, kind(config.init_log_alpha), share, soft_target=soft)
        if action.continuous:
            target = -config.target_c_alpha * action.continuous
            self.continuous = TanhNormalHead(kind(config.init_log_alpha), target)
        self.learns = self.discrete is not None or self.continuous is not None
        self.learning_rate = config.alpha_learning_rate
        self.words = ["learned α" if config.use_auto_alpha else "fixed α"]
        if config.discrete_dqn_like and action.branches:
            self.words.append(f"greedy branches, ε {config.discrete_dqn_epsilon:g}")
        elif config.discrete_dqn_like:
            self.notices = [f"{RUN_BLOCK}.discrete_dqn_like has no effect: there is no discrete action"]

    @override
    def entropy_bonus(self, choice: DiscretePolicy, logp: Tensor) -> Tensor:
        """Return h(s) [P] = α_d mean_b H(π_b) − α_c log π_c(u); the first term only with soft targets."""
        bonus = self.continuous.bonus(logp) if self.continuous else torch.zeros_like(logp)
        return bonus + self.discrete.bonus(choice) if self.discrete else bonus

    @override
    def losses(self, choice: DiscretePolicy, logp: Tensor, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return policy and temperature loss by name, each the sum over the parts; empty without either."""
        continuous = self.continuous.losses(logp, self.expected(q, choice), share) if self.continuous else {}
        discrete = self.discrete.losses(choice, q.detach(), share) if self.discrete else {}
        if not (continuous and discrete):
            return continuous or discrete
        return {name: continuous[name] + discrete[name] for name in continuous}

    @override
    def metrics(self, choice: DiscretePolicy, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return entropies, temperatures and saturation: scalars or [..., P], without gradient."""
        discrete = self.discrete.metrics(choice) if self.discrete else {}
        return discrete | (self.continuous.metrics(u, logp) if self.continuous else {})


def _heads(action: ActionSpec, config: BehaviourConfig) -> Heads:
    return ActionHeads(action, sac_keys(config))


def _parts(action: ActionSpec, config: BehaviourConfig, exploring: bool) -> ActionParts:
    keys = sac_keys(config)
    epsilon = keys.discrete_dqn_epsilon if exploring else 0.0
    return make_parts(action, greedy_branches=keys.discrete_dqn_like, epsilon=epsilon)


SAC = Variant(keys=sac_keys, make_heads=_heads, make_parts=_parts)

FAMILIES = {
    "SAC": off_policy_family("SAC", SAC, health_rules=make_rules, watched=WATCHED, readouts=READOUTS),
}
