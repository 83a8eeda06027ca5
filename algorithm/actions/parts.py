"""Parts of an action. A new kind of part is one class and one line in :func:`make_parts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from algorithm.actions.continuous import ClippedNormal, NoContinuous, Noise, RecordedNormal, SquashedNormal
from algorithm.actions.discrete import (
    Categorical,
    DiscretePolicy,
    GreedyBranches,
    MeanQ,
    NoBranches,
    RecordedCategorical,
)
from algorithm.core.data import Float
from algorithm.core.spec import ActionSpec
from algorithm.nn.distributions import HybridAction


class ContinuousPart(Protocol):
    """Protocol of the continuous part: numbers in [−1, 1]."""

    @staticmethod
    def squash(z: Float) -> Float:
        """Return u of z, equal to ``ActionSpec.squashed``."""

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c] and the log-density [N] with which it was really taken.

        normal: random numbers [N, A_c]; None: the mode is taken, without noise
        """

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [P, A_c] and its log-density [P], of normal noise [P, A_c]."""

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return log π − log μ [...] of stored actions: z [..., A_c], behaviour_logp [..., H]."""


class DiscretePart(Protocol):
    """Protocol of the discrete part: one choice of each branch.

    asks_critics: true if a choice is made by the critics' values
    """

    asks_critics: bool

    def act(
        self,
        policy: HybridAction,
        mask: Tensor,
        mean_q: MeanQ,
        uniform: Tensor | None,
        noise: Noise,
    ) -> tuple[Tensor, Tensor | None]:
        """Return one-hots [N, ΣN] and their joint log-probability [N]; mask [N, ΣN].

        uniform: random numbers [N, ΣN] in [0, 1); None: the best choice is taken, without noise
        """

    def distribution(self, policy: HybridAction, mask: Tensor, mean_q: MeanQ) -> DiscretePolicy:
        """Return π's discrete part at P positions."""

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor
    ) -> Tensor | float:
        """Return log π − log μ [...] of flat actions [..., A], behaviour_logp [..., H]."""


@dataclass(frozen=True)
class ActionParts:
    """Both parts of an agent's action; one that is absent is neutral: empty, ratio 1."""

    discrete: DiscretePart
    continuous: ContinuousPart


def make_parts(action: ActionSpec, *, greedy_branches: bool = False, epsilon: float = 0.0) -> ActionParts:
    """Return the parts of an action space.

    greedy_branches: choose by the critics, with ``epsilon`` random choices
    """
    discrete: DiscretePart = NoBranches()
    if action.branches:
        discrete = GreedyBranches(action, epsilon) if greedy_branches else Categorical(action)
        if action.records == "distribution":
            discrete = RecordedCategorical(action)
    continuous: ContinuousPart = NoContinuous()
    if action.continuous:
        continuous = SquashedNormal() if action.squash == "tanh" else ClippedNormal()
        if action.records == "distribution":
            continuous = RecordedNormal()
    return ActionParts(discrete, continuous)
