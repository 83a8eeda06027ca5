"""The player's side of the side channels."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from algorithm.extras.unity.testing.messages import IncomingMessage, OutgoingMessage

ENGINE = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
PARAMETERS = uuid.UUID("534c891e-810f-11ea-a9d0-822485860400")
STATISTICS = uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
ANALYTICS = uuid.UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

AGGREGATIONS = ("average", "most_recent", "sum", "histogram")
ENGINE_SETTINGS = ("screen", "quality_level", "time_scale", "target_frame_rate", "capture_frame_rate")


def packed_string(text: str) -> bytes:
    """Return a text as bytes, with its length before it."""
    message = OutgoingMessage()
    message.write_string(text)
    return bytes(message.buffer)


def split(data: bytes) -> Iterator[tuple[uuid.UUID, bytes]]:
    """Yield (channel, message) of each message in a packed field."""
    at = 0
    while at < len(data):
        channel = uuid.UUID(bytes_le=data[at : at + 16])
        (length,) = struct.unpack_from("<i", data, at + 16)
        yield channel, data[at + 20 : at + 20 + length]
        at += 20 + length


@dataclass
class Channels:
    """Side channels of the player; ``on_message`` is called with a description of each received message."""

    on_message: Callable[[dict[str, Any]], None]
    _queue: bytearray = field(default_factory=bytearray)

    def receive(self, data: bytes) -> None:
        """Read the packed messages of the trainer."""
        for channel, message in split(data):
            reader = IncomingMessage(message)
            if channel == ENGINE:
                self.on_message(self._engine(reader))
            elif channel == PARAMETERS:
                self.on_message(self._parameter(reader))
            elif channel != ANALYTICS:
                self.on_message({"kind": "unknown channel", "channel": str(channel), "bytes": len(message)})

    def _engine(self, reader: IncomingMessage) -> dict[str, Any]:
        setting = ENGINE_SETTINGS[reader.read_int32()]
        if setting == "screen":
            value: Any = [reader.read_int32(), reader.read_int32()]
        else:
            value = reader.read_float32() if setting == "time_scale" else reader.read_int32()
        return {"kind": "engine", "setting": setting, "value": value}

    def _parameter(self, reader: IncomingMessage) -> dict[str, Any]:
        name, is_sampler = reader.read_string(), reader.read_int32()
        sampler, seed, count = "number", None, 1
        if is_sampler:
            seed, sampler = reader.read_int32(), ("uniform", "gaussian", "multirange")[reader.read_int32()]
            count = reader.read_int32() if sampler == "multirange" else 2
        numbers = [reader.read_float32() for _ in range(count)]
        return {"kind": "parameter", "name": name, "sampler": sampler, "numbers": numbers, "seed": seed}

    def statistic(self, name: str, value: float, aggregation: str = "average") -> None:
        """Send a value as C#'s StatsRecorder does."""
        numbers = struct.pack("<fi", value, AGGREGATIONS.index(aggregation))
        self.send(STATISTICS, packed_string(name) + numbers)

    def send(self, channel: uuid.UUID, message: bytes) -> None:
        """Queue a message for the trainer."""
        self._queue += channel.bytes_le + struct.pack("<i", len(message)) + message

    def take(self) -> bytes:
        """Return all queued messages, and clear the queue."""
        data = bytes(self._queue)
        self._queue.clear()
        return data
