"""Observations of the scripted player, decoded by the package's own code and by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from algorithm.env.unity import package
from tests.unity_player.selfcheck import Showcase, pattern
from tests.unity_player.sensors import Buffer, Camera, Vector, png

package.load()

from mlagents_envs import rpc_utils  # noqa: E402


def decoded(message: object) -> np.ndarray:
    """The package's reading of an image with its channels last."""
    return np.asarray(rpc_utils._observation_to_np_array(message))


def test_a_png_is_one() -> None:
    image = pattern((7, 5, 3), 1)
    assert np.array_equal(np.array(Image.open(io.BytesIO(png(image)))), image)


@pytest.mark.parametrize("as_png", [True, False])
@pytest.mark.parametrize(
    ("channels", "mapped"), [(3, False), (3, True), (1, False), (1, True), (5, True), (6, True)]
)
def test_the_package_reads_each_kind_of_camera(channels: int, mapped: bool, as_png: bool) -> None:
    camera = Camera("c", 8, 9, channels, png=as_png, mapped=mapped)
    image = pattern((8, 9, channels), channels)
    assert np.allclose(decoded(camera.observe(image)), image / 255, atol=1e-6)


@pytest.mark.parametrize("as_png", [True, False])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_stack_begins_with_zeros_and_has_the_oldest_first(channels: int, as_png: bool) -> None:
    camera = Camera("c", 6, 4, channels, png=as_png, stack=3)
    images = [pattern((6, 4, channels), at) for at in range(4)]
    first = decoded(camera.observe(images[0]))
    assert not first[..., : 2 * channels].any() and np.allclose(first[..., 2 * channels :], images[0] / 255)
    for image in images[1:]:
        last = decoded(camera.observe(image))
    assert np.allclose(last, np.concatenate(images[1:], axis=2) / 255, atol=1e-6)
    camera.reset()
    assert not decoded(camera.observe(images[0]))[..., : 2 * channels].any()


def test_channels_come_first_where_the_package_has_them_there() -> None:
    image = pattern((6, 4, 3), 0)
    raw = Camera("c", 6, 4, layout="CHW", png=False).observe(image)
    assert tuple(raw.shape) == (3, 6, 4) and tuple(raw.dimension_properties) == (1, 2, 2)
    assert np.allclose(np.reshape(raw.float_data.data, raw.shape), image.transpose(2, 0, 1) / 255)
    small = Camera("c", 6, 4, layout="CHW").observe(image)
    assert tuple(small.shape) == (3, 6, 4)
    assert np.array_equal(np.array(Image.open(io.BytesIO(small.compressed_data))), image)
    assert not Camera("c", 6, 4, said=False).observe(image).dimension_properties
    assert tuple(Camera("c", 6, 4).observe(image).dimension_properties) == (2, 2, 1)


def test_vectors_are_stacked_and_buffers_padded() -> None:
    vector = Vector("v", 2, stack=2)
    assert list(vector.observe(np.float32([1, 2])).float_data.data) == [0, 0, 1, 2]
    assert list(vector.observe(np.float32([3, 4])).float_data.data) == [1, 2, 3, 4]
    buffer = Buffer("b", 3, 2).observe(np.float32([[1, 2], [3, 4]]))
    assert tuple(buffer.shape) == (3, 2) and tuple(buffer.dimension_properties) == (4, 1)
    assert list(buffer.float_data.data) == [1, 2, 3, 4, 0, 0]


def test_there_is_a_value_for_every_sensor_of_the_showcase() -> None:
    assert len(Showcase.shapes) + 3 == 12
