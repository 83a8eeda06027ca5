"""A task without an ``nn.py`` gets networks for whatever it sees and does."""

import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn import ModelRep, conv, image_layouts
from algorithm.nn.loader import load_networks

VECTORS = ObsSpec(("a", "b"), ((3,), (2, 2)), ("float32", "float32"))
EVERYTHING = ObsSpec(
    names=("small", "goal", "large", "gear", "cards", "doors", "ram", "film", "open", "scalar"),
    shapes=((12, 16, 3), (2,), (4, 84, 84), (), (3,), (2, 3), (5,), (2, 9, 10, 1), (1,), ()),
    dtypes=("uint8", "float32", "uint8", "uint8", "int16", "int8", "uint8", "float32", "bool", "float32"),
    categories=((), (), (), (4,), (2, 3, 300), (), (), (), (), ()),
    stacks=(1, 1, 4, 1, 1, 1, 1, 1, 1, 1),
)
EVERYTHING_ELSE = 2 + 4 + (2 + 3 + 300) + 6 + 5 + 1 + 1
DISCRETE, HYBRID = ActionSpec(branches=(3, 2)), ActionSpec(branches=(4,), continuous=2)


@pytest.mark.parametrize(
    ("obs", "action", "rep", "policy", "width"),
    [
        (VECTORS, ActionSpec(continuous=2), {}, {}, 7),
        (VECTORS, DISCRETE, {"dense_n": 8, "dense_depth": 2}, {"noisy": True, "dense_n": 8}, 8),
        (EVERYTHING, HYBRID, {}, {"noisy": True}, EVERYTHING_ELSE + 3 * 256),
        (EVERYTHING, DISCRETE, {"dense_n": 8, "dense_depth": 2, "random_shift": 2}, {}, 8),
    ],
)
def test_every_kind_of_observation_and_action_passes_the_dry_run(obs, action, rep, policy, width):
    assert load_networks(AgentSpec(obs, action), None, NETWORKS, rep=rep, policy=policy).state_size == width


@pytest.mark.parametrize("kind", [None, "simple", "resnet"])
def test_each_image_gets_an_encoder_for_its_size_or_the_one_that_is_asked_for(kind):
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=8, conv=kind, random_shift=3)
    assert rep.image_names == ("small", "large", "film")
    for encoder, (name, own) in zip(rep.images, image_layouts(EVERYTHING).items(), strict=True):
        expected = kind or ("nature" if name == "large" else "simple")
        assert encoder.conv.out_size == conv(own, expected).out_size and encoder.shift.pad == 3


def test_every_observation_changes_a_part_of_the_state_of_its_own():
    """Numbers as they are, in the order of the observations."""
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=8).eval()
    obs = {name: torch.from_numpy(value) for name, value in EVERYTHING.zeros(1, 1).items()}
    fixed = (torch.zeros(1, 1, 6), torch.zeros(1, 0), torch.ones(1, 1, dtype=torch.bool))
    zero, carry = rep(obs, *fixed)
    assert zero.shape == (1, 1, EVERYTHING_ELSE + 3 * 8) and carry is fixed[1]
    seen = torch.zeros_like(zero, dtype=torch.int)
    for name, shape, _ in EVERYTHING.items():
        # An image is not made uniformly brighter: a layer behind it would normalise that away.
        change = torch.zeros(shape).flatten()
        change[: max(1, len(change) // 2)] = 1
        moved, _ = rep({**obs, name: (change.view(obs[name].shape)).to(obs[name].dtype)}, *fixed)
        assert (moved != zero).any(), name
        seen += moved != zero
    assert seen.max() == 1, "a part of the state depends on one observation only"
