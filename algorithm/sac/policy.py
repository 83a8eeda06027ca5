"""How the parts of an action become one value and one policy loss; the only place where they are composed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.sac.branches import BranchHead, GreedyHead, NoBranches
from algorithm.sac.config import SacConfig
from algorithm.sac.continuous import NoContinuous, TanhNormalHead
from algorithm.sac.heads import Choice, ContinuousHead, DiscreteHead
from algorithm.sac.temperature import FixedTemperature, LearnedTemperature, Temperature
from algorithm.spec import ActionSpec


class Composition(nn.Module):
    """Both heads of an agent. One u per state is drawn and shared by all that needs one there.

    Positions P are flattened batches of states; q [..., P, N] are outputs of critics that were given u. The
    discrete outputs are conditioned on the continuous action (Delalleau et al. 2019, arXiv 1912.11077).
    """

    discrete: DiscreteHead
    continuous: ContinuousHead

    def __init__(self, discrete: DiscreteHead, continuous: ContinuousHead) -> None:
        super().__init__()
        self.discrete, self.continuous = discrete, continuous

    def draw(self, policy: HybridAction, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A fresh continuous action u [P, A_c] and its log-density [P]."""
        return self.continuous.draw(policy, generator)

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: Callable[[], Tensor]) -> Choice:
        """The discrete part of the policy; ``mean_q`` is asked only by heads that choose by value."""
        return self.discrete.choose(policy, mask, mean_q)

    def bonus(self, choice: Choice, logp: Tensor) -> Tensor:
        """h(s) [P] = α_d mean_b H(π_b) − α_c log π_c(u), without its first term unless targets are soft."""
        return self.continuous.bonus(logp) + self.discrete.bonus(choice)

    def taken(self, q: Tensor, action: Tensor) -> Tensor:
        """Q(s, a) [..., P] of flat actions [P, A]."""
        return self.discrete.taken(q, action)

    def expected(self, q: Tensor, choice: Choice) -> Tensor:
        """R(q, π) [..., P], the outputs reduced over the discrete part of the policy."""
        return self.discrete.expected(q, choice)

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, z: Tensor, behaviour_logp: Tensor
    ) -> Tensor:
        """Joint log π(a|s)/μ(a|s) [...] of stored actions, the sum over the parts."""
        continuous = self.continuous.log_ratio(policy, z, behaviour_logp)
        return continuous + self.discrete.log_ratio(policy, mask, action, behaviour_logp)

    def losses(self, choice: Choice, logp: Tensor, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Policy and temperature loss by name, each the sum over the parts; empty if nothing is learned.

        logp [P] of the fresh u, with gradient; q [P, N] of it, with gradient to u only; share [P] of each
        position in its window's mean.
        The two share no parameter.
        """
        losses = self.continuous.losses(logp, self.expected(q, choice), share)
        for name, loss in self.discrete.losses(choice, q.detach(), share).items():
            losses[name] = losses[name] + loss if name in losses else loss
        return losses

    def metrics(self, choice: Choice, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Entropies, temperatures and how far actions lie outside: scalars or [..., P], without gradient."""
        return {**self.discrete.metrics(choice), **self.continuous.metrics(u, logp)}


def make_composition(action: ActionSpec, config: SacConfig) -> Composition:
    """The heads that the action space and the configuration ask for, a temperature for each that has one."""

    def temperature() -> Temperature:
        kind = LearnedTemperature if config.use_auto_alpha else FixedTemperature
        return kind(config.init_log_alpha)

    discrete: DiscreteHead = NoBranches()
    if action.branches and config.discrete_dqn_like:
        discrete = GreedyHead(action)
    elif action.branches:
        discrete = BranchHead(
            action, temperature(), config.target_d_alpha, soft_target=config.discrete_soft_target
        )
    continuous: ContinuousHead = NoContinuous()
    if action.continuous:
        continuous = TanhNormalHead(temperature(), -config.target_c_alpha * action.continuous)
    return Composition(discrete, continuous)
