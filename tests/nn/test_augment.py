"""A random shift is a crop from an image padded with its own border, in updates only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.nn.augment import RandomShift, shift_images


def shift_by_cropping(images: np.ndarray, down: list[int], right: list[int]) -> np.ndarray:
    """The same, image by image: pad with the border, then cut out."""
    pad = max(map(abs, [*down, *right, 1]))
    height, width = images.shape[1:3]
    result = []
    for image, y, x in zip(images, down, right, strict=True):
        padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="edge")
        result.append(padded[pad + y : pad + y + height, pad + x : pad + x + width])
    return np.stack(result)


@given(st.data())
def test_shifting_equals_cropping_from_a_padded_image(data):
    shape = data.draw(st.tuples(*[st.integers(1, n) for n in (4, 9, 9, 3)]))
    dtype = data.draw(st.sampled_from(["uint8", "float32"]))
    shifts = st.lists(st.integers(-5, 5), min_size=shape[0], max_size=shape[0])
    down, right = data.draw(shifts), data.draw(shifts)
    images = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    got = shift_images(torch.from_numpy(images), torch.tensor(down), torch.tensor(right)).numpy()
    assert got.dtype == images.dtype
    np.testing.assert_array_equal(got, shift_by_cropping(images, down, right))


def test_a_shift_by_hand():
    """One down and one to the left: the bottom row and the left column are repeated."""
    image = torch.tensor([[1, 2], [3, 4]])[None, :, :, None]
    assert shift_images(image, torch.tensor([1]), torch.tensor([-1]))[0, :, :, 0].tolist() == [[3, 3], [3, 3]]
    assert shift_images(image, torch.tensor([-1]), torch.tensor([0]))[0, :, :, 0].tolist() == [[1, 2], [1, 2]]


def test_every_shift_happens_to_each_image_on_its_own_and_none_is_larger():
    """The value of a pixel tells where it was; the middle one is never lost."""
    image = (10 * torch.arange(9)[:, None] + torch.arange(9)).view(1, 9, 9, 1)
    shift = RandomShift(pad=2)
    seen = shift(image.expand(500, 9, 9, 1))[:, 4, 4, 0] - image[0, 4, 4, 0]
    assert set(seen.tolist()) == {10 * y + x for y in range(-2, 3) for x in range(-2, 3)}


def test_nothing_moves_outside_training():
    images = torch.rand(3, 9, 9, 1)
    assert RandomShift(4).eval()(images) is images


def test_a_shift_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1 pixel"):
        RandomShift(0)
