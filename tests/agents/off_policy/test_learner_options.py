"""Options of the learner that say how often, from what and how far a step goes."""

from __future__ import annotations

import pytest
import torch

from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.nn.learning.optimiser import BETA_2
from tests.lib.batches import SMALL, Sac, random_batch, small_sac, weights

HYBRID = AgentSpec(SMALL.obs, ActionSpec(branches=(2, 3), continuous=2))


def counts(sac: Sac) -> tuple[float, float, float]:
    """Steps that critics, policy and temperature have taken."""
    return tuple(float(adam.tensors()["step"]) for adam in list(sac.optimisers().values())[:3])


# ---- a delayed policy


def test_the_policy_takes_every_third_step():
    sac = small_sac(policy_update_per_step=3)
    named = []
    for step in range(10):
        before = sac._generator.get_state()
        metrics = sac.update(random_batch(seed=step)).metrics
        named.append("loss/policy" in metrics and "policy/entropy_c" in metrics)
        assert not torch.equal(sac._generator.get_state(), before)  # the targets' actions
    assert counts(sac) == (10, 3, 3)
    assert named == [(step + 1) % 3 == 0 for step in range(10)]


# ---- what is taken of several critics


@pytest.mark.parametrize("drawn", [2, 3])
@pytest.mark.parametrize("reduce", ["min", "mean"])
def test_targets_and_policy_take_the_minimum_or_the_mean(reduce, drawn):
    sac = small_sac(ensemble_q_num=3, ensemble_q_sample=drawn, ensemble_q_reduce=reduce)
    q = torch.tensor([[1.0, 5.0], [2.0, 3.0], [6.0, 4.0]])
    least = [1.0, 3.0] if reduce == "min" else [3.0, 4.0]
    assert sac.values.reduce(q).tolist() == least
    # REDQ: the policy climbs the mean of all where targets have a subset
    assert sac.policy_reduce(q).tolist() == (least if drawn == 3 else [3.0, 4.0])


# ---- weight decay and the encoder's learning rate


def test_matrices_decay_and_nothing_else():
    sac = small_sac(spec=HYBRID, rep_depth=1, weight_decay=0.5, learning_rate=0.1)
    plain = small_sac(spec=HYBRID, rep_depth=1, learning_rate=0.1)
    for one in (sac, plain):  # without a gradient Adam leaves everything
        for adam in (one.critic_optimiser, one.policy_optimiser):
            adam.gradient.zero_()
            adam.step_along(adam.gradient)
    for name, value in weights(plain).items():
        if name.startswith(("model.rep", "model.q.", "model.policy")) and name.endswith("weight"):
            value = value * (1 - 0.1 * 0.5)
        torch.testing.assert_close(weights(sac)[name], value, msg=name)


def test_every_optimiser_has_the_same_mean_of_gradients():
    sac = small_sac(adam_beta_1=0.5)
    sac.update(random_batch())
    for adam in sac.optimisers().values():
        mean, square = (adam.tensors()[name] for name in ("exp_avg", "exp_avg_sq"))
        torch.testing.assert_close(mean.square() / 0.25, square / (1.0 - BETA_2), rtol=1e-4, atol=1e-12)
