"""Sensors of an agent, which encode values as observations of the protocol, in each of its forms."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typing_extensions import override

from algorithm.extras.unity.testing.messages import ObservationProto

NONE, TRANSLATIONAL, VARIABLE = 1, 2, 4  # dimension properties


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an image [H, W, 3] as a PNG."""
    data = io.BytesIO()
    Image.fromarray(image).save(data, "PNG", compress_level=1)
    return data.getvalue()


class Sensor(ABC):
    """A sensor of one agent; it remembers the values of a stack.

    frame: shape of a value
    stack: number of values in an observation, oldest first
    """

    needs_graphics = False

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        properties: tuple[int, ...],
        *,
        frame: tuple[int, ...],
        stack: int = 1,
    ) -> None:
        self.name, self.shape, self.properties = name, shape, properties
        self.frame, self.stack = frame, stack
        self._frames: deque[NDArray[Any]] = deque(maxlen=stack)
        self.reset()

    def reset(self) -> None:
        """Clear the frames of the last episode."""
        self._frames.extend([np.zeros(self.frame, np.uint8)] * self.stack)

    def observe(self, value: NDArray[Any]) -> ObservationProto:
        """Return the message of the next value."""
        message = ObservationProto(name=self.name, shape=self.shape, dimension_properties=self.properties)
        self._frames.append(value)
        self._fill(message, value)
        return message

    @abstractmethod
    def _fill(self, message: ObservationProto, value: NDArray[Any]) -> None:
        """Write the data of a message."""


class Vector(Sensor):
    """Sensor of ``size`` numbers; the last ``stack`` values one after the other."""

    def __init__(self, name: str, size: int, *, stack: int = 1) -> None:
        super().__init__(name, (size * stack,), (NONE,), frame=(size,), stack=stack)

    @override
    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        numbers = np.concatenate(self._frames)
        message.shape[:] = [len(numbers)]  # it differs after the failure `spaces`
        message.float_data.data.extend(np.asarray(numbers, np.float32))


class Buffer(Sensor):
    """Sensor of up to ``most`` entities of ``size`` numbers each; further rows are zeros."""

    def __init__(self, name: str, most: int, size: int) -> None:
        super().__init__(name, (most, size), (VARIABLE, NONE), frame=(most, size))

    @override
    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        padded = np.zeros(self.shape, np.float32)
        padded[: len(value)] = value
        message.float_data.data.extend(padded.ravel())


class Camera(Sensor):
    """Sensor of images [H, W, C] of bytes; C is 1 for grey, 3 for colours, any other number for a grid.

    layout: "HWC" as the C# package sends it up to version 2, "CHW" from version 3 on
    png:    send PNGs; else numbers from 0 to 1
    stack:  number of images along the channels
    mapped: send the mapping of channels even if it is the default
    typed:  send the properties of dimensions, as packages from 2.0 on do
    """

    def __init__(
        self,
        name: str,
        height: int,
        width: int,
        channels: int = 3,
        *,
        layout: str = "HWC",
        png: bool = True,
        stack: int = 1,
        mapped: bool = False,
        typed: bool = True,
    ) -> None:
        full = channels * stack
        first = layout == "CHW"
        shape = (full, height, width) if first else (height, width, full)
        axes = (NONE, TRANSLATIONAL, TRANSLATIONAL) if first else (TRANSLATIONAL, TRANSLATIONAL, NONE)
        frame = (height, width, channels)
        super().__init__(name, shape, axes if typed else (), frame=frame, stack=stack)
        self._png, self._first, self._channels = png, first, channels
        self.needs_graphics = channels in (1, 3)  # a grid is computed
        self._mapping = self._map(stack) if mapped or stack > 1 or channels not in (1, 3) else []

    def _map(self, stack: int) -> list[int]:
        """Return the image's channel for each channel of the PNGs; -1 for padding."""
        channels = self._channels
        image = [0, 0, 0] if channels == 1 else [*range(channels), *[-1] * (-channels % 3)]
        return [at + channels * frame if at >= 0 else -1 for frame in range(stack) for at in image]

    @override
    def _fill(self, message: ObservationProto, value: NDArray[np.uint8]) -> None:
        if self._png:
            message.compression_type = 1
            message.compressed_data = b"".join(self._pngs(frame) for frame in self._frames)
            message.compressed_channel_mapping.extend(self._mapping)
            return
        image = np.concatenate(self._frames, axis=2).astype(np.float32) / 255
        message.float_data.data.extend((image.transpose(2, 0, 1) if self._first else image).ravel())

    def _pngs(self, frame: NDArray[np.uint8]) -> bytes:
        """Return a frame as PNGs of three channels each; grey is in all three."""
        if self._channels == 1:
            return png(np.repeat(frame, 3, axis=2))
        padded = np.zeros((*frame.shape[:2], self._channels + -self._channels % 3), np.uint8)
        padded[:, :, : self._channels] = frame
        return b"".join(png(padded[:, :, at : at + 3]) for at in range(0, padded.shape[2], 3))
