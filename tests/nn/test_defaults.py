"""A task without an ``nn.py`` gets networks for whatever it sees and does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.layers.conv import conv
from algorithm.nn.layers.encode import ImageEncoder
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.loader import load_networks
from algorithm.nn.models.defaults import ModelRep

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


def encode(rep: ModelRep, obs: ObsSpec, lead: tuple[int, int] = (2, 3)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    values = {
        name: torch.randint(0, 2, (*lead, *shape), generator=generator).to(getattr(torch, dtype))
        for name, shape, dtype in obs.items()
    }
    state, _ = rep(values, torch.zeros(*lead, 1), torch.zeros(lead[0], 0), torch.ones(lead, dtype=torch.bool))
    return state


def test_vectors_pass_as_they_are():
    rep = ModelRep(AgentSpec(VECTORS, HYBRID))
    assert list(rep.parameters()) == [] and list(rep.buffers()) == []
    obs = {"a": torch.rand(2, 3, 3), "b": torch.rand(2, 3, 2, 2)}
    state, carry = rep(obs, torch.zeros(2, 3, 6), torch.zeros(2, 0), torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(state, torch.cat([obs["a"], obs["b"].flatten(2)], -1))
    assert carry.shape == (2, 0)


@pytest.mark.parametrize("action", [ActionSpec(continuous=2), DISCRETE, HYBRID], ids=str)
@pytest.mark.parametrize("rep", [{}, {"dense_n": 8, "dense_depth": 2, "random_shift": 2}], ids=str)
@pytest.mark.parametrize("policy", [{}, {"noisy": True, "dense_n": 8}], ids=str)
@pytest.mark.parametrize("obs", [VECTORS, EVERYTHING], ids=["vectors", "everything"])
def test_every_kind_of_observation_and_action_passes_the_dry_run(obs, action, rep, policy):
    networks = load_networks(AgentSpec(obs, action), None, NETWORKS, rep=rep, policy=policy)
    images, vectors = (3, EVERYTHING_ELSE) if obs is EVERYTHING else (0, 7)
    width = rep.get("dense_n", 256)
    assert networks.state_size == (width if rep else vectors + images * width)


def test_each_image_gets_an_encoder_for_its_size():
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID))
    kinds = {"small": "simple", "large": "nature", "film": "simple"}
    assert rep.image_names == tuple(kinds)
    for encoder, (name, kind) in zip(rep.images, kinds.items(), strict=True):
        assert encoder.conv.out_size == conv(image_layouts(EVERYTHING)[name], kind).out_size


@pytest.mark.parametrize("kind", ["simple", "resnet"])
def test_the_kind_of_convolutions_is_a_key(kind):
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=8, conv=kind)
    expected = [conv(layout, kind).out_size for layout in image_layouts(EVERYTHING).values()]
    assert [encoder.conv.out_size for encoder in rep.images] == expected


def test_a_kind_that_does_not_fit_is_explained_by_the_dry_run():
    with pytest.raises(
        ModelError, match=r"12 × 16 pixels are too small[\s\S]*'small'[\s\S]*simple or resnet"
    ):
        load_networks(AgentSpec(EVERYTHING, HYBRID), None, NETWORKS, rep={"conv": "nature"})


def test_every_observation_changes_the_state():
    """Each encoder sees its own observation, in the place it is given."""
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=8).eval()
    obs = {name: torch.from_numpy(value) for name, value in EVERYTHING.zeros(1, 1).items()}
    fixed = (torch.zeros(1, 1, 6), torch.zeros(1, 0), torch.ones(1, 1, dtype=torch.bool))
    zero, _ = rep(obs, *fixed)
    assert zero.shape == (1, 1, EVERYTHING_ELSE + 3 * 8)
    seen = torch.zeros_like(zero, dtype=torch.int)
    for name, shape, _ in EVERYTHING.items():
        # An image is not made uniformly brighter: a layer behind it would normalise that away.
        change = torch.zeros(shape).flatten()
        change[: max(1, len(change) // 2)] = 1
        moved, _ = rep({**obs, name: (change.view(obs[name].shape)).to(obs[name].dtype)}, *fixed)
        different = moved != zero
        assert different.any(), name
        seen += different
    assert seen.max() == 1, "a part of the state depends on one observation only"


def test_a_gradient_reaches_every_parameter():
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=16, dense_depth=1)
    (encode(rep, EVERYTHING, (4, 3)) * torch.arange(16.0)).square().sum().backward()
    assert [name for name, p in rep.named_parameters() if not p.grad.any()] == []


def test_a_shift_reaches_every_image():
    rep = ModelRep(AgentSpec(EVERYTHING, HYBRID), dense_n=8, random_shift=3)
    assert [encoder.shift.pad for encoder in rep.images] == [3, 3, 3]
    assert not torch.equal(encode(rep, EVERYTHING), encode(rep, EVERYTHING))
    rep.eval()
    assert torch.equal(encode(rep, EVERYTHING), encode(rep, EVERYTHING))


def test_the_worked_example_has_an_encoder_of_its_own_for_each_camera(root: Path):
    obs = ObsSpec(
        names=("left", "right", "speed"),
        shapes=((24, 32, 3), (1, 40, 40), (3,)),
        dtypes=("uint8", "uint8", "float32"),
    )
    file = root / "envs" / "toy" / "two_cameras" / "nn.py"
    networks = load_networks(
        AgentSpec(obs, ActionSpec(continuous=2)), file, NETWORKS, rep={"left": 10, "right": 20}
    )
    assert networks.sources == dict.fromkeys(("ModelRep", "ModelQ", "ModelPolicy"), "nn.py")
    assert networks.state_size == 10 + 20 + 3
    encoders = [part for part in networks.rep.modules() if isinstance(part, ImageEncoder)]
    assert [len(encoder.conv) for encoder in encoders] == [2 * 2 + 1, 3 * 2 + 1]  # simple, nature


def test_the_memory_of_hidden_catch_sees_the_picture_and_not_the_truth(root: Path):
    obs = ObsSpec(("picture", "truth"), ((32, 32), (3,)), ("uint8", "float32"))
    file = root / "envs" / "toy" / "hidden_catch" / "nn.py"
    networks = load_networks(AgentSpec(obs, ActionSpec(branches=(3,))), file, NETWORKS, seq_encoder="RNN")
    assert networks.state_size == 64 + 64

    def states(changes: dict[str, int]) -> torch.Tensor:
        seen = {"picture": torch.zeros(1, 2, 32, 32, dtype=torch.uint8), "truth": torch.zeros(1, 2, 3)}
        for name, value in changes.items():
            seen[name][:, 0] = value  # of the first of two steps
        exists = torch.ones(1, 2, dtype=torch.bool)
        return networks.rep(seen, torch.zeros(1, 2, 3), torch.zeros(1, 1, 64), exists)[0]

    assert torch.equal(states({}), states({"truth": 1}))
    assert not torch.equal(states({})[:, 1], states({"picture": 255})[:, 1])  # remembered
