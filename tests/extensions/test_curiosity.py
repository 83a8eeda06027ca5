"""Curiosity: the bonus by hand, on its own scale, and for every kind of agent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.extensions.curiosity import Curiosity, RunningDeviation, forward_error, inverse_error
from tests.batches import context, random_batch, small_sac, small_windows

make_agent = partial(small_sac, rep_depth=1, n_step=2)
KINDS = ["FORWARD", "INVERSE"]


class Stays(nn.Module):
    """Predicts the first numbers of the first state, whatever comes second; its parameter has no effect."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.weight = width, nn.Parameter(torch.ones(()))

    def forward(self, state: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return state[..., : self.width] + 0.0 * self.weight


def squared(x):
    return 0.5 * (x.double() ** 2).sum(-1).numpy()


def errors_by_hand(batch, surprise):
    """[B, W] of a model that says that nothing changes, or that a = (s_0, s_1)."""
    obs = batch.obs["obs"]
    if surprise is forward_error:
        return squared(obs[:, :-1] - obs[:, 1:])
    return squared(obs[:, :-1, :2] - batch.action)


@pytest.fixture(params=[(forward_error, 3), (inverse_error, 2)], ids=KINDS)
def stub(request):
    """A learner with curiosity that never learns anything, and how it is surprised."""
    surprise, width = request.param
    curiosity = Curiosity(Stays(width), surprise, 0.5)
    return small_sac(extensions=(curiosity,), n_step=3), curiosity, surprise


EXISTS = torch.tensor([1, 2, 3, 3, 3, 2, 3, 3])


def test_where_the_next_token_is_missing_there_is_no_bonus(stub):
    sac, curiosity, _ = stub
    batch = random_batch(8, 3)
    batch.obs_valid[2, 2] = False
    bonus = curiosity.reward_bonus(context(sac, batch))
    assert bonus[2, 1] == 0 and (bonus[2, [0, 2]] > 0).all()


def test_the_running_deviation_is_that_of_all_learned_errors_so_far(stub):
    sac, curiosity, surprise = stub
    seen = []
    for seed in range(4):
        batch = random_batch(8, 3, seed=seed, exists=EXISTS)
        before = np.std(seen) if seen else 1.0
        assert curiosity.deviation().item() == pytest.approx(before, rel=1e-5)
        error = errors_by_hand(batch, surprise)
        bonus = np.where(batch.valid, 0.5 * error / before, 0.0)
        found = curiosity.reward_bonus(context(sac, batch))
        np.testing.assert_allclose(found, bonus, rtol=1e-5)
        assert not found.requires_grad and (found[batch.terminated & batch.valid] > 0).all()
        metrics = sac.update(batch).metrics  # position 0 is learned, the others are for three steps
        seen += error[:, 0].tolist()
        assert metrics["loss/curiosity"].item() == pytest.approx(error[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_mean"].item() == pytest.approx(bonus[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_std"].item() == pytest.approx(bonus[:, 0].std(), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_been_learned_is_worth_less(kind):
    sac = make_agent(curiosity=kind, learning_rate=0.01)
    batch = small_windows(sac)
    losses = [sac.update(batch).metrics["loss/curiosity"].item() for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


def test_a_deviation_that_is_observed_is_never_0_nor_less_than_nothing():
    deviation = RunningDeviation()
    deviation.observe(torch.full((2, 2), 4.0), torch.ones(2, 2, dtype=torch.bool))
    assert deviation().item() == 1.0
    deviation.observe(torch.full((2, 2), 1e19), torch.ones(2, 2, dtype=torch.bool))
    assert deviation().item() == pytest.approx(5e18)
