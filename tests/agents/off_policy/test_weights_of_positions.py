"""How much each step of an episode weighs in what is learned from windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.off_policy.values import ScalarValues, smallest
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import FifoSampler, Sampler, UniformSampler
from tests.lib.batches import Sac, small_sac
from tests.lib.oracles_replay import VECTOR, make_segment

BATCH = 256


def make_sac(learn: int) -> Sac:
    return small_sac(spec=VECTOR, seq_encoder="RNN", rep={"rnn_n": 4}, burn_in_step=0, learn_step=learn)


def spied(sac: Sac) -> list[tuple[str, torch.Tensor]]:
    """What each update's losses weigh a learned position with, [B, T], by loss."""
    found: list[tuple[str, torch.Tensor]] = []
    losses = sac.objective.losses

    class Watched(ScalarValues):
        def loss(self, taken, target):
            error = torch.zeros_like(target.y).requires_grad_()  # Q − y = 1
            one = replace(target, y=0 * target.y)
            (grad,) = torch.autograd.grad(super().loss(1 + error.unsqueeze(0), one), error)
            found.append(("critic", grad))
            return super().loss(taken, target)

    def policy(logp, choice, q, value, share):
        found.append(("policy", share.view(BATCH, -1)))
        return losses(logp, choice, q, value, share)

    sac.values = Watched(VECTOR.action, smallest)
    sac.objective.losses = policy
    return found


def filled(sampler: Sampler, learn: int, lengths: list[int]) -> ReplayBuffer:
    replay = ReplayBuffer(
        VECTOR, capacity=50_000, batch_size=BATCH, learn=learn, carry_shape=(1, 4), sampler=sampler
    )
    for episode, length in enumerate(lengths):
        replay.add(
            make_segment(
                VECTOR,
                stream=0,
                episode=episode,
                start=0,
                length=length,
                truncated=True,
                carry_shape=(1, 4),
            )
        )
    return replay


def weights_by_step(replay: ReplayBuffer, learn: int, length: int, updates: int) -> dict[str, np.ndarray]:
    """Mean weight of each step of an episode, relative to the mean of all steps."""
    sac = make_sac(learn)
    found, total = spied(sac), {name: torch.zeros(length) for name in ("critic", "policy")}
    for _ in range(updates):
        batch = replay.sample()
        sac.update(batch)
        at, valid = batch.step[:, :learn], batch.valid[:, :learn]
        for name, weight in found:
            assert not weight[~valid].any()
            total[name].index_add_(0, at[valid], weight[valid])
        found.clear()
    return {name: (sums / sums.mean()).numpy() for name, sums in total.items()}


@pytest.mark.parametrize(
    ("sampler", "learn", "lengths", "updates"),
    [
        (UniformSampler(), 10, [20] * 30, 60),
        (UniformSampler(), 10, [4] * 100, 20),
        (FifoSampler(), 10, [20] * 600, 45),
    ],
    ids=["long episodes", "shorter than a window", "each window once"],
)
def test_every_step_of_an_episode_weighs_the_same(sampler, learn, lengths, updates):
    replay = filled(sampler, learn, lengths)
    for name, weights in weights_by_step(replay, learn, lengths[0], updates).items():
        np.testing.assert_allclose(weights, 1.0, atol=0.13, err_msg=name)
