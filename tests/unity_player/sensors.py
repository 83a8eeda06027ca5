"""Sensors of an agent: a value becomes an observation of the protocol, in each of its forms."""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tests.unity_player.messages import ObservationProto

if TYPE_CHECKING:
    from typing import Any

UNSPECIFIED, NONE, TRANSLATIONAL, VARIABLE = 0, 1, 2, 4  # dimension properties

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
    """One observation of one agent, with the memory that a stack needs."""

    needs_graphics = False

    def __init__(self, name: str, shape: tuple[int, ...], properties: tuple[int, ...]) -> None:
        self.name, self.shape, self.properties = name, shape, properties

    def reset(self) -> None:  # noqa: B027 - only stacks have anything to forget
        """Forget the frames of the last episode."""

    def observe(self, value: NDArray[Any]) -> ObservationProto:
        """Return the message of a value."""
        message = ObservationProto(name=self.name, shape=self.shape, dimension_properties=self.properties)
        self._fill(message, value)
        return message

    @abstractmethod
    def _fill(self, message: ObservationProto, value: NDArray[Any]) -> None:
        """Write the data of a message."""


class Vector(Sensor):
    """``size`` numbers, the last ``stack`` observations one after the other, oldest first."""

    def __init__(self, name: str, size: int, *, stack: int = 1) -> None:
        super().__init__(name, (size * stack,), (NONE,))
        self._zeros = np.zeros(size, np.float32)
        self._frames: deque[NDArray[np.float32]] = deque(maxlen=stack)
        self.reset()

    def reset(self) -> None:
        self._frames.extend([self._zeros] * (self._frames.maxlen or 1))

    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        if np.shape(value) != self._zeros.shape:  # a build that changes its spaces
            del message.shape[:]
            message.shape.append(len(value))
            message.float_data.data.extend(np.asarray(value, np.float32))
            return
        self._frames.append(np.asarray(value, np.float32))
        message.float_data.data.extend(np.concatenate(self._frames))


class Buffer(Sensor):
    """Up to ``most`` entities of ``size`` numbers each; rows after the last one are zeros."""

    def __init__(self, name: str, most: int, size: int) -> None:
        super().__init__(name, (most, size), (VARIABLE, NONE))

    def _fill(self, message: ObservationProto, value: NDArray[np.float32]) -> None:
        padded = np.zeros(self.shape, np.float32)
        padded[: len(value)] = value
        message.float_data.data.extend(padded.ravel())


class Camera(Sensor):
    """Image of bytes [H, W, C]; C is 1 for grey, 3 for colours, any other number for a grid.

    layout: "HWC" as the C# package sends it up to version 2, "CHW" from version 3 on
    png:    compressed; else numbers from 0 to 1
    stack:  so many images, oldest first, along the channels
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
        super().__init__(name, shape, axes if said else ())
        self._png, self._first, self._channels = png, first, channels
        self.needs_graphics = channels in (1, 3)  # a grid is computed
        self._zeros = np.zeros((height, width, channels), np.uint8)
        self._frames: deque[NDArray[np.uint8]] = deque(maxlen=stack)
        self._mapping = self._map(stack) if mapped or stack > 1 or channels not in (1, 3) else []
        self.reset()

    def _map(self, stack: int) -> list[int]:
        """Return for each channel of the PNGs the channel it belongs to, -1 for one that only fills up."""
        channels = self._channels
        one = [0, 0, 0] if channels == 1 else [*range(channels), *[-1] * (-channels % 3)]
        return [at + channels * frame if at >= 0 else -1 for frame in range(stack) for at in one]

    def reset(self) -> None:
        self._frames.extend([self._zeros] * (self._frames.maxlen or 1))

    def _fill(self, message: ObservationProto, value: NDArray[np.uint8]) -> None:
        self._frames.append(value)
        if self._png:
            message.compression_type = 1
            message.compressed_data = b"".join(self._pngs(frame) for frame in self._frames)
            message.compressed_channel_mapping.extend(self._mapping)
            return
        image = np.concatenate(self._frames, axis=2).astype(np.float32) / 255
        if self._first:
            image = image.transpose(2, 0, 1)
        message.float_data.data.extend(image.ravel())

    def _pngs(self, frame: NDArray[np.uint8]) -> bytes:
        """Return a frame as one PNG for every three channels; grey is in all three."""
        if self._channels == 1:
            return png(np.repeat(frame, 3, axis=2))
        padded = np.zeros((*frame.shape[:2], self._channels + -self._channels % 3), np.uint8)
        padded[:, :, : self._channels] = frame
        return b"".join(png(padded[:, :, at : at + 3]) for at in range(0, padded.shape[2], 3))
