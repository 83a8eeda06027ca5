"""Spaces of a Unity behaviour: sensors and actions, and the conversion of agents' messages to arrays."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Bool, Float
from algorithm.core.errors import EnvError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec

_NONE, _TRANSLATIONAL = 1, 2  # dimension properties: no structure, an axis of an image
_CHANNELS_FIRST = (_NONE, _TRANSLATIONAL, _TRANSLATIONAL)
_CHANNELS_LAST = (_TRANSLATIONAL, _TRANSLATIONAL, _NONE)
_UNSPECIFIED = (0, 0, 0)  # by packages before 2, which have channels last only
_PNG_SIGNATURE = 8  # bytes


@dataclass(frozen=True, kw_only=True)
class AgentStates:
    """States of one behaviour's agents in a message; row i is of the agent with Unity's id ``ids[i]``."""

    ids: list[int]
    obs: dict[str, Array]  # name -> [N, ...]
    reward: Float  # [N] the agent's own and its group's
    action_mask: Bool  # [N, ΣN]
    interrupted: Bool  # [N] whether the end is no outcome of the task

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class UnitySensor:
    """Sensor of a behaviour.

    shape: in the message
    axes:  of an image in the message, ``HWC`` or ``CHW``, stored as ``HWC``; empty for other data
    png:   compressed images, stored as bytes
    """

    name: str
    shape: tuple[int, ...]
    axes: str = ""
    png: bool = False

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape of the stored observation, [H, W, C] for an image."""
        return (*self.shape[1:], self.shape[0]) if self.axes == "CHW" else self.shape

    @property
    def dtype(self) -> str:
        """Name of the stored observation's dtype."""
        return "uint8" if self.png else "float32"

    def read(self, observations: Sequence[Any]) -> Array:
        """Return N messages of this sensor as an array [N, …]. Raises ValueError for invalid data."""
        if not observations:
            return np.zeros((0, *self.kept_shape), self.dtype)
        if self.png:
            return np.stack([self._decoded(observation) for observation in observations])
        numbers = np.array([observation.float_data.data[:] for observation in observations], np.float32)
        values = numbers.reshape(len(observations), *self.shape)
        return np.ascontiguousarray(np.moveaxis(values, 1, -1)) if self.axes == "CHW" else values

    def _decoded(self, observation: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - a protobuf message
        mapping = list(observation.compressed_channel_mapping)
        try:
            return decode_images(observation.compressed_data, self.kept_shape, mapping)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


class UnityBehaviour:
    """Spaces of a behaviour's agents.

    name:    in Unity, such as ``Name?team=0``
    spec:    the package's ``BehaviorSpec``; the attribute ``spec`` is ours
    example: message about one of its agents, which shows the sensors that are compressed
    seen:    index in a message -> sensor, without sensors of size 0

    Raises EnvError for a behaviour without observations or actions.
    """

    def __init__(self, name: str, spec: Any, example: Any) -> None:  # noqa: ANN401 - of the package
        self.name = name
        actions = spec.action_spec
        observations = [sensor for sensor in spec.observation_specs if prod(sensor.shape)]
        if not observations or not actions.continuous_size + actions.discrete_size:
            raise EnvError(
                f"the Unity behaviour {name} has {'no actions' if observations else 'no observations'}",
                why="there is nothing to learn",
                fix="give its agents sensors and actions, or remove them from the scene",
            )
        names = _unique([sensor.name for sensor in spec.observation_specs])
        self.sensors = tuple(
            _sensor(own_name, sensor, message)
            for own_name, sensor, message in zip(
                names, spec.observation_specs, example.observations, strict=True
            )
        )
        self.seen = {k: sensor for k, sensor in enumerate(self.sensors) if prod(sensor.shape)}
        seen = self.seen.values()
        branches = tuple(int(choices) for choices in actions.discrete_branches)
        continuous = int(actions.continuous_size)
        self.spec = AgentSpec(
            ObsSpec(
                names=tuple(sensor.name for sensor in seen),
                shapes=tuple(sensor.kept_shape for sensor in seen),
                dtypes=tuple(sensor.dtype for sensor in seen),
                axes=tuple("HWC" if sensor.axes else "" for sensor in seen),
            ),
            ActionSpec(branches, continuous),
        )

    def describe(self) -> str:
        """Return sensors and actions in one line, for messages."""
        sensors = ", ".join(
            f"{sensor.name} {'×'.join(map(str, sensor.shape))}{' PNG' * sensor.png}"
            for sensor in self.sensors
        )
        return f"{sensors}; {self.spec.action}"

    def differs(self, other: UnityBehaviour) -> bool:
        """Return whether a behaviour of another player has other spaces."""
        return (self.sensors, self.spec.action) != (other.sensors, other.spec.action)

    def read(self, infos: Sequence[Any]) -> tuple[AgentStates, AgentStates]:
        """Return the agents that request a decision, and those whose episode ends, in the message's order.

        Raises EnvError for other spaces, and ValueError for an invalid message.
        """
        asking = [info for info in infos if not info.done]
        return self.states(asking), self.states([info for info in infos if info.done])

    def actions(self, flat: Float) -> Any:  # noqa: ANN401 - of the package
        """Return flat actions [N, A] as the package's ``ActionTuple``."""
        from mlagents_envs.base_env import ActionTuple

        action = self.spec.action
        discrete = np.zeros((len(flat), len(action.branches)), np.int32)
        for branch, where in enumerate(action.branch_slices):
            discrete[:, branch] = flat[:, where].argmax(1)
        return ActionTuple(continuous=flat[:, action.discrete :], discrete=discrete)

    def states(self, infos: Sequence[Any]) -> AgentStates:
        """Return agents' messages as arrays. Raises EnvError for other spaces."""
        expected = tuple(sensor.shape for sensor in self.sensors)
        for info in infos:
            shapes = tuple(tuple(observation.shape) for observation in info.observations)
            if shapes != expected:
                now = f"agent {info.id} has observations of {', '.join(map(str, shapes))}"
                raise changed_spaces(self.name, self.describe(), now)
        return AgentStates(
            ids=[int(info.id) for info in infos],
            obs={
                sensor.name: sensor.read([info.observations[k] for info in infos])
                for k, sensor in self.seen.items()
            },
            reward=np.array([info.reward + info.group_reward for info in infos], np.float32),
            action_mask=self._allowed(infos),
            interrupted=np.array([info.max_step_reached for info in infos], np.bool_),
        )

    def _allowed(self, infos: Sequence[Any]) -> Bool:
        """Return masks [N, ΣN] True for allowed; in Unity's, True forbids. Raises ValueError, EnvError."""
        action = self.spec.action
        allowed = action.all_allowed(len(infos))
        for row, info in enumerate(infos):
            if info.done or not len(info.action_mask):
                continue
            masked = np.array(info.action_mask, np.bool_)
            if len(masked) != action.discrete:
                raise ValueError(
                    f"a mask of {len(masked)} actions for {action.discrete} of agent {info.id} of {self.name}"
                )
            allowed[row] = ~masked
            for branch, where in enumerate(action.branch_slices):
                if not allowed[row, where].any():
                    raise EnvError(
                        f"a Unity agent of {self.name} has no action left",
                        where=f"agent {info.id}, branch {branch}",
                        why="its mask forbids all of them",
                        fix="leave at least one action enabled in WriteDiscreteActionMask",
                    )
        return allowed


def changed_spaces(behaviour: str, before: str, now: str) -> EnvError:
    """Return the error of a behaviour whose spaces differ from those at the start; before, now: as text."""
    return EnvError(
        f"the spaces of the Unity behaviour {behaviour} have changed",
        why=f"they were {before}\nnow: {now}",
        fix="train a new run with that build; sensors and actions must stay as they are while it runs",
    )


def decode_images(data: bytes, shape: Sequence[int], mapping: Sequence[int]) -> NDArray[np.uint8]:
    """Return consecutive PNGs as one image of this shape [H, W, C].

    mapping: channel for each channel of the PNGs, -1 to leave it out; several for the same are averaged.
             Empty: the first channels; for a single one the mean of three
    Raises ValueError for invalid PNGs, for another size, which is not decoded, and for an invalid mapping.
    """
    channels, pngs = shape[-1], list(_split(data))
    if not 0 < len(pngs) <= channels:
        raise ValueError(f"expected at most a PNG for each of {channels} channels, got {len(pngs)}")
    image: NDArray[np.uint8] = np.concatenate([_decode(png, shape) for png in pngs], axis=2)
    target = list(mapping) or ([0, 0, 0] if channels == 1 else list(range(channels)))
    if not mapping:
        image = image[..., : len(target)]
    if len(target) != image.shape[2] or set(target) - {-1} != set(range(channels)):
        raise ValueError(f"the mapping {target} does not make {channels} channels of {image.shape[2]}")
    if target == list(range(channels)):
        return image
    sources = [[at for at, to in enumerate(target) if to == channel] for channel in range(channels)]
    planes = [image[..., at[0]] if len(at) == 1 else np.rint(image[..., at].mean(axis=2)) for at in sources]
    return np.stack(planes, axis=2).astype(np.uint8)


def _split(data: bytes) -> Iterator[bytes]:
    """Yield each PNG, whose chunks are length, type, data, checksum."""
    begin = 0
    while begin < len(data):
        at = begin + _PNG_SIGNATURE
        kind = b""
        while kind != b"IEND":
            if at + 12 > len(data):
                raise ValueError("a PNG is cut off")
            (length,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
            at += 12 + length
        yield data[begin:at]
        begin = at


def _decode(png: bytes, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Return a PNG as an image [H, W, 3]. Raises ValueError."""
    from PIL import Image

    bomb = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            if image.size != (shape[1], shape[0]):
                raise ValueError(f"expected {shape[0]}×{shape[1]} pixels, got {image.height}×{image.width}")
            pixels: NDArray[np.uint8] = np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    except (*bomb, OSError, SyntaxError, zlib.error, struct.error) as error:
        raise ValueError(f"a PNG cannot be decoded: {error}") from error
    return pixels


def _sensor(name: str, spec: Any, message: Any) -> UnitySensor:  # noqa: ANN401 - of the package
    """Return a sensor, by the package's spec and an example of its message."""
    shape = tuple(int(size) for size in spec.shape)
    properties = tuple(int(number) for number in spec.dimension_property)
    png = message.compression_type != 0
    axes = ""
    if len(shape) == 3:
        known: dict[tuple[int, ...], str]
        known = {_CHANNELS_FIRST: "CHW", _CHANNELS_LAST: "HWC", _UNSPECIFIED: "HWC"}
        axes = known.get(properties, "HWC" if png else "")
    return UnitySensor(name=name, shape=shape, axes=axes, png=png)


def _unique(original: Sequence[str]) -> tuple[str, ...]:
    """Return unique names for sensors: a number is added to empty and repeated ones."""
    names: list[str] = []
    for number, name in enumerate(original):
        unique = name if name and original.count(name) == 1 else f"{name or 'sensor'}_{number}"
        while unique != name and unique in (*original, *names):
            unique += "_"
        names.append(unique)
    return tuple(names)
