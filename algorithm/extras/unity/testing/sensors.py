"""Sensors of an agent: a value becomes an observation of the protocol, in each of its forms."""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.extras.unity.testing.messages import ObservationProto

NONE, TRANSLATIONAL, VARIABLE = 1, 2, 4  # dimension properties

PNG_HEADER = b"\x89PNG\r\n\x1a\n"


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode [H, W, 3] as a PNG of eight bits a channel."""
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    return PNG_HEADER + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


class Sensor(ABC):
    """One observation of one agent, with the memory that a stack needs.

    frame: shape of a value
    stack: values in an observation, oldest first
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
        """Forget the frames of the last episode."""
        self._frames.extend([np.zeros(self.frame, np.uint8)] * self.stack)

    def observe(self, value: NDArray[Any]) -> ObservationProto:
        """Return the message of a value."""
        message = ObservationProto(name=self.name, shape=self.shape, dimension_properties=self.properties)
        self._frames.append(value)
        self._fill(message, value)
        return message

    @abstractmethod
    def _fill(self, message: ObservationProto, value: NDArray[Any]) -> None:
        """Write the data of a message."""


class Vector(Sensor):
    """``size`` numbers, the last ``stack`` observations one after the other."""

    def __init__(self, name: str, size: int, *, stack: int = 1) -> None:
        super().__init__(name, (size * stack,), (NONE,), frame=(size,), stack=stack)

    @override
    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        numbers = np.concatenate(self._frames)
        message.shape[:] = [len(numbers)]  # of a build that changes its spaces another one
        message.float_data.data.extend(np.asarray(numbers, np.float32))


class Buffer(Sensor):
    """Up to ``most`` entities of ``size`` numbers each; rows after the last one are zeros."""

    def __init__(self, name: str, most: int, size: int) -> None:
        super().__init__(name, (most, size), (VARIABLE, NONE), frame=(most, size))

    @override
    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        padded = np.zeros(self.shape, np.float32)
        padded[: len(value)] = value
        message.float_data.data.extend(padded.ravel())


class Camera(Sensor):
    """Image of bytes [H, W, C]; C is 1 for grey, 3 for colours, any other number for a grid.

    layout: "HWC" as the C# package sends it up to version 2, "CHW" from version 3 on
    png:    compressed; else numbers from 0 to 1
    stack:  so many images along the channels
    mapped: send the mapping of channels also where the trainer can do without it
    said:   send which dimension is which; packages before 2.0 do not
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
        said: bool = True,
    ) -> None:
        full = channels * stack
        first = layout == "CHW"
        shape = (full, height, width) if first else (height, width, full)
        axes = (NONE, TRANSLATIONAL, TRANSLATIONAL) if first else (TRANSLATIONAL, TRANSLATIONAL, NONE)
        frame = (height, width, channels)
        super().__init__(name, shape, axes if said else (), frame=frame, stack=stack)
        self._png, self._first, self._channels = png, first, channels
        self.needs_graphics = channels in (1, 3)  # a grid is computed
        self._mapping = self._map(stack) if mapped or stack > 1 or channels not in (1, 3) else []

    def _map(self, stack: int) -> list[int]:
        """Return for each channel of the PNGs the channel it belongs to, -1 for one that only fills up."""
        channels = self._channels
        one = [0, 0, 0] if channels == 1 else [*range(channels), *[-1] * (-channels % 3)]
        return [at + channels * frame if at >= 0 else -1 for frame in range(stack) for at in one]

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
        """Return a frame as one PNG for every three channels; grey is in all three."""
        if self._channels == 1:
            return png(np.repeat(frame, 3, axis=2))
        padded = np.zeros((*frame.shape[:2], self._channels + -self._channels % 3), np.uint8)
        padded[:, :, : self._channels] = frame
        return b"".join(png(padded[:, :, at : at + 3]) for at in range(0, padded.shape[2], 3))
