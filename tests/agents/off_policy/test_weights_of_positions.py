"""How much each step of an episode weighs in what is learned from windows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithm.ops.shapes import window_share
from algorithm.replay import FifoSampler, ReplayBuffer, Sampler, UniformSampler
from tests.lib.buffers import filled

LEARN = 10


def weights_by_step(replay: ReplayBuffer, length: int, updates: int) -> np.ndarray:
    """Share of each step of an episode in the mean over windows, relative to the mean of all steps."""
    total = torch.zeros(length)
    for _ in range(updates):
        batch = replay.sample()
        at, valid = batch.step[:, :LEARN], batch.valid[:, :LEARN]
        total.index_add_(0, at[valid], window_share(valid, total.dtype).view(valid.shape)[valid])
    return (total / total.mean()).numpy()


@pytest.mark.parametrize(
    ("sampler", "lengths", "updates"),
    [(UniformSampler(), [20] * 30, 60), (UniformSampler(), [4] * 100, 20), (FifoSampler(), [20] * 600, 45)],
    ids=["long episodes", "shorter than a window", "each window once"],
)
def test_every_step_of_an_episode_weighs_the_same(sampler: Sampler, lengths: list[int], updates: int):
    replay = filled(sampler, capacity=50_000, lengths=lengths, learn=LEARN, batch_size=256)
    np.testing.assert_allclose(weights_by_step(replay, lengths[0], updates), 1.0, atol=0.13)
