"""Images: known by shape and dtype, the same planes however they lie, and convolutions for their size."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.errors import ModelError
from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.images import conv, image_layout, image_layouts


@pytest.mark.parametrize(("shape", "dtype", "stack", "planes"), [
    ((84, 84), "uint8", 1, (1, 84, 84)),
    ((84, 84, 3), "uint8", 1, (3, 84, 84)),
    ((3, 64, 48), "uint8", 1, (3, 64, 48)),
    ((24, 32, 3), "float32", 1, (3, 24, 32)),
    ((10, 12, 10), "uint8", 1, (10, 10, 12)),  # a tie: the channels are last
    ((4, 84, 84), "uint8", 4, (4, 84, 84)),
    ((2, 9, 12), "float32", 2, (2, 9, 12)),
    ((30, 12, 16), "uint8", 30, (30, 12, 16)),  # more frames than pixels: without the stack, 16 channels
    ((4, 96, 80, 3), "uint8", 1, (12, 96, 80)),
    ((2, 3, 96, 80), "float32", 1, (6, 96, 80)),
    ((5, 2, 3, 16, 9), "uint8", 5, (30, 16, 9)),  # a stack of frames
    ((8, 8), "uint8", 1, (1, 8, 8)),
    ((), "float32", 1, None),
    ((128,), "uint8", 1, None),
    ((84, 84), "float32", 1, None),  # a matrix
    ((84, 84, 3), "int8", 1, (3, 84, 84)),
    ((84, 84, 3), "bool", 1, (3, 84, 84)),
    ((84, 84), "int64", 1, None),
    ((7, 84), "uint8", 1, None),
    ((84, 7, 3), "uint8", 1, None),
    ((3, 84, 7), "uint8", 1, None),  # 3 × 84 pixels with 7 channels
    ((4, 128), "uint8", 4, None),
    ((2, 2, 3, 16, 9), "uint8", 1, None),
])  # fmt: skip
def test_an_image_is_known_by_shape_and_dtype(shape, dtype, stack, planes):
    layout = image_layout(shape, dtype, stack)
    assert (layout and (layout.channels, layout.height, layout.width)) == planes


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(8, 11), st.integers(8, 11)),
    lead=st.tuples(*[st.integers(0, 2)] * 2),
    dtype=st.sampled_from(["uint8", "float32"]),
)
def test_every_layout_of_the_same_pictures_gives_the_same_planes(sizes, lead, dtype):
    """Frames and colours of a pixel become channels, frames first; planes in the order of the images."""
    frames, colours, height, width = sizes
    pictures = np.random.default_rng(0).integers(0, 256, (*lead, *sizes)).astype(dtype)
    scale = 255 if dtype == "uint8" else 1
    expected = pictures.reshape(-1, frames * colours, height, width) / np.float32(scale)
    for array in (pictures, np.moveaxis(pictures, -3, -1)):
        for stack in {1, frames}:
            images = torch.from_numpy(array.copy())
            planes = image_layout(array.shape[2:], dtype, stack).to_planes(images)
            np.testing.assert_allclose(planes.numpy(), expected, rtol=1e-6)
            assert planes.is_contiguous(memory_format=torch.channels_last)
            assert np.array_equal(images, array), "the observation is left alone"


def test_images_of_a_spec_are_not_its_choices_and_named_axes_are_not_guessed():
    """By shape alone 32 channels of 20 × 20 cells are taken for a height."""
    obs = ObsSpec(
        ("guessed", "grid", "first", "tiny", "board", "film"),
        ((20, 20, 32), (20, 20, 32), (32, 20, 20), (2, 2, 3), (8, 8), (20, 8, 9)),
        (*["float32"] * 4, "uint8", "uint8"),
        categories=((), (), (), (), (3,) * 64, ()),
        stacks=(1, 1, 1, 1, 1, 20),
        axes=("", "HWC", "CHW", "HWC", "", ""),
    )
    channels = {name: layout.channels for name, layout in image_layouts(obs).items()}
    assert channels == {"guessed": 20, "grid": 32, "first": 32, "film": 20}
    assert image_layouts(obs)["first"].order == (1, 2, 0)


NATURE = (8 * 8 * 3 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
RESNET = (27 + 1) * 16 + 4 * (144 + 1) * 16 + (144 + 1) * 32 + 9 * (288 + 1) * 32
SIMPLE = (27 + 1) * 16 + (144 + 1) * 32


@pytest.mark.parametrize(("kind", "size", "features", "parameters"), [
    ("nature", (84, 84), 64 * 7 * 7, NATURE),
    ("nature", (36, 40), 64, NATURE),
    ("resnet", (84, 84), 32 * 11 * 11, RESNET),
    ("resnet", (8, 9), 32 * 1 * 2, RESNET),
    ("simple", (24, 32), 32 * 6 * 8, SIMPLE),
    (None, (35, 80), 32 * 9 * 20, SIMPLE),
    (None, (36, 36), 64, NATURE),
])  # fmt: skip
def test_sizes_are_those_of_the_papers_and_every_parameter_has_a_gradient(kind, size, features, parameters):
    net = conv(image_layout((*size, 3), "uint8"), kind)
    out = net(torch.rand(4, 3, *size))
    assert out.shape == (4, features) == (4, net.out_size)
    out.square().sum().backward()
    assert all(p.grad.any() for p in net.parameters())
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_images_too_small_for_a_kind_are_refused():
    with pytest.raises(ModelError) as caught:
        conv(image_layout((35, 80, 3), "uint8"), "nature")
    assert "use simple or resnet" in str(caught.value)


def test_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"\(8, 9, 3\) were expected, got \(2, 9, 8, 3\)"):
        image_layout((8, 9, 3), "uint8").to_planes(torch.zeros(2, 9, 8, 3))
