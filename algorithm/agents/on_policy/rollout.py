"""A rollout: transitions that are learned from once, as sequences read from the ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import Bool, Double, Float, Int, SequenceBatch
from algorithm.extensions.base import Horizon


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


_Columns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]
"""z, log μ, action, ``first``, ``weight``, ``advantage``, ``values`` and ``targets`` of transitions."""


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
    advantage: Tensor  # [b, T] summed over the horizons
    values: tuple[Tensor, ...]  # [b, T] before the update, one for each horizon
    targets: tuple[Tensor, ...]  # [b, T] of these
    whole: bool  # all are valid

    def taken(self, x: Tensor) -> Tensor:
        """Return the valid ones [M, ...] of x [b, T, ...]."""
        return x.flatten(0, 1) if self.whole else x[self.valid]

    def to(self, device: torch.device) -> Minibatch:
        """Return the same on ``device``; itself if it is there already."""
        if self.advantage.device == device:
            return self
        fields = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return Minibatch(
            obs={k: v.to(device) for k, v in self.obs.items()},
            values=tuple(v.to(device) for v in self.values),
            targets=tuple(v.to(device) for v in self.targets),
            whole=self.whole,
            **fields,
        )


class Rollout:
    """Transitions with values and advantages, on the CPU.

    batch:   windows that hold each transition once, chain by chain
    burn_in: K
    values:  [G, B, T+1] V of G horizons, of the learned tokens and of the one behind
    """

    def __init__(self, batch: SequenceBatch, burn_in: int, values: Tensor) -> None:
        self._batch, self._burn_in = batch, burn_in
        self._learned = slice(burn_in, batch.window)
        self.valid = batch.valid[:, self._learned]
        self._whole = bool(self.valid.all())
        self._next_values = values[:, :, 1:]
        self._restricted = not bool(batch.action_mask.all())
        # All numbers of a transition stand side by side, so that a minibatch of them is gathered at once.
        given = [one[:, self._learned] for one in (batch.z, batch.behaviour_logp, batch.action)]
        self._widths = [*(one.shape[-1] for one in given), 1, 1, 1, *[1] * 2 * len(values)]
        own = torch.zeros(*self.valid.shape, 3 + 2 * len(values))
        self._columns = torch.cat([*given, own], -1)
        _, _, _, self.first, self.weight, self.advantage, *both = self._split(self._columns)
        self.values, self.targets = both
        self.weight.fill_(1.0)
        for place, value in zip(self.values, values, strict=True):
            place.copy_(value[:, :-1])

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.valid)

    def _split(self, columns: Tensor) -> _Columns:
        """Return the numbers of transitions by what they are."""
        z, logp, action, *own = columns.split(self._widths, -1)
        first, weight, advantage, *numbers = (one.squeeze(-1) for one in own)
        half = len(numbers) // 2
        return z, logp, action, first, weight, advantage, tuple(numbers[:half]), tuple(numbers[half:])

    def estimate(
        self,
        bonuses: Sequence[Tensor],
        horizons: Sequence[Horizon],
        *,
        reward_scale: float,
        trace_decay: float,
    ) -> list[tuple[Double, Double]]:
        """Set advantages and the targets of V; return values and targets [M] in float64, for statistics.

        bonuses: [B, T] for each horizon; the first ones are added to the scaled rewards
        """
        batch, at, total = self._batch, self.valid.numpy(), None
        reward = batch.reward[:, self._learned].numpy()[at] * np.float32(reward_scale)
        ended, following = batch.terminated[:, self._learned].numpy()[at], self._following()
        weight, found = self.weight.numpy()[at].astype(np.float64), []
        for i, (horizon, bonus) in enumerate(zip(horizons, bonuses, strict=True)):
            value = self.values[i].numpy()[at]
            advantage = advantages(
                bonus.numpy()[at] if i else reward + bonus.numpy()[at],
                value,
                self._next_values[i].numpy()[at],
                ended if horizon.ends else np.zeros_like(ended),
                following,
                weight,
                gamma=horizon.gamma,
                trace_decay=trace_decay,
            )
            target = self.weight.numpy()[at] * advantage + value
            self._put(self.targets[i], target)
            found.append((value.astype(np.float64), target))
            total = advantage if total is None else total + advantage
        assert total is not None, "there is a horizon"
        self._put(self.advantage, total)
        return found

    def _put(self, place: Tensor, found: Double) -> None:
        place[self.valid] = torch.from_numpy(found.astype(np.float32))

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
        batch, tokens, learned = self._batch, slice(self._burn_in + self.valid.shape[1]), self._learned
        # Where all rows are the same, as many of the first ones are these.
        plain = slice(len(sequences)) if self._whole else sequences
        z, logp, action, first, weight, advantage, values, targets = self._split(self._columns[sequences])
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
            advantage=advantage,
            values=values,
            targets=targets,
            whole=self._whole,
        )

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
