"""Images are told from other arrays by shape and dtype, and come out as the same planes however they lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.images import image_layout, image_layouts


@pytest.mark.parametrize(("shape", "dtype", "stack", "planes"), [
    ((84, 84), "uint8", 1, (1, 84, 84)),
    ((84, 84, 3), "uint8", 1, (3, 84, 84)),
    ((3, 64, 48), "uint8", 1, (3, 64, 48)),
    ((1, 40, 40), "uint8", 1, (1, 40, 40)),
    ((24, 32, 3), "float32", 1, (3, 24, 32)),
    ((10, 12, 10), "uint8", 1, (10, 10, 12)),  # a tie: the channels are last
    ((4, 84, 84), "uint8", 1, (4, 84, 84)),
    ((4, 84, 84), "uint8", 4, (4, 84, 84)),
    ((2, 9, 12), "float32", 2, (2, 9, 12)),
    ((30, 12, 16), "uint8", 30, (30, 12, 16)),  # more frames than pixels: without the stack, 16 channels
    ((4, 96, 80, 3), "uint8", 4, (12, 96, 80)),
    ((4, 96, 80, 3), "uint8", 1, (12, 96, 80)),
    ((2, 3, 96, 80), "float32", 1, (6, 96, 80)),
    ((5, 2, 3, 16, 9), "uint8", 5, (30, 16, 9)),  # a stack of frames
    ((8, 8), "uint8", 1, (1, 8, 8)),
])  # fmt: skip
def test_an_image_is_known_by_shape_and_dtype(shape, dtype, stack, planes):
    layout = image_layout(shape, dtype, stack)
    assert (layout.channels, layout.height, layout.width) == planes
    result = layout.to_planes(torch.zeros(2, *shape, dtype=getattr(torch, dtype)))
    assert (result.shape, result.dtype) == ((2, *planes), torch.float32)


@pytest.mark.parametrize(("shape", "dtype", "stack"), [
    ((), "float32", 1),
    ((128,), "uint8", 1),
    ((84, 84), "float32", 1),  # a matrix
    ((84, 84, 3), "int8", 1),
    ((84, 84, 3), "int32", 1),
    ((84, 84, 3), "bool", 1),
    ((7, 84), "uint8", 1),
    ((84, 7, 3), "uint8", 1),
    ((3, 84, 7), "uint8", 1),  # 3 × 84 pixels with 7 channels
    ((4, 128), "uint8", 4),
    ((2, 2, 3, 16, 9), "uint8", 1),
])  # fmt: skip
def test_anything_else_is_none(shape, dtype, stack):
    assert image_layout(shape, dtype, stack) is None


def test_bytes_are_divided_by_255_and_floats_are_not():
    picture = torch.arange(64, dtype=torch.uint8).view(8, 8)
    planes = image_layout((8, 8), "uint8").to_planes(picture * 3)
    assert planes[0, 0, 2, 1].item() == pytest.approx(17 * 3 / 255)  # 51/255 = 0.2
    assert planes[0, 0, 7, 7].item() == pytest.approx(189 / 255)
    numbers = torch.rand(3, 8, 8)
    assert torch.equal(image_layout((3, 8, 8), "float32").to_planes(numbers), numbers[None])
    white = image_layout((8, 8), "uint8").to_planes(torch.full((8, 8), 255, dtype=torch.uint8))
    assert (white == 1.0).all()


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(8, 11), st.integers(8, 11)),
    st.tuples(*[st.integers(0, 2)] * 2),
    st.sampled_from(["uint8", "float32"]),
)
def test_every_layout_of_the_same_pictures_gives_the_same_planes(sizes, lead, dtype):
    """Frames and colours of a pixel become channels, frames first; planes in the order of the images."""
    frames, colours, height, width = sizes
    pictures = np.random.default_rng(0).integers(0, 256, (*lead, *sizes)).astype(dtype)
    scale = 255 if dtype == "uint8" else 1
    expected = pictures.reshape(-1, frames * colours, height, width) / np.float32(scale)
    merged = pictures.reshape(*lead, frames * colours, height, width)
    layouts = [
        (pictures, (frames, colours, height, width), 1),
        (np.moveaxis(pictures, -3, -1), (frames, height, width, colours), 1),
        (merged, merged.shape[2:], 1),
    ]
    if frames > 1:
        layouts += [(array, shape, frames) for array, shape, _ in layouts[:2]]
    for array, shape, stack in layouts:
        if len(shape) == 3 and shape[0] >= shape[2]:
            continue  # more channels than columns: nothing in the shape says so
        got = image_layout(shape, dtype, stack).to_planes(torch.from_numpy(array.copy()))
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_planes_lie_channels_last_in_memory():
    for shape in ((16, 9, 3), (3, 16, 9)):
        planes = image_layout(shape, "uint8").to_planes(torch.zeros(5, *shape, dtype=torch.uint8))
        assert planes.is_contiguous(memory_format=torch.channels_last)


def test_the_observation_is_left_alone():
    for dtype in (torch.uint8, torch.float32):
        x = torch.full((2, 8, 9, 3), 7).to(dtype)
        image_layout((8, 9, 3), str(dtype).split(".")[1]).to_planes(x)
        assert (x == 7).all()


def test_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"\(8, 9, 3\) were expected, got \(2, 9, 8, 3\)"):
        image_layout((8, 9, 3), "uint8").to_planes(torch.zeros(2, 9, 8, 3))


def test_axes_that_the_simulator_names_are_not_guessed():
    """By shape alone 32 channels of 20 × 20 cells are taken for a height."""
    obs = ObsSpec(
        ("guessed", "grid", "first", "tiny"),
        ((20, 20, 32), (20, 20, 32), (32, 20, 20), (2, 2, 3)),
        ("float32",) * 4,
        axes=("", "HWC", "CHW", "HWC"),
    )
    found = image_layouts(obs)
    assert found.keys() == {"guessed", "grid", "first"}
    assert (found["guessed"].channels, found["grid"].channels, found["first"].channels) == (20, 32, 32)
    assert found["grid"].order == (0, 1, 2) and found["first"].order == (1, 2, 0)


def test_images_of_a_spec_are_not_its_choices():
    obs = ObsSpec(
        names=("camera/front", "board", "speed", "film"),
        shapes=((8, 8, 3), (8, 8), (3,), (20, 8, 9)),
        dtypes=("uint8", "uint8", "float32", "uint8"),
        categories=((), (3,) * 64, (), ()),
        stacks=(1, 1, 1, 20),
    )
    assert list(image_layouts(obs)) == ["camera/front", "film"]
    assert image_layouts(obs)["film"].channels == 20
