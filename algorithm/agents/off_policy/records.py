"""Plain records between the parts of an off-policy update, and the two steps that it consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from typing_extensions import NotRequired, TypedDict

from algorithm.core.data import SequenceBatch
from algorithm.nn.protocols import Obs


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Random numbers of an update, all drawn before it."""

    next_noise: Tensor  # [B·L, A_c] of the actions in the states behind all L transitions
    noise: Tensor  # [B·T, A_c] of the actions at the learned tokens; empty where no policy is due
    coins: Tensor | None  # [B, L−1] uniform numbers that say how far targets reach; None: all alike
    members: Tensor | None  # [M] target critics on the CPU; None: all
    extensions: Sequence[Mapping[str, object]]  # of the extensions, for each step of their own parts


@dataclass(frozen=True, kw_only=True)
class NextActions:
    """Actions of the policy in the states behind all L transitions, without gradient."""

    u: Tensor  # [P, A_c]
    bonus: Tensor  # [B, L] h(s')
    probs: Tensor | None  # [P, ΣN] of discrete choices
    rows: Tensor | None  # [B·T] positions of the P that returns bootstrap from; None: all
    valid: Tensor  # [B, L] transitions that exist
    log_ratio: Tensor | None  # [B, L−1] log π/μ of the stored actions behind the first, where returns correct
    steps: Tensor  # how far targets reach: [B, T, n] bool, or the ratios [B, L−1] of V-trace


class CriticResult(TypedDict):
    """Findings of the critics' step, without gradient."""

    td_error: Tensor  # [E, B, T] before this step, summed over horizons
    state: Tensor  # [B, T, S] of the learned tokens, by the encoder before this step
    obs: Obs  # [B, T, ...] there, the networks' inputs
    carry: NotRequired[Tensor]  # [B, W+1, *C] before each token, where the replay takes it back
    metrics: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class CriticTarget:
    """Target of the critics' loss, with the weights of its rows.

    unit: size of a unit of reward, in what the critics learn: a tensor [] with ``reward_scaling``, else 1
    """

    y: Tensor  # [B, T]
    spread: Tensor | None  # [J, B, T] deviations from y of the atoms of the return's distribution
    weight: Tensor  # [B]
    valid: Tensor  # [B, T]
    unit: Tensor | float
    slow_q: Tensor | None = None  # [E, B, T] what target critics say of the stored actions


class Steps(Protocol):
    """Both steps of an update, as they are written or compiled.

    eager_first: updates before these steps are used
    """

    eager_first: int

    def learn_critics(self, batch: SequenceBatch, draws: Draws) -> CriticResult:
        """Take a step of encoder and critics, and of the extensions' parts."""

    def learn_policy(self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Take a step of policy and temperature; return values to log."""
