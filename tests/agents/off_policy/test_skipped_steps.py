"""A step along a gradient that is not finite is not taken, and nothing of it stays."""

import copy

import pytest
import torch
from torch import nn

from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.sac import SacObjective
from algorithm.nn.learning.optimiser import FlatAdam
from tests.lib.batches import SMALL, random_batch, small_sac, weights

BAD = [float("nan"), float("inf"), -float("inf"), 1e30]  # the last one is finite, its square is not


def everything(adam: FlatAdam) -> list[torch.Tensor]:
    return [value.clone() for value in (adam.flat.data, *adam.tensors().values())]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.fault("F11")
@pytest.mark.parametrize("options", [{}, {"max_norm": 1.0, "weight_decay": 0.1}])
def test_what_follows_is_as_if_the_skipped_steps_had_never_been(options):
    straight = nn.Linear(3, 2)
    disturbed = copy.deepcopy(straight)
    one, other = (FlatAdam([layer], 0.01, **options) for layer in (straight, disturbed))
    for step in range(12):
        x = torch.full((1, 3), float(step))
        one.step(straight(x).square().sum())
        other.step(disturbed(x).square().sum() * BAD[step % 4])
        other.step(disturbed(x).square().sum())
    assert same(everything(one), everything(other)) and other.skipped.item() == 12


@pytest.mark.fault("F11")
@pytest.mark.parametrize(("gradient", "taken"), [(1.8e19, True), (1.9e19, False)])
def test_the_limit_is_where_the_square_overflows(gradient, taken):
    """√(3.4e38) = 1.84e19. Just below, the second moment is 0.001 · 3.24e38."""
    weight = nn.Linear(1, 1, bias=False)
    adam = FlatAdam([weight], 0.1)
    before = weight.weight.item()
    adam.step(weight.weight.sum() * gradient)
    assert (adam.skipped.item() == 0) == taken
    assert all(torch.isfinite(value).all() for value in everything(adam))
    assert weight.weight.item() == pytest.approx(before - 0.1 * taken)
    if taken:
        assert adam.tensors()["exp_avg_sq"].item() == pytest.approx(3.24e35)


def groups(sac) -> dict[str, list[torch.Tensor]]:
    return {name: everything(adam) for name, adam in sac.optimisers().items()}


@pytest.mark.fault("F11")
@pytest.mark.parametrize("options", [{}, {"n_step": 3}, {"rep_depth": 1}, {"max_grad_norm": 1.0}])
def test_an_extreme_reward_skips_the_critics_step_and_only_that(options):
    sac, batch = small_sac(**options), random_batch(8, options.get("n_step", 1))
    sac.update(batch)
    before, counted = groups(sac), sac.skipped
    batch.reward[3] = 1e30
    result = sac.update(batch)
    after = groups(sac)
    assert counted == 0 and sac.skipped == 1
    assert same(before["critic"], after["critic"]) and not same(before["policy"], after["policy"])
    assert all(torch.isfinite(value).all() for value in weights(sac).values())
    assert torch.isfinite(result.priority).all() and result.priority[3] > 1e29


@pytest.mark.fault("F11")
def test_extreme_observations_skip_all_and_the_targets_stay_finite():
    sac, batch = small_sac(tau=0.5), random_batch(8)
    batch.obs["obs"][2] = batch.reward[2] = 3e38
    before = groups(sac)
    result = sac.update(batch)
    after = groups(sac)
    assert sac.skipped == 3 and all(same(before[name], after[name]) for name in before)
    assert not torch.isfinite(result.priority).all()
    assert all(torch.isfinite(value).all() for value in weights(sac).values())
    assert sac.updates == 1


@pytest.mark.fault("F11")
def test_an_extensions_loss_that_is_not_finite_costs_its_own_step_alone():
    sac = small_sac(use_rnd=True)
    sac.update(random_batch())
    with torch.no_grad():
        for value in sac.extensions[0].fixed.parameters():
            value.fill_(float("nan"))
    before = groups(sac)
    sac.update(random_batch(seed=1))
    after = groups(sac)
    assert sac.skipped == 1 and {name for name in before if same(before[name], after[name])} == {"own"}


@pytest.mark.fault("F11")
def test_rolling_back_takes_networks_and_optimisers_but_no_counters():
    sac = small_sac()
    sac.update(random_batch())
    saved = copy.deepcopy(sac.tensors())
    then = groups(sac)
    for step in range(3):
        sac.update(random_batch(seed=step))
    random = sac._generator.get_state()
    sac.roll_back(saved)
    assert all(torch.equal(value, saved["model"][name]) for name, value in weights(sac).items())
    now = groups(sac)
    assert all(same(then[name], now[name]) for name in then)
    assert sac.updates == 4 and torch.equal(sac._generator.get_state(), random)
    assert not torch.equal(random, saved["optim"]["random.update"])


def test_saturation_is_the_share_of_components_at_the_end_of_their_range():
    """Three of six: 0.995, −1 and −0.991; 0.99 itself is not beyond."""
    objective = SacObjective(SMALL.action, SacConfig())
    u = torch.tensor([[0.995, 0.0], [-1.0, 0.989], [-0.991, 0.5]], requires_grad=True)
    found = objective.metrics(u, torch.zeros(3), None)["policy/saturation"]
    assert found.float().mean().item() == 0.5 and not found.requires_grad
    assert not objective.metrics(torch.full((1, 1), 0.99), torch.zeros(1), None)["policy/saturation"].any()
