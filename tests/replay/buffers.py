"""Replays with something in them, and what is handed back to them."""

from __future__ import annotations

import torch

from algorithm.core.data import SequenceBatch, UpdateResult
from algorithm.replay.buffer import ReplayBuffer
from tests.oracles_replay import VECTOR, make_segment


def filled(sampler, *, capacity=200, lengths=(30, 40, 50), spec=VECTOR, **kwargs) -> ReplayBuffer:
    buffer = ReplayBuffer(spec, capacity=capacity, sampler=sampler, **{"batch_size": 16, **kwargs})
    carry_shape = kwargs.get("carry_shape", (0,))
    for episode, length in enumerate(lengths):
        buffer.add(
            make_segment(
                spec,
                stream=0,
                episode=episode,
                start=0,
                length=length,
                truncated=True,
                carry_shape=carry_shape,
            )
        )
    return buffer


def result(ids, priority, *, anchor=0, carry=None) -> UpdateResult:
    ids = torch.as_tensor(ids)
    return UpdateResult(
        priority=torch.as_tensor(priority, dtype=torch.float32),
        ids=ids if ids.ndim == 2 else ids[:, None],
        anchor=torch.as_tensor(anchor).expand(len(ids)),
        carry=carry,
    )


def batches_equal(a: SequenceBatch, b: SequenceBatch) -> bool:
    plain = all(getattr(a, k).equal(getattr(b, k)) for k in vars(a) if k != "obs")
    return plain and all(a.obs[k].equal(b.obs[k]) for k in a.obs)
