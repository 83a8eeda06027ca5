"""Options of the learner that say how often, from what and how far a step goes."""

from __future__ import annotations

import pytest
import torch

from algorithm.agents.off_policy.description import encoder_work, update_cost
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.sac.config import SacConfig
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.layers.mlp import mlp
from algorithm.nn.learning.optimiser import BETA_1, BETA_2, EPSILON, FlatAdam
from algorithm.nn.loader import load_networks
from tests.batches import SMALL, Sac, random_batch, small_sac, weights

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
    assert sac.critics._values.reduce(q).tolist() == least
    # REDQ: the policy climbs the mean of all where targets have a subset
    assert sac._climbed(q).tolist() == (least if drawn == 3 else [3.0, 4.0])


# ---- weight decay and the encoder's learning rate


def test_matrices_decay_and_nothing_else():
    sac = small_sac(spec=HYBRID, rep_depth=1, weight_decay=0.5, learning_rate=0.1)
    plain = small_sac(spec=HYBRID, rep_depth=1, learning_rate=0.1)
    for one in (sac, plain):  # without a gradient Adam leaves everything
        for adam in (one.critics.step, one._policy_step):
            adam.gradient.zero_()
            adam.move()
    for name, value in weights(plain).items():
        if name.startswith(("model.rep", "model.q.", "model.policy")) and name.endswith("weight"):
            value = value * (1 - 0.1 * 0.5)
        torch.testing.assert_close(weights(sac)[name], value, msg=name)


@pytest.mark.parametrize("beta", [BETA_1, 0.5])
def test_decays_are_those_of_adamw(beta):
    torch.manual_seed(0)
    own, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    other.load_state_dict(own.state_dict())
    ours = FlatAdam([own], 0.01, beta_1=beta, weight_decay=0.1)
    theirs = torch.optim.AdamW(
        [{"params": [other.weight], "weight_decay": 0.1}, {"params": [other.bias], "weight_decay": 0.0}],
        0.01,
        betas=(beta, BETA_2),
        eps=EPSILON,
    )
    for _ in range(5):
        x = torch.randn(8, 4)
        ours.step(own(x).square().mean())
        theirs.zero_grad()
        other(x).square().mean().backward()
        theirs.step()
    torch.testing.assert_close(own.weight, other.weight)
    torch.testing.assert_close(own.bias, other.bias)


def test_the_encoder_has_its_own_rate_and_one_count_is_kept():
    slow, plain = (
        small_sac(rep_depth=1, learning_rate=0.01, encoder_learning_rate=own) for own in (0.001, None)
    )
    batch = random_batch()
    before = weights(plain)
    for sac in (slow, plain):
        sac.update(batch)
    for name, value in weights(slow).items():
        step, usual = value - before[name], weights(plain)[name] - before[name]
        if name.startswith("model.rep."):
            torch.testing.assert_close(step, usual / 10, atol=1e-6, rtol=1e-3)
        elif name.startswith("model.q."):
            assert torch.equal(step, usual), name
    assert counts(slow)[0] == counts(plain)[0] == 1


@pytest.mark.parametrize(
    ("keys", "norm", "said"),
    [
        # q = 256 (23 + 256 + 1) = 71,680 and p = 256 (17 + 256 + 12) = 72,960; plain is 12 q + 4 p
        ({}, None, None),
        ({"policy_update_per_step": 3}, "layer", "an update takes 0.71 times"),  # 28/3 q + 2 p
        ({"policy_update_per_step": 3, "use_target_network": False}, "batch", None),  # 40/3 q + 2 p: 0.96
        ({}, "batch", "an update takes 1.50 times"),  # 20 q + 4 p
        ({"n_step": 3}, None, "an update takes 1.38 times"),  # 16 q + 6 p
        ({"n_step": 3, "use_n_step_is": False}, None, "an update takes 1.13 times"),  # 12 q + 6 p
        ({"replay_ratio": 20.0, "batch_size": 128}, None, "20 updates a step take 10 times"),
        ({"ensemble_q_num": 10, "ensemble_q_sample": 2}, None, "an update takes 3.49 times"),  # 52 q + 4 p
    ],
)
def test_what_an_update_costs_by_the_sizes_of_the_layers(keys, norm, said):
    spec = AgentSpec(obs={}, action=ActionSpec(continuous=6))
    critic = mlp(23, [256, 256], 1, norm=norm)
    policy = mlp(17, [256, 256], 12, norm=norm)
    rows = update_cost(spec, SacConfig(**{"n_step": 1, **keys}), 17, critic, policy, encoder=0)
    assert [text.split(" the ")[0] for _, text in rows] == ([said] if said else [])


SEEN = ObsSpec(("camera", "obs"), ((3, 20, 20), (7,)), ("uint8", "float32"))


@pytest.mark.parametrize(
    ("rep", "kind", "work"),
    [
        # Kernels of 16 × 3 × 3 × 3 at 10 × 10 places and 32 × 16 × 3 × 3 at 5 × 5, 800 and 17 numbers to 10
        ({"dense_n": 10, "dense_depth": 1}, None, 432 * 100 + 4608 * 25 + 8000 + 170),
        # three gates of 17 + 2 + 12 numbers to 12 units
        ({"dense_n": 10, "rnn_n": 12}, "RNN", 432 * 100 + 4608 * 25 + 8000 + 3 * 31 * 12),
        ({}, None, 0),
    ],
)
def test_the_multiplications_of_an_encoder(rep, kind, work):
    spec = AgentSpec(SEEN if rep else SMALL.obs, ActionSpec(continuous=2))
    networks = load_networks(spec, None, NETWORKS, seq_encoder=kind, rep=rep)
    assert encoder_work(networks.rep, spec) == work


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        # 12 q + 4 p = 1.152e6, three passes of the learned token and two of the following one: 6.152e6
        ({}, "5.34 times the multiplications of one of plain SAC (2 × 256 units, 256 rows), 81% of them to"),
        ({"use_target_network": False}, "4.35 times"),  # 10 q + 4 p + 4e6
        # of 4 learned among 7 tokens, each: (7 + 8 + 7) / 4 e6
        ({"seq_encoder": "RNN", "burn_in_step": 2, "learn_step": 4}, "23 times"),
        ({"seq_encoder": "ATTN", "burn_in_step": 2, "learn_step": 4}, "28 times"),  # (7 + 14 + 7) / 4 e6
    ],
)
def test_what_an_update_costs_with_an_encoder(keys, said):
    spec = AgentSpec(obs={}, action=ActionSpec(continuous=6))
    critic, policy = mlp(23, [256, 256], 1), mlp(17, [256, 256], 12)
    config = SacConfig(**{"n_step": 1, "batch_size": 256, **keys})
    ((_, text),) = update_cost(spec, config, 17, critic, policy, encoder=1_000_000)
    assert said in text


def test_every_optimiser_has_the_same_mean_of_gradients():
    sac = small_sac(adam_beta_1=0.5)
    sac.update(random_batch())
    for adam in sac.optimisers().values():
        mean, square = (adam.tensors()[name] for name in ("exp_avg", "exp_avg_sq"))
        torch.testing.assert_close(mean.square() / 0.25, square / (1.0 - BETA_2), rtol=1e-4, atol=1e-12)
