"""Everything that depends on the kind of action. SAC composes heads and never asks which kind it has.

An action has a discrete and a continuous part, each with its head; an agent without one of them has a head
that is neutral: no outputs, log-probability 0, entropy 0. Positions P are flattened batches of states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from algorithm.nn.distributions import HybridAction, TanhNormal


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The discrete part of π at P positions."""

    probs: Tensor  # [P, ΣN] exactly 0 where a choice is not allowed
    log_probs: Tensor  # [P, ΣN] 0 there
    mask: Tensor  # [P, ΣN] bool


class ContinuousHead(Protocol):
    """The continuous part of an action."""

    def draw(self, policy: HybridAction, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A reparameterised u [P, A_c] and its log-density [P]."""
        ...

    def bonus(self, logp: Tensor) -> Tensor:
        """Its part of h(s), [P]: −α log π(u|s)."""
        ...

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """log π − log μ [...] of stored actions, z [..., A_c], behaviour_logp [..., H]."""
        ...

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Scalar losses ``policy`` and ``alpha``: logp, value, share [P]."""
        ...

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Values to log, scalars or [..., P], without gradient."""
        ...


class DiscreteHead(Protocol):
    """The discrete part of an action: how the outputs q [..., N] of a critic become values."""

    needs_q: bool
    """Whether a choice is made by the critics' values."""

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: Callable[[], Tensor]) -> Choice:
        """π's discrete part; ``mean_q`` gives the online critics' mean q [P, N] at the continuous part."""
        ...

    def taken(self, q: Tensor, action: Tensor) -> Tensor:
        """Q(s, a) [..., P] of flat actions [P, A]."""
        ...

    def expected(self, q: Tensor, choice: Choice) -> Tensor:
        """R(q, π) [..., P]: the value of a state under the discrete part of π, without gradient to π."""
        ...

    def bonus(self, choice: Choice) -> Tensor | float:
        """Its part of h(s), [P]: α mean_b H(π_b) with soft targets, else 0."""
        ...

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, behaviour_logp: Tensor
    ) -> Tensor | float:
        """log π − log μ [...] of flat actions [..., A], behaviour_logp [..., H]."""
        ...

    def losses(self, choice: Choice, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Scalar losses ``policy`` and ``alpha``: q [P, N] without gradient, share [P]."""
        ...

    def metrics(self, choice: Choice) -> dict[str, Tensor]:
        """Values to log, scalars or [..., P], without gradient."""
        ...


def continuous_part(policy: HybridAction) -> TanhNormal:
    """The distribution of the continuous part; the dry run has made sure that it is there."""
    assert policy.continuous is not None
    return policy.continuous


def logits_of(policy: HybridAction) -> Tensor:
    """The logits of the discrete part; the dry run has made sure that they are there."""
    assert policy.logits is not None
    return policy.logits
