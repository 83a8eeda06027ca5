"""Curiosity: the bonus by hand, on its own scale, and for every kind of agent."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.core.errors import ModelError
from algorithm.extensions.curiosity import Curiosity, RunningDeviation, forward_error, inverse_error
from tests.batches import context, random_batch, small_sac
from tests.extensions.exploring import (
    MEMORIES,
    SPECS,
    batch_for,
    make_agent,
    only_extension,
    same,
    saved,
    with_garbage,
)

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


def test_the_first_bonus_is_strength_times_error_where_there_is_a_transition(stub):
    sac, curiosity, surprise = stub
    batch = random_batch(8, 3, exists=EXISTS)
    assert (batch.terminated & batch.valid).any() and (~batch.valid).any()
    expected = np.where(batch.valid, 0.5 * errors_by_hand(batch, surprise), 0.0)
    bonus = curiosity.reward_bonus(context(sac, batch))
    assert not bonus.requires_grad
    np.testing.assert_allclose(bonus, expected, rtol=1e-5)
    assert (bonus[batch.terminated & batch.valid] > 0).all()


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
        np.testing.assert_allclose(curiosity.reward_bonus(context(sac, batch)), bonus, rtol=1e-5)
        metrics = sac.update(batch).metrics  # position 0 is learned, the others are for three steps
        seen += error[:, 0].tolist()
        assert metrics["loss/curiosity"].item() == pytest.approx(error[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_mean"].item() == pytest.approx(bonus[:, 0].mean(), rel=1e-5)
        assert metrics["curiosity/bonus_std"].item() == pytest.approx(bonus[:, 0].std(), rel=1e-4)


def test_the_bonus_is_added_once_and_the_batch_stays_as_it_is(stub):
    _, _, surprise = stub
    width = 3 if surprise is forward_error else 2
    batch = random_batch(8, 1)
    before = copy.deepcopy(batch)
    curious = small_sac(extensions=(Curiosity(Stays(width), surprise, 0.5),))
    more = curious.update(batch).metrics["value/target"] - small_sac().update(batch).metrics["value/target"]
    np.testing.assert_allclose(more, 0.5 * errors_by_hand(before, surprise), rtol=1e-4, atol=1e-5)
    for name, value in vars(before).items():
        if name != "obs":
            assert torch.equal(getattr(batch, name), value), name
    assert torch.equal(batch.obs["obs"], before.obs["obs"])


def test_asking_for_td_errors_changes_nothing():
    sac = make_agent(curiosity="FORWARD")
    batch = batch_for(sac)
    sac.update(batch)
    before = saved(sac)
    sac.td_error(batch)
    after = saved(sac)
    assert all(torch.equal(after[k], v) for k, v in before.items() if k != "optim.random.update")


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_been_learned_is_worth_less(kind):
    sac = make_agent(curiosity=kind, learning_rate=0.01)
    batch = batch_for(sac)
    losses = [sac.update(batch).metrics["loss/curiosity"].item() for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_critics_and_policy_get_nothing_from_the_model(kind):
    """With a bonus of 0 everything but the model is what it is without curiosity."""
    plain, curious = make_agent(), make_agent(curiosity=kind, curiosity_strength=0)
    for seed in range(3):
        batch = batch_for(plain, seed=seed)
        plain.update(batch)
        curious.update(batch)
    expected, found = saved(plain), saved(curious)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", SPECS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_kind_of_agent_and_padding_changes_nothing(kind, actions, memory):
    spec = SPECS[actions]
    one, other = (make_agent(spec, memory, curiosity=kind) for _ in range(2))
    for seed in range(2):
        batch = batch_for(one, spec, memory, seed=seed)
        garbage = with_garbage(batch)
        assert not torch.equal(batch.action, garbage.action)
        bonuses = [
            only_extension(sac).reward_bonus(context(sac, b)) for sac, b in ((one, batch), (other, garbage))
        ]
        assert torch.equal(*bonuses) and bonuses[0].shape == batch.reward.shape
        assert (bonuses[0] > 0).equal(batch.valid)
        metrics = one.update(batch).metrics
        other.update(garbage)
        assert {"loss/curiosity", "curiosity/bonus_mean", "curiosity/bonus_std"} <= set(metrics)
    mine, theirs = saved(one), saved(other)
    model = [name for name in mine if "extensions" in name or name.startswith("optim.own")]
    assert len(model) > 6
    assert all(torch.equal(mine[name], theirs[name]) for name in model)
    assert all(torch.isfinite(value.double()).all() for value in mine.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_on_bit_for_bit(kind):
    straight, resumed = make_agent(curiosity=kind), make_agent(curiosity=kind, seed=5)
    for seed in range(3):
        straight.update(batch_for(straight, seed=seed))
    assert not same(saved(straight), saved(resumed))
    resumed.load_tensors(copy.deepcopy(straight.tensors()), straight.updates)
    assert only_extension(resumed).deviation.count == 24
    for sac in (straight, resumed):
        sac.update(batch_for(sac, seed=7))
    assert same(saved(straight), saved(resumed))


def test_a_deviation_that_is_observed_is_never_0_nor_less_than_nothing():
    deviation = RunningDeviation()
    deviation.observe(torch.full((2, 2), 4.0), torch.ones(2, 2, dtype=torch.bool))
    assert deviation().item() == 1.0
    deviation.observe(torch.full((2, 2), 1e19), torch.ones(2, 2, dtype=torch.bool))
    assert deviation().item() == pytest.approx(5e18)


NN = """
import torch
import algorithm.nn as m
from torch import nn


class ModelForwardDynamic(nn.Module):
    def __init__(self, spec, state_size):
        super().__init__()
        self.layer = nn.Linear(state_size + spec.action.size, state_size + {wrong})

    def forward(self, state, action):
        return self.layer(torch.cat([state, action], -1))
"""


def test_a_task_may_bring_its_own_model_and_a_wrong_shape_is_named(tmp_path):
    file = tmp_path / "nn.py"
    file.write_text(NN.format(wrong=0))
    sac = make_agent(curiosity="FORWARD", file=file)
    sac.update(batch_for(sac))
    assert isinstance(only_extension(sac).own[0].layer, nn.Linear)
    file.write_text(NN.format(wrong=1))
    with pytest.raises(ModelError) as error:
        make_agent(curiosity="FORWARD", file=file)
    assert "ModelForwardDynamic.forward returned a wrong shape" in str(error.value)
    assert "expected (2, 3, 8), got (2, 3, 9)" in error.value.why and str(file) in str(error.value.where)
    file.write_text(NN.format(wrong=0).replace("action], -1", "action], 0"))
    with pytest.raises(ModelError, match=r"ModelForwardDynamic\.forward failed"):
        make_agent(curiosity="FORWARD", file=file)
