"""The discrete and the continuous part of an action. A new kind is a class and a line in ``make_parts``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.actions.continuous import (
    ClippedNormal,
    NoContinuous,
    Noise,
    RecordedNormal,
    SquashedNormal,
    logits_of,
)
from algorithm.core.data import UNKNOWN_LOGP, Float
from algorithm.core.spec import ActionSpec
from algorithm.nn.protocols import HybridAction
from algorithm.ops import discrete as ops
from algorithm.ops import library


class ContinuousPart(Protocol):
    """Protocol of the continuous part: numbers in [−1, 1]."""

    @staticmethod
    def squash(z: Float) -> Float:
        """Return the action u of z, as ``ActionSpec.squashed`` does."""

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c], and the log-density [N] of the distribution it was drawn from, noise included.

        normal: [N, A_c] standard normal numbers; None: the mode is taken, without noise
        """

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [P, A_c] and its log-density [P]; noise: [P, A_c] standard normal."""

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return log π − log μ [...] of stored actions: z [..., A_c], behaviour_logp [..., H]."""


class DiscretePart(Protocol):
    """Protocol of the discrete part: a choice in each branch.

    asks_critics: choices are made by the critics' values
    """

    asks_critics: bool

    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor | None]:
        """Return one-hots [N, ΣN] and their joint log-probability [N].

        mask:    [N, ΣN] bool, allowed choices
        mean_q:  computes the critics' values, if ``asks_critics``
        uniform: [N, ΣN] random numbers in [0, 1); None: the best choice is taken, without noise
        """

    def distribution(self, policy: HybridAction, mask: Tensor, mean_q: Tensor | None) -> DiscretePolicy:
        """Return π's discrete part at P positions; mean_q: [P, ΣN] critics' values, if ``asks_critics``."""

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor
    ) -> Tensor | float:
        """Return log π − log μ [...] of flat actions [..., A], behaviour_logp [..., H]."""


MeanQ = Callable[[], Tensor]
"""Function that returns the mean over critics [N, ΣN] of values at the continuous action taken."""


@dataclass(frozen=True, kw_only=True)
class DiscretePolicy:
    """Discrete part of π at P positions."""

    probs: Tensor  # [P, ΣN] exactly 0 where a choice is not allowed
    log_probs: Tensor  # [P, ΣN] 0 there
    mask: Tensor  # [P, ΣN] bool


class Categorical:
    """Categorical distribution in each branch.

    The sum of the branches' log-probabilities is recorded as the first column of ``behaviour_logp``.
    """

    asks_critics = False

    def __init__(self, action: ActionSpec) -> None:
        self.branches, self._width = action.branches, action.discrete

    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        """Sample one-hots [N, ΣN] and return them with their joint log-probability [N]."""
        logits = logits_of(policy)
        lib = library.of(logits)
        log_probs, probs = ops.branch_log_probs(logits, lib.some(mask), self.branches)
        if uniform is None:
            onehot = ops.greedy_probs(logits, mask, self.branches)
            return onehot, (onehot * log_probs).sum(-1)
        probs = noise.mix(probs, lambda: ops.uniform_probs(mask, self.branches, probs.dtype))
        onehot = ops.sample_branches(probs, self.branches, uniform)
        taken = lib.where(onehot > 0, probs, 1.0)
        return onehot, lib.log(taken).sum(-1)

    def distribution(self, policy: HybridAction, mask: Tensor, mean_q: Tensor | None) -> DiscretePolicy:
        """Return the distribution over the allowed choices at P positions; mean_q is not used."""
        log_probs, probs = ops.branch_log_probs(logits_of(policy), mask, self.branches)
        return DiscretePolicy(probs=probs, log_probs=log_probs, mask=mask)

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return log π − log μ [...] of flat actions [..., A]."""
        log_probs, _ = ops.branch_log_probs(logits_of(policy), mask, self.branches)
        return (log_probs * action[..., : self._width]).sum(-1) - behaviour_logp[..., 0]


class RecordedCategorical(Categorical):
    """Categorical branches whose whole distribution is recorded: log π [N, ΣN], 0 where not allowed."""

    @override
    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        """Sample one-hots [N, ΣN] and return them with log π [N, ΣN] of all choices."""
        some = library.of(mask).some(mask)
        log_probs, probs = ops.branch_log_probs(logits_of(policy), some, self.branches)
        if uniform is None:
            return ops.greedy_probs(logits_of(policy), mask, self.branches), log_probs
        return ops.sample_branches(probs, self.branches, uniform), log_probs


class GreedyBranches:
    """Choice of the largest mean Q in each branch (``discrete_dqn_like``); ratio 1, entropy 0.

    While exploring, each branch is uniformly random with probability ``epsilon``. Extra noise ν raises that
    to 1 − (1 − ε)(1 − ν). The stored log-probability is 0.
    """

    asks_critics = True

    def __init__(self, action: ActionSpec, epsilon: float = 0.0) -> None:
        self.branches, self._epsilon = action.branches, epsilon

    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        """Return the one-hots [N, ΣN] of the largest Q, or random ones while exploring, and zeros [N]."""
        onehot = ops.greedy_probs(mean_q(), mask, self.branches)
        if uniform is not None:
            any_choice = ops.uniform_probs(mask, self.branches, onehot.dtype)
            probs = noise.mix(library.of(onehot).lerp(onehot, any_choice, self._epsilon), lambda: any_choice)
            onehot = ops.sample_branches(probs, self.branches, uniform)
        return onehot, onehot[:, 0] * 0.0

    def distribution(self, policy: HybridAction, mask: Tensor, mean_q: Tensor | None) -> DiscretePolicy:
        """Return probability 1 for the best choice of each branch."""
        assert mean_q is not None, "asks_critics"
        probs = ops.greedy_probs(mean_q.detach(), mask, self.branches)
        return DiscretePolicy(probs=probs, log_probs=torch.zeros_like(probs), mask=mask)

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> float:
        """Return 0."""
        return 0.0


class NoBranches:
    """Discrete part of an action without branches."""

    asks_critics = False

    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, None]:
        """Return empty one-hots [N, 0], without a log-probability."""
        return library.of(mask).floats(mask), None

    def distribution(self, policy: HybridAction, mask: Tensor, mean_q: Tensor | None) -> DiscretePolicy:
        """Return empty probabilities [P, 0]."""
        empty = mask.new_empty(mask.shape, dtype=torch.get_default_dtype())
        return DiscretePolicy(probs=empty, log_probs=empty, mask=mask)

    def log_ratio(self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class ActionParts:
    """Both parts of an agent's action; an absent part is empty and has the ratio 1."""

    discrete: DiscretePart
    continuous: ContinuousPart

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, z: Tensor, behaviour_logp: Tensor
    ) -> Tensor:
        """Return the joint log π(a|s)/μ(a|s) [...] of stored actions, the sum over both parts.

        It is 0 where μ is not known, ``UNKNOWN_LOGP`` and below.

        mask: [..., ΣN]; action: [..., A] flat; z: [..., A_c]; behaviour_logp: [..., H]
        """
        ratio = self.continuous.log_ratio(policy, z, behaviour_logp)
        ratio = ratio + self.discrete.log_ratio(policy, mask, action, behaviour_logp)
        return torch.where(behaviour_logp[..., 0] <= UNKNOWN_LOGP, 0.0, ratio)


def make_parts(action: ActionSpec, *, greedy_branches: bool = False, epsilon: float = 0.0) -> ActionParts:
    """Return the parts of an action space.

    greedy_branches: choose by the critics, at random with probability ``epsilon``
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
