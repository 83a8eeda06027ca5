"""Meaning of a critic's outputs, and the plain one: a number. Chosen at construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor
from typing_extensions import override

from algorithm.agents.off_policy.records import CriticTarget
from algorithm.core.spec import ActionSpec
from algorithm.ops.discrete import reduce_branches
from algorithm.ops.sac import clip_binds, clipped_critic_loss, critic_loss
from algorithm.ops.shapes import masked_mean

Reduce = Callable[[Tensor], Tensor]
"""Values of several critics [M, ...] -> one value [...]."""


class Values(ABC):
    """Meaning of a critic's outputs.

    A critic's input is the continuous action; it has N values q [..., P, N], one for each discrete choice
    (arXiv 1912.11077). The value of an action is the mean over branches of the chosen ones.

    action:     action space of the agent
    per_value:  D, outputs for each of a critic's N values
    has_spread: targets are distributions
    clips:      the loss needs the target critics' values of the stored actions
    """

    per_value = 1
    has_spread = False
    clips = False

    def __init__(self, action: ActionSpec) -> None:
        self._width, self._branches = action.discrete, len(action.branches)

    def expected(self, q: Tensor, probs: Tensor | None) -> Tensor:
        """Return the expectation [..., P] of values q [..., P, N] under the discrete part of a policy.

        probs: [P, ΣN] of its choices; None without discrete part
        """
        return q.squeeze(-1) if probs is None else reduce_branches(q, probs, self._branches)

    def of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [..., P] of values q [..., P, N] for flat actions [P, A]."""
        return self.expected(q, action[..., : self._width] if self._width else None)

    def point(self, out: Tensor) -> Tensor:
        """Return the expected returns [..., P, N] of outputs [..., P, N·D]; here the outputs themselves."""
        return out

    def mean(self, taken: Tensor) -> Tensor:
        """Return the expected returns [E, B, T] of ``taken`` [E, (D,) B, T]; here ``taken`` itself."""
        return taken

    @abstractmethod
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the predictions [E, (D,) P] for the actions taken, flat [P, A], of outputs [E, P, N·D]."""

    @abstractmethod
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the values of states, [P] or atoms [J, P], by target critics' outputs [M, P, N·D].

        probs: [P, ΣN] of the policy's discrete choices; None without discrete part
        """

    @abstractmethod
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the scalar loss of the predictions ``taken`` [E, (D,) B, T]."""

    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return values to log of the predictions ``taken`` [E, (D,) B, T], without gradient."""
        return {}


class ScalarValues(Values):
    """Values that are a number each (arXiv 1812.05905).

    reduce: reduction over target critics
    """

    def __init__(self, action: ActionSpec, reduce: Reduce) -> None:
        super().__init__(action)
        self.reduce = reduce

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [E, P]."""
        return self.of_action(out, action)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the reduced value [P] of the target critics."""
        return self.expected(self.reduce(out), probs)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the squared error."""
        return critic_loss(taken, target.y, target.weight, target.valid)


class ClippedValues(ScalarValues):
    """Numbers whose predictions the loss clips to a distance ``epsilon`` from the target network's."""

    clips = True

    def __init__(self, action: ActionSpec, reduce: Reduce, epsilon: float) -> None:
        super().__init__(action, reduce)
        self._epsilon = epsilon

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the squared error of predictions clipped around the target's ``slow_q``."""
        assert target.slow_q is not None
        y, slow, weight, valid = target.y, target.slow_q, target.weight, target.valid
        return clipped_critic_loss(taken, y, slow, weight, valid, epsilon=self._epsilon)

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the share of predictions whose gradient the clip removes."""
        assert target.slow_q is not None
        is_clipped = clip_binds(taken, target.y, target.slow_q, epsilon=self._epsilon)
        return {"value/clipped": masked_mean(is_clipped.float().mean(0).flatten(), target.valid.flatten())}
