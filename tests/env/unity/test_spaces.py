from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.env.unity.spaces import UnityBehaviour, decode_images
from tests.env.unity.scripted import sensor
from tests.unity_player.selfcheck import all_sensors, pattern
from tests.unity_player.sensors import Buffer, Camera, png


def spaces(sensors: list[Any], *, continuous: int = 1, branches: tuple[int, ...] = ()) -> UnityBehaviour:
    """Return the spaces of the scripted player's sensors, as the package announces them."""
    observations = [
        sensor(one.name, *one.shape, properties=one.properties or (0,) * len(one.shape)) for one in sensors
    ]
    actions = SimpleNamespace(
        continuous_size=continuous, discrete_size=len(branches), discrete_branches=branches
    )
    spec = SimpleNamespace(action_spec=actions, observation_specs=observations)
    return UnityBehaviour("Eye?team=0", spec, SimpleNamespace(observations=_messages(sensors, 0)))


def _messages(sensors: list[Any], number: int) -> list[Any]:
    return [one.observe(value(one, number)) for one in sensors]


def value(one: Any, number: int) -> np.ndarray:
    if isinstance(one, Camera):
        return pattern(one._zeros.shape, number)
    if isinstance(one, Buffer):
        return np.full((2, one.shape[1]), number, np.float32)
    return np.full(one._zeros.shape, number, np.float32)


def info(observations: list[Any], **more: Any) -> SimpleNamespace:
    given = {"id": 1, "done": False, "reward": 0.25, "group_reward": 0.5, "action_mask": []} | more
    return SimpleNamespace(observations=observations, max_step_reached=False, **given)


@pytest.mark.parametrize("name", [one.name for one in all_sensors()])
def test_each_sensor_becomes_what_was_seen(name: str) -> None:
    """PNG as bytes, numbers as they are; height, width, channels inside, stacks along the channels."""
    (one,) = [one for one in all_sensors() if one.name == name]
    read = spaces([one])
    (shape,), (dtype,), (axes,) = read.spec.obs.shapes, read.spec.obs.dtypes, read.spec.obs.axes
    seen, _ = read.read([info(_messages([one], 7))])
    array = seen.obs[name]
    assert array.shape == (1, *shape) and array.dtype == dtype
    if not isinstance(one, Camera):
        assert axes == "" and set(array.ravel().tolist()) <= {0.0, 7.0}
        return
    frame = value(one, 7)
    expected = np.concatenate([value(one, 0) if k == 1 else frame for k in (2, 1, 3)][-1:], axis=2)
    last = array[0, ..., -frame.shape[2] :]
    assert axes == "HWC" and dtype == ("uint8" if one._png else "float32")
    assert np.array_equal(last if one._png else np.rint(last * 255), expected)


def test_frames_of_a_stack_are_in_the_order_of_time() -> None:
    one = Camera("grey", 12, 10, 1, stack=3)
    read = spaces([one])  # has seen 0
    for number in (1, 2):
        seen, _ = read.read([info(_messages([one], number))])
    expected = np.concatenate([pattern((12, 10, 1), number) for number in (0, 1, 2)], axis=2)
    assert np.array_equal(seen.obs["grey"][0], expected)


def test_channels_are_averaged_dropped_and_moved_by_the_mapping() -> None:
    image = pattern((4, 5, 3), 1)
    mean = np.rint(image.astype(float).mean(axis=2)).astype(np.uint8)
    assert np.array_equal(decode_images(png(image), 1, [])[..., 0], mean)
    assert np.array_equal(decode_images(png(image), 1, [0, 0, 0])[..., 0], mean)
    assert np.array_equal(decode_images(png(image), 2, []), image[..., :2])
    assert np.array_equal(decode_images(png(image), 2, [1, -1, 0]), image[..., [2, 0]])
    both = decode_images(png(image) + png(255 - image), 4, [0, 1, 2, 3, -1, -1])
    assert np.array_equal(both, np.concatenate([image, 255 - image[..., :1]], axis=2))


@pytest.mark.parametrize(
    ("data", "channels", "mapping", "why"),
    [
        (png(pattern((4, 5, 3), 1))[:-20], 3, [], "cut off"),
        (png(pattern((4, 5, 3), 1)), 3, [0, 1], "mapping"),
        (png(pattern((4, 5, 3), 1)), 3, [0, 0, 1], "mapping"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\x00IEND\x00\x00\x00\x00", 3, [], "decoded"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, channels: int, mapping: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_images(data, channels, mapping)


def test_sensors_without_a_name_or_with_the_same_get_a_number() -> None:
    sensors = [Buffer(name, 2, 1) for name in ("", "ray", "ray", "one", "ray_1", "")]
    assert spaces(sensors).spec.obs.names == ("sensor_0", "ray_1_", "ray_2", "one", "ray_1", "sensor_5")


def test_rewards_are_added_and_ends_are_apart() -> None:
    one = Buffer("b", 2, 1)
    read = spaces([one])
    messages = _messages([one], 1)
    asking, ending = read.read([info(messages), info(messages, id=2, done=True, reward=1.0)])
    assert (asking.ids, asking.reward.tolist()) == ([1], [0.75])
    assert (ending.ids, ending.reward.tolist(), ending.interrupted.tolist()) == ([2], [1.5], [False])


def test_masks_are_inverted_and_one_that_leaves_nothing_is_refused() -> None:
    one = Buffer("b", 2, 1)
    read = spaces([one], continuous=0, branches=(2, 3))
    messages = _messages([one], 1)
    asking, _ = read.read([info(messages), info(messages, action_mask=[True, False, False, True, True])])
    assert asking.action_mask.tolist() == [[True] * 5, [False, True, True, False, False]]
    with pytest.raises(EnvError, match="no action left") as raised:
        read.read([info(messages, action_mask=[False, False, True, True, True])])
    assert "branch 1" in raised.value.where
    with pytest.raises(ValueError, match="a mask of 2"):
        read.read([info(messages, action_mask=[True, False])])


def test_actions_become_branches_and_numbers() -> None:
    pytest.importorskip("mlagents_envs")
    from algorithm.env.unity.package import load

    load()
    read = spaces([Buffer("b", 2, 1)], continuous=2, branches=(2, 3))
    flat = np.array([[0, 1, 0, 0, 1, 0.5, -1], [1, 0, 1, 0, 0, 0, 1]], np.float32)
    actions = read.actions(flat)
    assert actions.discrete.tolist() == [[1, 2], [0, 0]]
    assert actions.continuous.tolist() == [[0.5, -1], [0, 1]]


def test_other_shapes_and_nothing_to_see_or_do_are_refused() -> None:
    read = spaces([Buffer("b", 2, 1)])
    with pytest.raises(EnvError, match="have changed") as raised:
        read.read([info(_messages([Buffer("b", 3, 1)], 1))])
    assert "b 2×1" in raised.value.why and "(3, 1)" in raised.value.why
    with pytest.raises(EnvError, match="no actions"):
        spaces([Buffer("b", 2, 1)], continuous=0)
    with pytest.raises(EnvError, match="no observations"):
        spaces([])
