"""A rollout: transitions that are learned from once, as sequences read from the ring."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import Bool, Double, Float, Int, SequenceBatch


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
    """Return generalised advantages of M transitions (arXiv 1506.02438, eq. 16), over links.

    ``δ = r + γ d V(s') − V(s)``, ``A = δ + γ λ w' A'``; w' and A' are those of the following transition, 0
    without one. d is 0 where the episode terminated. One that was truncated counts on V of its final
    observation. With the weights of V-trace ``V + w A`` is its target (arXiv 1802.01561, eq. 1, ρ̄ = c̄ = 1),
    and ``w A`` weighs its policy's gradient.

    reward, value, next_value, terminated: [M]
    following: [M] index of the next transition of the same chain, larger than its own; −1 for none
    weight: [M] min(1, π/μ) of V-trace; 1 where the present policy has acted
    gamma, trace_decay: γ and λ
    """
    delta = reward.astype(np.float64) + gamma * next_value * ~terminated - value
    result, decay = delta.tolist(), (gamma * trace_decay * weight).tolist()
    for i, after in zip(range(len(result) - 1, -1, -1), following[::-1].tolist(), strict=True):
        if after >= 0:
            result[i] += decay[after] * result[after]
    return np.array(result, np.float64)


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """Sequences of a rollout: b of them, T learned steps each, of which M exist. K tokens lie before."""

    obs: dict[str, Tensor]  # name -> [b, K+T, ...]
    prev_action: Tensor  # [b, K+T, A]
    carry: Tensor  # [b, *C]
    exists: Tensor  # [b, K+T] bool
    action_mask: Tensor | None  # [b, T, ΣN]; None: every choice is allowed
    action: Tensor  # [b, T, A]
    z: Tensor  # [b, T, A_c]
    behaviour_logp: Tensor  # [b, T, H]
    first: Tensor  # [b, T] log π − log μ before the update, which later ones are compared with
    weight: Tensor  # [b, T] of the policy's loss: min(1, π/μ) of V-trace, else 1
    valid: Tensor  # [b, T] bool
    value: Tensor  # [b, T] before the update
    advantage: Tensor  # [b, T]
    target: Tensor  # [b, T]
    whole: bool  # all are valid

    def taken(self, x: Tensor) -> Tensor:
        """Return the valid ones [M, ...] of x [b, T, ...]."""
        return x.flatten(0, 1) if self.whole else x[self.valid]

    def to(self, device: torch.device) -> Minibatch:
        """Return the same on ``device``; itself if it is there already."""
        if self.value.device == device:
            return self
        fields = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return Minibatch(obs={k: v.to(device) for k, v in self.obs.items()}, whole=self.whole, **fields)


class Rollout:
    """Transitions with values and advantages, on the CPU.

    batch:   windows that hold each transition once, chain by chain
    burn_in: K
    value:   [B, T+1] V of the learned tokens and of the one behind
    """

    def __init__(self, batch: SequenceBatch, burn_in: int, value: Tensor) -> None:
        self._batch, self._burn_in = batch, burn_in
        self._learned = slice(burn_in, batch.window)
        self.valid = batch.valid[:, self._learned]
        self._whole = bool(self.valid.all())
        self._next_value = value[:, 1:]
        self._restricted = not bool(batch.action_mask.all())
        # All numbers of a transition stand side by side, so that a minibatch of them is gathered at once.
        given = [one[:, self._learned] for one in (batch.z, batch.behaviour_logp, batch.action)]
        self._columns = torch.cat([*given, torch.zeros(*self.valid.shape, 5)], -1)
        self._widths = [*(one.shape[-1] for one in given), 1, 1, 1, 1, 1]
        _, _, _, *own = self._columns.split(self._widths, -1)
        self.first, self.weight, self.value, self.advantage, self.target = (one.squeeze(-1) for one in own)
        self.weight.fill_(1.0)
        self.value.copy_(value[:, :-1])

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.valid)

    def estimate(
        self, bonus: Tensor, *, reward_scale: float, gamma: float, trace_decay: float
    ) -> tuple[Double, Double]:
        """Set advantages and the targets of V; return values and targets [M] in float64, for statistics.

        bonus: [B, T] added to the scaled rewards
        """
        batch, at = self._batch, self.valid.numpy()
        value = self.value.numpy()[at]
        advantage = advantages(
            batch.reward[:, self._learned].numpy()[at] * np.float32(reward_scale) + bonus.numpy()[at],
            value,
            self._next_value.numpy()[at],
            batch.terminated[:, self._learned].numpy()[at],
            self._following(),
            self.weight.numpy()[at].astype(np.float64),
            gamma=gamma,
            trace_decay=trace_decay,
        )
        target = self.weight.numpy()[at] * advantage + value
        for place, found in ((self.advantage, advantage), (self.target, target)):
            place[self.valid] = torch.from_numpy(found.astype(np.float32))
        return value.astype(np.float64), target

    def correct(self) -> None:
        """Set the weights of V-trace, min(1, π/μ), from ``first``."""
        self.weight.copy_(self.first.clamp(max=0.0).exp())

    def normalise(self) -> None:
        """Give all advantages mean 0 and standard deviation 1; a single one stays as it is."""
        own = self.advantage[self.valid]
        if len(own) > 1:
            self.advantage[self.valid] = standardised(own)

    def windows(self, sequences: Tensor) -> SequenceBatch:
        """Return the windows of the sequences of these numbers [b], with the tokens behind."""
        return self._batch.rows(sequences)

    def part(self, sequences: Tensor) -> Minibatch:
        """Return the sequences of these numbers [b]."""
        batch, tokens, learned = self._batch, slice(self._burn_in + self._learned_length), self._learned
        # Where all rows are the same, as many of the first ones are these.
        plain = slice(len(sequences)) if self._whole else sequences
        z, logp, action, *own = self._columns[sequences].split(self._widths, -1)
        first, weight, value, advantage, target = (one.squeeze(-1) for one in own)
        return Minibatch(
            obs={name: one[sequences, tokens] for name, one in batch.obs.items()},
            prev_action=batch.prev_action[sequences, tokens],
            carry=batch.carry[sequences],
            exists=batch.obs_valid[sequences if self._burn_in else plain, tokens],
            action_mask=batch.action_mask[sequences, learned] if self._restricted else None,
            action=action,
            z=z,
            behaviour_logp=logp,
            first=first,
            weight=weight,
            valid=self.valid[plain],
            value=value,
            advantage=advantage,
            target=target,
            whole=self._whole,
        )

    @property
    def _learned_length(self) -> int:
        return self.valid.shape[1]

    def _following(self) -> Int:
        """Return for each transition [M] the index of the next one of its chain; −1 for none."""
        valid = self.valid.numpy()
        ids = self._batch.ids.numpy()
        own = ids[:, self._burn_in : -1][valid]
        after = ids[:, self._burn_in + 1 :][valid]
        order = own.argsort()
        place = np.searchsorted(own, after, sorter=order).clip(max=len(own) - 1)
        found = order[place]
        return np.where(own[found] == after, found, -1)


def standardised(advantage: Tensor) -> Tensor:
    """Return advantages [M] with mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def explained_variance(value: Double, target: Double) -> float:
    """Return ``1 − Var(R − V) / Var(R)``; NaN where the targets do not vary."""
    spread = float(np.var(target))
    return 1.0 - float(np.var(target - value)) / spread if spread > 0.0 else math.nan
