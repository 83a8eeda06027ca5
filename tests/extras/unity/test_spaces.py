from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.extras.unity.spaces import UnityBehaviour, decode_images
from algorithm.extras.unity.testing.sensors import Buffer, Camera, Vector, png
from tests.extras.unity.scripted import sensor


def pattern(shape: tuple[int, ...], key: int) -> np.ndarray:
    """Bytes that only this key has."""
    return np.random.default_rng(key).integers(256, size=shape).astype(np.uint8)


def spaces(sensors: list[Any], *, continuous: int = 1, branches: tuple[int, ...] = ()) -> UnityBehaviour:
    """Return the spaces of the scripted player's sensors, as the package announces them."""
    observations = [
        sensor(one.name, *one.shape, properties=one.properties or (0,) * len(one.shape)) for one in sensors
    ]
    actions = SimpleNamespace(
        continuous_size=continuous, discrete_size=len(branches), discrete_branches=branches
    )
    spec = SimpleNamespace(action_spec=actions, observation_specs=observations)
    return UnityBehaviour("Eye?team=0", spec, SimpleNamespace(observations=observed(sensors, 0)))


def observed(sensors: list[Any], key: int) -> list[Any]:
    return [one.observe(value(one, key)) for one in sensors]


def value(one: Any, key: int) -> np.ndarray:
    if isinstance(one, Camera):
        return pattern(one.frame, key)
    return np.full((2, one.shape[1]) if isinstance(one, Buffer) else one.frame, key, np.float32)


def info(observations: list[Any], **more: Any) -> SimpleNamespace:
    given = {"id": 1, "done": False, "reward": 0.25, "group_reward": 0.5, "action_mask": []} | more
    return SimpleNamespace(observations=observations, max_step_reached=False, **given)


@pytest.mark.parametrize(
    "one",
    [
        Camera("chw", 12, 10, layout="CHW"),
        Camera("chw_raw_stack", 12, 10, layout="CHW", png=False, stack=2),
        Camera("colour", 12, 10),
        Camera("grey_stack", 12, 10, 1, stack=3),
        Camera("grid", 8, 9, 5),
        Camera("mapped", 12, 10, mapped=True),
        Camera("raw", 12, 10, png=False),
        Camera("unsaid", 12, 10, typed=False),
        Buffer("others", 4, 3),
        Vector("stacked", 2, stack=3),
    ],
    ids=lambda one: one.name,
)
def test_each_sensor_becomes_what_was_seen(one: Any) -> None:
    """PNG as bytes, numbers as they are; height, width, channels inside; frames in the order of time."""
    one.reset()
    read = spaces([one])  # has seen 0
    seen, _ = read.read([info(observed([one], 7))])
    found = seen.obs[one.name][0]
    (shape,), (dtype,), (axes,) = read.spec.obs.shapes, read.spec.obs.dtypes, read.spec.obs.axes
    frames = [np.zeros_like(value(one, 0)), value(one, 0), value(one, 7)][-one.stack :]
    if isinstance(one, Camera):
        expected = np.concatenate(frames, axis=2)
        found = found if dtype == "uint8" else np.rint(found * 255)
    elif isinstance(one, Vector):
        expected = np.concatenate(frames)
    else:
        expected = np.repeat([[7], [7], [0], [0]], 3, axis=1)
    assert shape == expected.shape and axes == ("HWC" if isinstance(one, Camera) else "")
    assert np.array_equal(found, expected)


def test_channels_are_averaged_dropped_and_moved_by_the_mapping() -> None:
    image = pattern((4, 5, 3), 1)
    mean = np.rint(image.astype(float).mean(axis=2)).astype(np.uint8)
    for mapping in ([], [0, 0, 0]):
        assert np.array_equal(decode_images(png(image), (4, 5, 1), mapping)[..., 0], mean)
    assert np.array_equal(decode_images(png(image), (4, 5, 2), []), image[..., :2])
    assert np.array_equal(decode_images(png(image), (4, 5, 2), [1, -1, 0]), image[..., [2, 0]])
    both = decode_images(png(image) + png(255 - image), (4, 5, 4), [0, 1, 2, 3, -1, -1])
    assert np.array_equal(both, np.concatenate([image, 255 - image[..., :1]], axis=2))


@pytest.mark.parametrize(
    ("data", "mapping", "why"),
    [
        (png(pattern((4, 5, 3), 1))[:-20], [], "cut off"),
        (png(pattern((4, 5, 3), 1)), [0, 1], "mapping"),
        (png(pattern((4, 5, 3), 1)), [0, 0, 1], "mapping"),
        (png(pattern((5, 4, 3), 1)), [], "expected 4×5 pixels, got 5×4"),
        (4 * png(pattern((4, 5, 3), 1)), [], "at most a PNG for each of 3 channels, got 4"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\x00IEND\x00\x00\x00\x00", [], "decoded"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, mapping: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_images(data, (4, 5, 3), mapping)


def test_sensors_without_a_name_or_with_the_same_get_a_number() -> None:
    sensors = [Buffer(name, 2, 1) for name in ("", "ray", "ray", "one", "ray_1", "")]
    assert spaces(sensors).spec.obs.names == ("sensor_0", "ray_1_", "ray_2", "one", "ray_1", "sensor_5")


def test_sensors_without_numbers_are_left_out() -> None:
    """The others keep their place in a message, and their names."""
    sensors = [Vector("", 0), Vector("", 2), Vector("ray", 0)]
    read, messages = spaces(sensors), observed(sensors, 7)
    asking, _ = read.read([info(messages)])
    assert read.spec.obs.names == ("sensor_1",) and asking.obs["sensor_1"].tolist() == [[7, 7]]
    with pytest.raises(EnvError, match="no observations"):
        spaces([Vector("eye", 0)])


BUFFER = Buffer("b", 2, 1)


def test_rewards_are_added_and_ends_are_apart() -> None:
    messages = observed([BUFFER], 1)
    asking, ending = spaces([BUFFER]).read([info(messages), info(messages, id=2, done=True, reward=1.0)])
    assert (asking.ids, asking.reward.tolist()) == ([1], [0.75])
    assert (ending.ids, ending.reward.tolist(), ending.interrupted.tolist()) == ([2], [1.5], [False])


def test_masks_are_inverted_and_actions_become_branches_and_numbers() -> None:
    read, messages = spaces([BUFFER], continuous=2, branches=(2, 3)), observed([BUFFER], 1)
    asking, _ = read.read([info(messages), info(messages, action_mask=[True, False, False, True, True])])
    assert asking.action_mask.tolist() == [[True] * 5, [False, True, True, False, False]]
    with pytest.raises(EnvError, match="no action left"):
        read.read([info(messages, action_mask=[False, False, True, True, True])])
    with pytest.raises(ValueError, match="a mask of 2"):
        read.read([info(messages, action_mask=[True, False])])
    actions = read.actions(np.array([[0, 1, 0, 0, 1, 0.5, -1], [1, 0, 1, 0, 0, 0, 1]], np.float32))
    assert actions.discrete.tolist() == [[1, 2], [0, 0]]
    assert actions.continuous.tolist() == [[0.5, -1], [0, 1]]


def test_other_shapes_and_nothing_to_see_or_do_are_refused() -> None:
    with pytest.raises(EnvError, match="have changed") as raised:
        spaces([BUFFER]).read([info(observed([Buffer("b", 3, 1)], 1))])
    assert "b 2×1" in raised.value.why and "(3, 1)" in raised.value.why
    with pytest.raises(EnvError, match="no actions"):
        spaces([BUFFER], continuous=0)
    with pytest.raises(EnvError, match="no observations"):
        spaces([])
