"""A rollout: transitions, with their values, advantages and targets, that are learned from once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import Bool, Double, Float, Int, SequenceBatch
from algorithm.core.errors import ModelError
from algorithm.extensions.base import Horizon

LARGEST_FIRST_RATIO = 0.01
"""Largest allowed |log ρ| in the first step of an update, in which ρ is 1 except for rounding."""


@dataclass(kw_only=True, eq=False)
class Rollout:
    """Rollout, or a minibatch of one: B sequences of T steps each, of which M are transitions that exist.

    A sequence has K tokens before its steps. All numbers of a transition are in ``columns``, side by side, so
    that those of a minibatch are gathered at once.
    """

    obs: dict[str, Tensor]  # name -> [B, K+T, ...]
    prev_action: Tensor  # [B, K+T, A]
    carry: Tensor  # [B, *C]
    exists: Tensor  # [B, K+T] bool, of tokens
    action_mask: Tensor | None  # [B, T, ΣN]; None: every choice is allowed
    valid: Tensor  # [B, T] bool, of transitions
    whole: bool  # all transitions exist
    columns: Tensor  # [B, T, sum of the widths]
    widths: Sequence[int]

    # Views of the columns; values and targets are of G horizons. Those from ``old_log_ratio`` on are
    # computed before the first step.
    z: Tensor = field(init=False)  # [B, T, A_c] continuous actions before they are clipped
    behaviour_logp: Tensor = field(init=False)  # [B, T, H] log μ
    action: Tensor = field(init=False)  # [B, T, A]
    old_log_ratio: Tensor = field(init=False)  # [B, T] log π_old − log μ; 0 where π_old has acted
    weight: Tensor = field(init=False)  # [B, T] min(1, π_old/μ) of V-trace, or 1
    advantage: Tensor = field(init=False)  # [B, T] summed over the horizons
    values: Sequence[Tensor] = field(init=False)  # [B, T] V
    targets: Sequence[Tensor] = field(init=False)  # [B, T] R

    estimates: list[tuple[Double, Double]] = field(default_factory=list)  # V and R [M] of each horizon

    def __post_init__(self) -> None:
        self.z, self.behaviour_logp, self.action, *numbers = self.columns.split(self.widths, -1)
        self.old_log_ratio, self.weight, self.advantage, *rest = (x.squeeze(-1) for x in numbers)
        self.values, self.targets = rest[: len(rest) // 2], rest[len(rest) // 2 :]

    def __len__(self) -> int:
        """Return B, the number of sequences."""
        return len(self.valid)

    def flat(self, x: Tensor) -> Tensor:
        """Return the entries [M, ...] of ``x`` [B, T, ...] at the transitions that exist."""
        return x.flatten(0, 1) if self.whole else x[self.valid]

    def minibatch(self, sequences: Tensor, device: torch.device) -> Rollout:
        """Return a copy of the sequences with the indices ``sequences`` [b], on ``device``."""
        mask = self.action_mask
        return replace(
            self,
            obs={name: x[sequences].to(device) for name, x in self.obs.items()},
            prev_action=self.prev_action[sequences].to(device),
            carry=self.carry[sequences].to(device),
            exists=self.exists[sequences].to(device),
            action_mask=None if mask is None else mask[sequences].to(device),
            valid=self.valid[sequences].to(device),
            columns=self.columns[sequences].to(device),
        )


def make_rollout(batch: SequenceBatch, values: Tensor) -> Rollout:
    """Lay windows that hold each transition once side by side as a rollout on the CPU.

    Weights are 1; ratios, advantages and targets are not set yet.
    values: [G, B, T+1] V of G horizons, of the steps' states and the state after them, which is not kept
    """
    num_steps, window = values.shape[2] - 1, batch.reward.shape[1]
    valid = batch.valid[:, -num_steps:]
    acted = [x[:, -num_steps:] for x in (batch.z, batch.behaviour_logp, batch.action)]
    estimated = torch.zeros(*valid.shape, 3 + 2 * len(values))
    rollout = Rollout(
        obs={name: x[:, :window] for name, x in batch.obs.items()},
        prev_action=batch.prev_action[:, :window],
        carry=batch.carry,
        exists=batch.obs_valid[:, :window],
        action_mask=None if batch.action_mask.all() else batch.action_mask[:, window - num_steps : window],
        valid=valid,
        whole=bool(valid.all()),
        columns=torch.cat([*acted, estimated], -1),
        widths=[*(x.shape[-1] for x in acted), *[1] * estimated.shape[-1]],
    )
    rollout.weight.fill_(1.0)
    for place, value in zip(rollout.values, values, strict=True):
        place.copy_(value[:, :-1])
    return rollout


def estimate_advantages(
    rollout: Rollout,
    batch: SequenceBatch,
    values: Tensor,
    rewards: Sequence[Tensor],
    horizons: Iterable[Horizon],
    *,
    trace_decay: float,
) -> None:
    """Set the advantages A of a rollout and the targets ``R = V + A`` of each horizon's values.

    batch, values: arguments of :func:`make_rollout`
    rewards: [B, T] of each horizon
    trace_decay: λ
    """
    existing = rollout.valid.numpy()
    terminated = batch.terminated[:, -existing.shape[1] :].numpy()[existing]
    following = _following(batch.ids, existing)
    weight = rollout.weight.numpy()[existing].astype(np.float64)
    total = np.zeros(len(weight))
    for i, (horizon, reward) in enumerate(zip(horizons, rewards, strict=True)):
        value = values[i, :, :-1].numpy()[existing]
        advantage = advantages(
            reward.numpy()[existing],
            value,
            values[i, :, 1:].numpy()[existing],
            terminated if horizon.ends else np.zeros_like(terminated),
            following,
            weight,
            gamma=horizon.gamma,
            trace_decay=trace_decay,
        )
        target = weight * advantage + value
        rollout.targets[i][rollout.valid] = torch.from_numpy(target.astype(np.float32))
        rollout.estimates.append((value.astype(np.float64), target))
        total += advantage
    rollout.advantage[rollout.valid] = torch.from_numpy(total.astype(np.float32))


def advantages(
    reward: Float,
    value: Float,
    next_value: Float,
    terminated: Bool,
    following: Int,
    weight: Double,
    *,
    gamma: float,
    trace_decay: float,
) -> Double:
    """Return generalised advantages of M transitions along their chains (arXiv 1506.02438, eq. 16).

    ``δ = r + γ d V(s') − V(s)``, ``A = δ + γ λ w' A'``; w' and A' are those of the following transition, 0
    without one. d is 0 if the episode terminated; a truncated one bootstraps from V of its final observation.
    With the weights w of V-trace, ``V + w A`` is its target (arXiv 1802.01561, eq. 1, ρ̄ = c̄ = 1), and ``w A``
    the factor of its policy gradient.

    reward, value, next_value, terminated: [M]
    following: [M] index of the next transition of the same chain, larger than its own; −1 for none
    weight: [M] min(1, π/μ) of V-trace; 1 where the present policy acted
    gamma, trace_decay: γ and λ
    Returns A [M].
    """
    delta = reward.astype(np.float64) + gamma * next_value * ~terminated - value
    result, decay = delta.tolist(), (gamma * trace_decay * weight).tolist()
    for i, after in zip(range(len(result) - 1, -1, -1), following[::-1].tolist(), strict=True):
        if after >= 0:
            result[i] += decay[after] * result[after]
    return np.array(result, np.float64)


def _following(ids: Tensor, existing: Bool) -> Int:
    """Return for each of M transitions the index of the next one in its episode, [M]; −1 without one.

    ids: [B, K+T+1] of rows; existing: [B, T] mask of transitions
    """
    num_steps = existing.shape[1]
    row = ids[:, -num_steps - 1 : -1].numpy()[existing]
    after = ids[:, -num_steps:].numpy()[existing]
    order = row.argsort()
    place = order[np.searchsorted(row, after, sorter=order).clip(max=len(row) - 1)]
    return np.where(row[place] == after, place, -1)


def standardised(advantage: Tensor) -> Tensor:
    """Return advantages [M] scaled to mean 0 and standard deviation 1; a single one is not changed."""
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def check_ratios(log_ratio: Tensor) -> None:
    """Raise ModelError if a ratio is not 1, as all must be before the first step of an update.

    log_ratio: log ρ, of any shape but not empty; |log ρ| up to 0.01 passes
    """
    off = float(log_ratio.detach().abs().max())
    if not off <= LARGEST_FIRST_RATIO:  # also NaN
        raise ModelError(
            "the policy computes different probabilities in learning than in acting",
            where="ModelRep and ModelPolicy",
            why=f"before the first update of a rollout the logarithm of a ratio is {off:.4g} instead of 0",
            fix="remove from nn.py what differs between training and acting: dropout, batch statistics, "
            "noise",
        )
