"""The world model beside SAC: what it is given, what it is compared with, whom its gradient reaches."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.extensions.base import Context
from algorithm.extensions.prediction import Prediction
from algorithm.nn.layers.images import UNIT, image_layouts, to_planes
from algorithm.nn.models.world import ImageDecoder
from tests.lib.batches import random_batch, small_sac, small_windows

MIXED = AgentSpec(
    ObsSpec(
        ("v", "i", "c", "s", "b"),
        ((3,), (3, 9, 11), (2,), (), (2, 2)),
        ("float32", "uint8", "int64", "float32", "int8"),
        ((), (), (2, 3), (), ()),
    ),
    ActionSpec((2, 3), 2),
)
learner = partial(small_sac, use_prediction=True, rep_depth=1)


class Script(nn.Module):
    """Answers with a function and keeps what it was asked."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.asked = answer, []

    def forward(self, *args):
        self.asked.append(args)
        return self.answer(*args)


def counting_context(k=2, t=3, n=2):
    """Two windows whose state, observation, action and reward say which row and step they are of.

    Row 0 begins at its second token and is whole; row 1 ends at its fifth. What does not exist is 1000.
    """
    w = k + t + n - 1
    step = torch.arange(w + 1.0).repeat(2, 1) + torch.tensor([[10.0], [20.0]])
    exists = torch.ones(2, w + 1, dtype=torch.bool)
    exists[0, 0] = exists[1, 5:] = False
    valid = exists[:, :-1] & exists[:, 1:]

    def of(x, there):
        return torch.where(there, x, 1000.0).unsqueeze(-1)

    spec = AgentSpec(ObsSpec(("o",), ((1,),), ("float32",)), ActionSpec(continuous=1))
    batch = replace(
        random_batch(2, w, spec=spec),
        obs={"o": of(step + 0.5, exists)},
        action=of(step[:, :-1] * 2, valid),
        reward=of(step[:, :-1] * 3, valid).squeeze(-1),
        obs_valid=exists,
        valid=valid,
    )
    state = of(step, exists).requires_grad_()
    following = of(step[:, k + 1 :], exists[:, k + 1 :]).requires_grad_()
    states = SimpleNamespace(online=state, target_following=following)
    return spec, Context(batch=batch, obs=batch.obs, states=states, burn_in=k, learn=t, networks=None)


def test_losses_by_hand():
    """Row 0 has three transitions, row 1 two: tokens 22 → 23 → 24. Everything is off by one and more."""
    spec, ctx = counting_context()
    networks = (
        Script(lambda s, a, obs: ((s + a) / 3 - 1.0, torch.zeros_like(s))),  # two too small
        Script(lambda s, a: (s + a).squeeze(-1) + torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 9.0]])),
        Script(lambda s: {"o": s + 1.5}),
    )
    losses = Prediction(spec.obs, *networks, kl=0.5, use_extra_data=False).auxiliary_losses(ctx)
    var, mean = 0.55**2, [np.array([11.0, 12.0, 13.0]), np.array([21.0, 22.0])]
    nll = 0.5 * 4 / var + math.log(0.55) + 0.5 * math.log(2 * math.pi)
    kl = np.mean([(0.5 * (m**2 + var - 1) - math.log(0.55)).mean() for m in mean])
    assert losses["transition"].item() == pytest.approx(nll + 0.5 * kl, rel=1e-5)
    assert losses["reward"].item() == pytest.approx(((1 + 4 + 0) / 3 + (9 + 1) / 2) / 2)
    assert losses["observation"].item() == pytest.approx(1.0)
    assert networks[0].asked[0][2] == {}  # without extra data the observations are not even handed over


@pytest.mark.parametrize("kind", [None, "RNN", "ATTN"])
def test_neither_target_nor_policy_gets_a_gradient(kind):
    sac = learner(spec=MIXED, seq_encoder=kind)
    losses = sac.extensions[0].auxiliary_losses(sac.encode(small_windows(sac, MIXED)))
    for step in (sac.critic_optimiser, sac.joint_optimiser):
        step.gradient.zero_()
    sum(losses.values()).backward()
    assert all(p.grad.any() for p in sac.extensions[0].joint.parameters() if p.dim() > 1)
    assert sum(p.grad.any().item() for p in sac.model.rep.parameters()) > 0
    assert not any(p.grad.any() for p in sac.model.q.parameters())
    others = (sac.model.target_rep, sac.model.target_q, sac.model.policy)
    assert all(p.grad is None or not p.grad.any() for net in others for p in net.parameters())


