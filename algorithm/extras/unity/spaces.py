"""Spaces of a Unity behaviour: its sensors, its actions, and the messages about its agents as arrays."""

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
_UNSAID = (0, 0, 0)  # by packages before 2, which know channels last only
_PNG_SIGNATURE = 8  # bytes


@dataclass(frozen=True, kw_only=True)
class AgentStates:
    """Agents of one behaviour in a message; row i belongs to the agent that Unity calls ``ids[i]``."""

    ids: list[int]
    obs: dict[str, Array]  # name -> [N, ...]
    reward: Float  # [N] the agent's own and its group's
    action_mask: Bool  # [N, ΣN]
    interrupted: Bool  # [N] an end that is no outcome of the task

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class UnitySensor:
    """One observation of a behaviour.

    shape: as Unity sends it
    axes:  of an image as it is sent, ``HWC`` or ``CHW``; it is kept as ``HWC``. Empty for anything else
    png:   compressed, and kept as bytes
    """

    name: str
    shape: tuple[int, ...]
    axes: str = ""
    png: bool = False

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape of the observation."""
        return (*self.shape[1:], self.shape[0]) if self.axes == "CHW" else self.shape

    @property
    def dtype(self) -> str:
        """Name of the observation's dtype."""
        return "uint8" if self.png else "float32"

    def read(self, observations: Sequence[Any]) -> Array:
        """Return N messages of this sensor as an array. Raises ValueError for wrong data."""
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
    """Spaces that all agents of a behaviour share.

    name:    Unity's own, such as ``Name?team=0``
    spec:    the package's ``BehaviorSpec``
    example: message about one of its agents, which tells what is compressed
    seen:    place in a message -> sensor, of those that have any numbers

    Raises EnvError if there is nothing to observe or to do.
    """

    def __init__(self, name: str, spec: Any, example: Any) -> None:  # noqa: ANN401 - of the package
        self.name = name
        actions = spec.action_spec
        observations = [one for one in spec.observation_specs if prod(one.shape)]
        if not observations or not actions.continuous_size + actions.discrete_size:
            raise EnvError(
                f"the Unity behaviour {name} has {'no actions' if observations else 'no observations'}",
                why="there is nothing to learn",
                fix="give its agents sensors and actions, or remove them from the scene",
            )
        names = _unique([one.name for one in spec.observation_specs])
        self.sensors = tuple(
            _sensor(own, one, message)
            for own, one, message in zip(names, spec.observation_specs, example.observations, strict=True)
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
        """Return sensors and actions in one line."""
        sensors = ", ".join(
            f"{one.name} {'×'.join(map(str, one.shape))}{' PNG' if one.png else ''}" for one in self.sensors
        )
        return f"{sensors}; {self.spec.action}"

    def differs(self, other: UnityBehaviour) -> bool:
        """Return whether the spaces of another player are others."""
        return (self.sensors, self.spec.action) != (other.sensors, other.spec.action)

    def read(self, infos: Sequence[Any]) -> tuple[AgentStates, AgentStates]:
        """Return the agents of a message that ask for a decision, and those that end, in its order.

        Raises EnvError for other spaces, and ValueError for a message in a wrong form.
        """
        asking = [info for info in infos if not info.done]
        return self._states(asking), self._states([info for info in infos if info.done])

    def actions(self, flat: Float) -> Any:  # noqa: ANN401 - of the package
        """Return flat actions [N, A] as the package's ``ActionTuple``."""
        from mlagents_envs.base_env import ActionTuple

        action = self.spec.action
        discrete = np.zeros((len(flat), len(action.branches)), np.int32)
        for branch, where in enumerate(action.branch_slices):
            discrete[:, branch] = flat[:, where].argmax(1)
        return ActionTuple(continuous=flat[:, action.discrete :], discrete=discrete)

    def _states(self, infos: Sequence[Any]) -> AgentStates:
        expected = tuple(sensor.shape for sensor in self.sensors)
        for info in infos:
            shapes = tuple(tuple(observation.shape) for observation in info.observations)
            if shapes != expected:
                raise changed_spaces(
                    self.name,
                    self.describe(),
                    f"agent {info.id} has observations of {', '.join(map(str, shapes))}",
                )
        return AgentStates(
            ids=[int(info.id) for info in infos],
            obs={
                sensor.name: sensor.read([info.observations[k] for info in infos])
                for k, sensor in self.seen.items()
            },
            reward=rewards_of(infos),
            action_mask=self._allowed(infos),
            interrupted=np.array([info.max_step_reached for info in infos], np.bool_),
        )

    def _allowed(self, infos: Sequence[Any]) -> Bool:
        """Return the masks, in which Unity's True forbids, as ours, in which True allows."""
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


def rewards_of(infos: Sequence[Any]) -> Float:
    """Return rewards [N], the agents' own and their groups'."""
    return np.array([info.reward + info.group_reward for info in infos], np.float32)


def changed_spaces(behaviour: str, before: str, now: str) -> EnvError:
    """Return the error of spaces that are not those that the agents were made for."""
    return EnvError(
        f"the spaces of the Unity behaviour {behaviour} have changed",
        why=f"they were {before}\nnow: {now}",
        fix="train a new run with that build; sensors and actions must stay as they are while it runs",
    )


def decode_images(data: bytes, shape: Sequence[int], mapping: Sequence[int]) -> NDArray[np.uint8]:
    """Return consecutive PNGs as one image of this shape [H, W, C].

    mapping: channel for each channel of the PNGs, -1 for one to leave out; several of the same are averaged.
             Empty: the first channels, and for a single one the mean of three
    Raises ValueError for data that are no PNGs, and for another size, which is not decoded, or mapping.
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
    parts = [[at for at, to in enumerate(target) if to == channel] for channel in range(channels)]
    planes = [
        image[..., part[0]] if len(part) == 1 else np.rint(image[..., part].mean(axis=2)) for part in parts
    ]
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
    shape = tuple(int(size) for size in spec.shape)
    properties = tuple(int(one) for one in spec.dimension_property)
    png = message.compression_type != 0
    axes = ""
    if len(shape) == 3:
        known: dict[tuple[int, ...], str]
        known = {_CHANNELS_FIRST: "CHW", _CHANNELS_LAST: "HWC", _UNSAID: "HWC"}
        axes = known.get(properties, "HWC" if png else "")
    return UnitySensor(name=name, shape=shape, axes=axes, png=png)


def _unique(given: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each sensor: unnamed ones and those of the same name get a number."""
    names: list[str] = []
    for number, name in enumerate(given):
        own = name if name and given.count(name) == 1 else f"{name or 'sensor'}_{number}"
        while own != name and own in (*given, *names):
            own += "_"
        names.append(own)
    return tuple(names)
