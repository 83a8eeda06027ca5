"""Data that packages hand to one another. The dimension legend is in ``algorithm/README.md``.

B batch · K burn-in · T learned · n steps · W = K+T+n−1 window · A flat action · H action heads · C carry
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from algorithm.core.steps import Array, Bool, Double, Float, Int, Scalar, Segment, StepBatch

if TYPE_CHECKING:  # worker processes of environments carry segments and never load torch
    import torch
    from torch import Tensor

__all__ = [
    "PERSON_LOGP",
    "UNKNOWN_LOGP",
    "ActorOutput",
    "Array",
    "Bool",
    "DemoEpisode",
    "Demonstrations",
    "Double",
    "Float",
    "Int",
    "Rewarded",
    "Scalar",
    "Segment",
    "SequenceBatch",
    "State",
    "StepBatch",
    "UpdateResult",
    "sent",
]


UNKNOWN_LOGP = -1e6
"""Log-probability of an action whose density is not known: its ratio π/μ counts as 1, as of all below."""

PERSON_LOGP = 2 * UNKNOWN_LOGP
"""Log-probability of an action that a person has chosen in place of the policy."""


class Rewarded(Protocol):
    """Steps of agents with their rewards."""

    def rewards(self) -> Iterator[tuple[int, int, list[float], bool]]:
        """Yield (stream, its first step, its rewards, whether its episode ended with them) of each agent."""


@dataclass(frozen=True, kw_only=True)
class DemoEpisode:
    """Whole episode of L transitions that another agent, or a person, has played."""

    obs: dict[str, Array]  # [L+1, ...] in the dtype of the spec
    action_mask: Bool  # [L+1, ΣN]
    action: Float  # [L, A], the continuous part in [-1, 1]
    reward: Float  # [L]
    terminated: bool  # by its last step; otherwise it was truncated
    z: Float | None = None  # [L, A_c] pre-tanh value of the continuous part, where it is known
    behaviour_logp: Float | None = None  # [L, H] of the policy that acted, where it is known

    @property
    def length(self) -> int:
        """L, the number of transitions."""
        return len(self.reward)

    @property
    def total(self) -> float:
        """Undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))


@dataclass(frozen=True, kw_only=True)
class Demonstrations:
    """Episodes that fit an agent's spec, at least one.

    digests: file -> SHA-256 of the episodes read from it
    notices: warnings about the files, for the user
    """

    episodes: Sequence[DemoEpisode]
    digests: Mapping[str, str]
    notices: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ActorOutput:
    """Actions of N agents, as the replay stores them."""

    action: Float  # [N, A]
    z: Float  # [N, A_c]
    behaviour_logp: Float  # [N, H]
    carry: Float  # [N, *C] after the observation


@dataclass(frozen=True, kw_only=True)
class SequenceBatch:
    """B windows of W transitions and W+1 tokens; learned positions are K … K+T−1, the anchor is one of them.

    Padding (before an episode's start, past its end, overwritten rows) is zero everywhere, also in ``step``;
    ``ids`` is −1 there. It may be before and after the anchor, also at learned positions; the anchor exists.
    """

    obs: dict[str, Tensor]  # [B, W+1, ...]
    prev_action: Tensor  # [B, W+1, A]  zeros before an episode's first step
    action_mask: Tensor  # [B, W+1, ΣN] bool
    step: Tensor  # [B, W+1] int64, step in the episode
    obs_valid: Tensor  # [B, W+1] bool  the token exists
    ids: Tensor  # [B, W+1] int64 row ids, −1 for none
    action: Tensor  # [B, W, A]
    z: Tensor  # [B, W, A_c]
    behaviour_logp: Tensor  # [B, W, H]
    reward: Tensor  # [B, W]
    terminated: Tensor  # [B, W] bool
    valid: Tensor  # [B, W] bool  the transition exists
    carry: Tensor  # [B, *C_stored] before the first valid row
    anchor: Tensor  # [B] int64, column of the transition that was drawn
    weight: Tensor  # [B] importance-sampling weights of the anchors

    @property
    def window(self) -> int:
        """W, the number of transitions in a window."""
        return self.reward.shape[1]

    def rows(self, chosen: Tensor) -> SequenceBatch:
        """Return a batch of copies of some windows; chosen: [b] their indices in this batch."""
        fields = {name: value[chosen] for name, value in vars(self).items() if name != "obs"}
        return SequenceBatch(obs={name: value[chosen] for name, value in self.obs.items()}, **fields)

    def to(self, device: torch.device) -> SequenceBatch:
        """Return the same batch on ``device``; itself if it is there already."""
        if self.reward.device == device:
            return self
        fields = {k: sent(v, device) for k, v in vars(self).items() if k != "obs"}
        return SequenceBatch(obs={k: sent(v, device) for k, v in self.obs.items()}, **fields)


@dataclass(frozen=True, kw_only=True)
class UpdateResult:
    """Result of one gradient step. Tensors stay on the device until they are needed.

    metrics: name → scalar, or values [..., B, T] of learned positions. Only logging computes their mean over
             the positions that are ``valid``.
    """

    priority: Tensor  # [B] 0.9 max + 0.1 mean over learned positions of mean_E |td|; the replay clips it
    ids: Tensor  # [B, W+1] of the batch it came from
    anchor: Tensor  # [B] columns of ``ids`` that the priorities belong to
    carry: Tensor | None = None  # [B, W+1, *C] recomputed ones before each token, with refresh_carry
    valid: Tensor | None = None  # [B, T] bool, the learned positions that exist; None where no metric has any
    metrics: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def anchor_ids(self) -> Tensor:
        """Ids [B] of the transitions that the priorities belong to."""
        return self.ids.gather(1, self.anchor.unsqueeze(1)).squeeze(1)


@dataclass(frozen=True)
class State:
    """All data from which an object continues as if it had never stopped.

    arrays: by name, which may contain slashes; views of arrays in use: write or copy them before going on
    meta:   strict JSON: string keys, integers of any size, neither NaN nor infinity
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def joined(cls, states: Mapping[str, State]) -> State:
        """Join states by name into one; :meth:`part` takes them apart. No name may contain a slash."""
        arrays = {f"{name}/{k}": v for name, state in states.items() for k, v in state.arrays.items()}
        return cls(arrays, {name: state.meta for name, state in states.items()})

    def part(self, name: str) -> State:
        """Return the state that was joined under ``name``. Raises KeyError if there is none."""
        prefix = f"{name}/"
        arrays = {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}
        return State(arrays, self.meta[name])


def sent(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on ``device``; itself if it is there already.

    A copy to a GPU goes through pinned memory: only then does it not block.
    """
    if device.type == "cuda" and x.device.type == "cpu":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


@dataclass(frozen=True)
class Episode:
    """A finished episode of one agent."""

    behaviour: str
    agent: int
    total: float  # undiscounted return
    length: int
    infos: Mapping[str, float] = field(default_factory=dict)  # numbers that the environment has put there
