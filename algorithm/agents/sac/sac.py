"""The objective of Soft Actor-Critic in an off-policy update (arXiv 1801.01290, 1812.05905, 1910.07207).

An action has a continuous part with the temperature α_c, a discrete one with α_d, or both; a part that is
absent adds no terms. Positions P are flattened batches of states.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.parts import DiscretePolicy, make_parts
from algorithm.agents.off_policy.objective import SATURATED, Objective
from algorithm.agents.sac.config import SacConfig
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.spec import ActionSpec
from algorithm.nn.protocols import HybridAction
from algorithm.ops import discrete as ops
from algorithm.ops.sac import policy_loss, temperature_loss
from algorithm.ops.shapes import total

_SMALLEST = 1e-12
"""Lower bound of a temperature by which values are divided."""


class Temperature(nn.Module):
    """α, constant or adjusted so that the entropy reaches its target (arXiv 1812.05905, section 5)."""

    log_alpha: Tensor

    def __init__(self, init_log_alpha: float, *, learned: bool) -> None:
        super().__init__()
        self._learned, log_alpha = learned, torch.tensor(init_log_alpha)
        if learned:
            self.log_alpha = nn.Parameter(log_alpha)
        else:
            self.register_buffer("log_alpha", log_alpha)

    @property
    def alpha(self) -> Tensor:
        """The temperature α = exp(log α), a scalar without gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return ``log α · mean(H − H̄)``; 0 if α is constant.

        entropy, share: [P]; target: a number or [P]; see :func:`algorithm.ops.sac.temperature_loss`
        """
        if not self._learned:
            return torch.zeros_like(self.log_alpha)
        return temperature_loss(self.log_alpha, entropy, target, share)


class SacObjective(Objective):
    """Entropy bonus, policy loss and temperature loss of Soft Actor-Critic.

    Greedy branches (``discrete_dqn_like``) have no entropy and nothing to learn.
    """

    def __init__(self, action: ActionSpec, config: SacConfig) -> None:
        super().__init__(make_parts(action, greedy_branches=config.discrete_dqn_like))
        self._branches, self._config = action.branches, config
        self._target_c = -config.target_c_alpha * action.continuous
        self.discrete: Temperature | None = None
        self.continuous: Temperature | None = None
        if action.branches and not config.discrete_dqn_like:
            self.discrete = Temperature(config.init_log_alpha, learned=config.use_auto_alpha)
        if action.continuous:
            self.continuous = Temperature(config.init_log_alpha, learned=config.use_auto_alpha)
        self.learns = self.discrete is not None or self.continuous is not None
        self.learning_rate = config.alpha_learning_rate
        self.words = ["learned α" if config.use_auto_alpha else "fixed α"]
        if config.discrete_dqn_like and action.branches:
            self.words.append(f"greedy branches, ε {config.discrete_dqn_epsilon:g}")
        elif config.discrete_dqn_like:
            self.notices = [f"{COMMON_BLOCK}.discrete_dqn_like has no effect: there is no discrete action"]

    @override
    def next_action(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a sample u' [P, A_c] of the policy, and log π(u') [P]."""
        return self.parts.continuous.sample(policy, noise)

    @override
    def entropy_bonus(self, logp: Tensor, choice: DiscretePolicy | None) -> Tensor:
        """Return h(s) [P] = α_d mean_b H(π_b) − α_c log π_c(u); the first term only with soft targets."""
        bonus = -self.continuous.alpha * logp if self.continuous else torch.zeros_like(logp)
        if self.discrete and self._config.discrete_soft_target:
            assert choice is not None
            bonus = bonus + self.discrete.alpha * self._entropy(choice)
        return bonus

    @override
    def losses(
        self, logp: Tensor, choice: DiscretePolicy | None, q: Tensor, value: Tensor, share: Tensor
    ) -> dict[str, Tensor]:
        """Return the losses ``policy`` (eq. 9) and ``alpha`` (eq. 18), each the sum over action parts."""
        policy, temperature = [], []
        if self.continuous:
            policy.append(policy_loss(logp, value, self.continuous.alpha, share))
            temperature.append(self.continuous.loss(-logp.detach(), self._target_c, share))
        if self.discrete:
            assert choice is not None
            policy.append((self._discrete_loss(choice, q.detach()) * share).sum())
            temperature.append(self._discrete_temperature_loss(choice, q.detach(), share))
        return {"policy": total(policy), "alpha": total(temperature)} if policy else {}

    def _discrete_loss(self, choice: DiscretePolicy, q: Tensor) -> Tensor:
        """Return the loss [P] of the discrete part, eq. 12 of arXiv 1910.07207, a mean over branches."""
        assert self.discrete is not None
        alpha, branches = self.discrete.alpha, len(self._branches)
        return ops.discrete_policy_loss(choice.log_probs, choice.probs, q, alpha, branches)

    def _discrete_temperature_loss(self, choice: DiscretePolicy, q: Tensor, share: Tensor) -> Tensor:
        """Return the loss of α_d, whose target is a share of the largest entropy: 0 for one allowed action.

        An entropy below its target raises α only while the entropy of softmax(q/α), towards which the policy
        learns, is below the target, too. Otherwise α would run away while a deterministic policy catches up.
        """
        assert self.discrete is not None
        softened = q / self.discrete.alpha.clamp(min=_SMALLEST)
        boltzmann = ops.branch_log_probs(softened, choice.mask, self._branches)
        reachable, target = ops.mean_entropy(*boltzmann, len(self._branches)), self._target_d(choice)
        entropy = self._entropy(choice).detach().maximum(reachable.minimum(target))
        return self.discrete.loss(entropy, target, share)

    def _entropy(self, choice: DiscretePolicy) -> Tensor:
        """Return the entropy of the discrete part, mean_b H(π_b), [P]."""
        return ops.mean_entropy(choice.log_probs, choice.probs, len(self._branches))

    def _target_d(self, choice: DiscretePolicy) -> Tensor:
        """Return the target entropy of the discrete part, a share of mean_b log n_b, [P]."""
        return self._config.target_d_alpha * ops.largest_entropy(choice.mask, self._branches)

    @override
    def metrics(self, u: Tensor, logp: Tensor, choice: DiscretePolicy | None) -> dict[str, Tensor]:
        """Return entropies, their targets, temperatures, and a mask of saturated components of u [A_c, P]."""
        shown = {}
        if self.discrete:
            assert choice is not None
            shown = {
                "policy/entropy_d": self._entropy(choice).detach(),
                "policy/target_entropy_d": self._target_d(choice),
                "policy/alpha_d": self.discrete.alpha,
            }
        if self.continuous:
            shown |= {
                "policy/entropy_c": -logp.detach(),
                "policy/target_entropy_c": torch.tensor(self._target_c),
                "policy/alpha_c": self.continuous.alpha,
                "policy/saturation": u.detach().t().abs() > SATURATED,
            }
        return shown