@pytest.mark.parametrize("scaled", [True, False])
def test_rewards_are_predicted_on_the_scale_of_values(scaled):
    """With reward_scaling their unit does not decide how much the encoder listens to their model."""
    losses = {}
    for unit in (1.0, 1e4):
        sac = learner(reward_scaling=scaled)
        batch = small_windows(sac)
        batch = replace(batch, reward=batch.reward * unit)
        sac.return_scale.observe(SimpleNamespace(rewards=lambda unit=unit: [(0, 0, [unit, -3 * unit], True)]))
        losses[unit] = sac.extensions[0].auxiliary_losses(sac.encode(batch))["reward"].item()
    assert (losses[1e4] == pytest.approx(losses[1.0], rel=1e-3)) is scaled


BLIND = """
import torch
import algorithm.nn as m


class ModelRep(m.Rep):
    def __init__(self, spec, **sizes):
        super().__init__(spec)
        self.net = torch.nn.Linear(2, 4)

    def forward(self, obs, prev_action, carry, valid):
        return self.net(obs["seen"]), carry
"""


@pytest.mark.parametrize("extra", [True, False])
def test_only_the_transition_model_sees_what_the_encoder_leaves_out(tmp_path, extra):
    (tmp_path / "nn.py").write_text(BLIND)
    spec = AgentSpec(ObsSpec(("seen", "secret"), ((2,), (3,)), ("float32",) * 2), ActionSpec(continuous=1))
    sac = learner(spec=spec, file=tmp_path / "nn.py", use_extra_data=extra)
    batch = small_windows(sac, spec)
    losses = {}
    for secret in (0.0, 1.0):
        other = replace(batch, obs={**batch.obs, "secret": torch.full_like(batch.obs["secret"], secret)})
        losses[secret] = sac.extensions[0].auxiliary_losses(sac.encode(other))
    assert (losses[0.0]["transition"] != losses[1.0]["transition"]).item() == extra
    assert losses[0.0]["reward"] == losses[1.0]["reward"]
    assert losses[0.0]["observation"] != losses[1.0]["observation"]  # of which the state should know


def test_observations_are_compared_as_networks_see_them():
    """Bytes from 0 to 1, vectors normalised."""
    sac = learner(spec=MIXED, use_normalization=True)
    sac.model.normaliser.observe(
        {name: x.flatten(0, 1).numpy() for name, x in small_windows(sac, MIXED).obs.items()}
    )
    ctx = sac.encode(small_windows(sac, MIXED))
    here = {name: x[:, ctx.learned] for name, x in ctx.obs.items()}
    exact = {**here, "i": here["i"] / 255, "b": here["b"].float()}
    exact["c"] = (
        torch.cat([nn.functional.one_hot(here["c"][..., i], n) for i, n in enumerate((2, 3))], -1) * 50.0
    )
    extension = sac.extensions[0]
    extension.joint[2] = Script(lambda s: exact)
    assert extension.auxiliary_losses(ctx)["observation"].item() == pytest.approx(0.0, abs=1e-6)
    assert here["v"].abs().max() <= 5.0 and not torch.equal(ctx.obs["v"], ctx.batch.obs["v"])


@pytest.mark.parametrize(("shape", "dtype", "stack"), [
    ((3, 40, 40), "uint8", 1), ((20, 33, 3), "uint8", 1), ((4, 9, 13), "float32", 4), ((8, 8), "uint8", 1),
    ((2, 9, 13, 3), "uint8", 2),
])  # fmt: skip
def test_pictures_have_the_shape_in_which_they_are_observed(shape, dtype, stack):
    """Decoded planes are put where the encoder takes them from."""
    layout = image_layouts(ObsSpec(("i",), (shape,), (dtype,), ((),), (stack,)))["i"]
    decoder = ImageDecoder(6, layout)
    assert decoder(torch.randn(2, 3, 6)).shape == (2, 3, *shape)
    picture = torch.rand(2, 3, *shape)
    decoder.net = Script(
        lambda features: nn.functional.pad(to_planes(layout.arrange(picture), UNIT), (0, 5, 0, 2))
    )
    assert torch.equal(decoder(torch.randn(2, 3, 6)), picture)
