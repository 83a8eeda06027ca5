"""The world model beside SAC: what it is given and what it is compared with."""

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
from tests.lib.batches import random_batch, small_sac

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
