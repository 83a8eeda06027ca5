"""The discrete part of an action: categorical branches, greedy ones, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.ops import discrete as ops
from algorithm.ops.shapes import masked_mean
from algorithm.sac.heads import Choice, logits_of
from algorithm.sac.temperature import Temperature
from algorithm.spec import ActionSpec


class _Branches(nn.Module):
    """What both kinds of branches share: the reductions of a critic's outputs."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.branches = action.branches
        self._width, self._num = action.discrete, len(action.branches)

    def taken(self, q: Tensor, action: Tensor) -> Tensor:
        """See :class:`DiscreteHead`."""
        return ops.reduce_branches(q, action[..., : self._width], self._num)

    def expected(self, q: Tensor, choice: Choice) -> Tensor:
        """See :class:`DiscreteHead`."""
        return ops.reduce_branches(q, choice.probs.detach(), self._num)


class BranchHead(_Branches):
    """A categorical distribution per branch (arXiv 1910.07207); log-probabilities are summed over branches.

    target_share: what a learned temperature steers the entropy to, as a share of the largest possible one
    soft_target:  whether values hold the entropy bonus; without it they are those of the rewards alone
        (arXiv 2509.09838)
    """

    needs_q = False

    def __init__(
        self, action: ActionSpec, temperature: Temperature, target_share: float, *, soft_target: bool
    ) -> None:
        super().__init__(action)
        self.temperature = temperature
        self.target_share = target_share
        self._soft_target = soft_target

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: Callable[[], Tensor]) -> Choice:
        """See :class:`DiscreteHead`."""
        log_probs, probs = ops.branch_log_probs(logits_of(policy), mask, self.branches)
        return Choice(probs=probs, log_probs=log_probs, mask=mask)

    def entropy(self, choice: Choice) -> Tensor:
        """mean_b H(π_b), [P]."""
        return ops.mean_entropy(choice.log_probs, choice.probs, self._num)

    def bonus(self, choice: Choice) -> Tensor | float:
        """See :class:`DiscreteHead`."""
        return self.temperature.alpha * self.entropy(choice) if self._soft_target else 0.0

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> Tensor:
        """The joint log-probability over branches, minus the first column of ``behaviour_logp``."""
        log_probs, _ = ops.branch_log_probs(logits_of(policy), mask, self.branches)
        return (log_probs * action[..., : self._width]).sum(-1) - behaviour_logp[..., 0]

    def losses(self, choice: Choice, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """See :func:`algorithm.ops.discrete.discrete_policy_loss`; where one action is left, target 0."""
        alpha = self.temperature.alpha
        loss = ops.discrete_policy_loss(choice.log_probs, choice.probs, q, alpha, self._num)
        target = self.target_share * ops.largest_entropy(choice.mask, self.branches)
        return {
            "policy": masked_mean(loss, share),
            "alpha": self.temperature.loss(self.entropy(choice).detach(), target, share),
        }

    def metrics(self, choice: Choice) -> dict[str, Tensor]:
        """Entropy, what it is steered to, and temperature."""
        return {
            "policy/entropy_d": self.entropy(choice).detach(),
            "policy/target_entropy_d": self.target_share * ops.largest_entropy(choice.mask, self.branches),
            "policy/alpha_d": self.temperature.alpha,
        }


class GreedyHead(_Branches):
    """``discrete_dqn_like``: the choice of the largest mean Q; ratio 1, entropy 0, nothing to learn."""

    needs_q = True

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: Callable[[], Tensor]) -> Choice:
        """See :class:`DiscreteHead`."""
        probs = ops.greedy_probs(mean_q().detach(), mask, self.branches)
        return Choice(probs=probs, log_probs=torch.zeros_like(probs), mask=mask)

    def bonus(self, choice: Choice) -> float:
        """Zero."""
        return 0.0

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> float:
        """Ratio 1."""
        return 0.0

    def losses(self, choice: Choice, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Nothing to learn."""
        return {}

    def metrics(self, choice: Choice) -> dict[str, Tensor]:
        """Nothing to say."""
        return {}


class NoBranches(nn.Module):
    """For agents without discrete actions: the critic's only output is Q."""

    needs_q = False

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: Callable[[], Tensor]) -> Choice:
        """An empty choice."""
        empty = mask.new_empty(mask.shape, dtype=torch.get_default_dtype())
        return Choice(probs=empty, log_probs=empty, mask=mask)

    def taken(self, q: Tensor, action: Tensor) -> Tensor:
        """See :class:`DiscreteHead`."""
        return q.squeeze(-1)

    def expected(self, q: Tensor, choice: Choice) -> Tensor:
        """See :class:`DiscreteHead`."""
        return q.squeeze(-1)

    def bonus(self, choice: Choice) -> float:
        """Zero."""
        return 0.0

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> float:
        """Ratio 1."""
        return 0.0

    def losses(self, choice: Choice, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Nothing to learn."""
        return {}

    def metrics(self, choice: Choice) -> dict[str, Tensor]:
        """Nothing to say."""
        return {}
