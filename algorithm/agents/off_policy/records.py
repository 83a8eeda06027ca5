"""Plain records that pass between the functions of an off-policy update; the protocol of its two steps."""

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

    next_noise: Tensor  # [B·L, A_c] noise of the next actions u' of all L transitions
    noise: Tensor  # [B·T, A_c] noise of the actions at the learned tokens; empty if no policy step is due
    coins: Tensor | None  # [B, L−1] uniform numbers by which SampledVTrace ends targets; None: not used
    members: Tensor | None  # [M] indices of the target critics, on the CPU; None: all
    extensions: Sequence[Mapping[str, object]]  # draws of the extensions, for each step of their own modules


@dataclass(frozen=True, kw_only=True)
class NextActions:
    """Actions of the policy in the next states of all L transitions, without gradient."""

    rows: Tensor | slice  # P' of P: indices [B·T] of the states from which returns bootstrap, or all
    u: Tensor  # [P', A_c] continuous actions in these states
    bonus: Tensor  # [B, L] h(s')
    probs: Tensor | None  # [P', ΣN] of discrete choices in these states; None without discrete actions
    valid: Tensor  # [B, L] transitions that exist
    log_ratio: Tensor | None  # [B, L−1] log π/μ of the stored actions after the first; None: not needed
    steps: Tensor  # steps that targets use, [B, T, n] bool; with V-trace the ratios π/μ [B, L−1]


class CriticResult(TypedDict):
    """Results of the critics' step, without gradient."""

    td_error: Tensor  # [E, B, T] before this step, summed over horizons
    state: Tensor  # [B, T, S] of the learned tokens, by the encoder before this step
    obs: Obs  # [B, T, ...] the networks' inputs at the learned tokens
    carry: NotRequired[Tensor]  # [B, W+1, *C] before each token, with ``refresh_carry``
    metrics: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class CriticTarget:
    """Target of the critics' loss, with the weights of its rows.

    unit: a reward of 1 in the critics' scale: a tensor [] with ``reward_scaling``, else 1
    """

    y: Tensor  # [B, T]
    spread: Tensor | None  # [J, B, T] deviations from y of the atoms of the return's distribution
    weight: Tensor  # [B]
    valid: Tensor  # [B, T]
    unit: Tensor | float
    slow_q: Tensor | None = None  # [E, B, T] target critics' Q of the stored actions, for the critics' clip


class Steps(Protocol):
    """The two steps of an update: those of the learner, or compiled ones.

    eager_first: number of a learner's first updates that do not use these steps
    """

    eager_first: int

    def learn_critics(self, batch: SequenceBatch, draws: Draws) -> CriticResult:
        """Take a step of encoder and critics, and of the extensions' modules."""

    def learn_policy(self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Take a step of policy and temperature; return values to log."""
