"""TensorBoard's event files, for one behaviour each."""

from __future__ import annotations

import ctypes
import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from algorithm.store.logs.rows import RecordFile

EVENT_FILES = "events.out.tfevents.*"
"""Pattern of their file names."""


def event_file(folder: Path, purge: int | None = None) -> RecordFile:
    """Return a new event file in a folder, which is created with the first record.

    The package's own writer is not used: it requires gRPC and protobuf, its thread ends at the first error,
    and it is unknown then which records were written. A row is one record, so it is whole or missing.

    purge: step of a resumed run: TensorBoard drops the points of earlier files from this step on
    """
    stamps = [path.name.split(".")[3] for path in folder.glob(EVENT_FILES)]  # read in their order
    stamp = max([int(time.time()), *(int(before) + 1 for before in stamps if before.isdigit())])
    head = _record(0, _bytes(_FILE_VERSION, b"brain.Event:2"))
    if purge is not None:
        head += _record(purge, _bytes(_SESSION_LOG, _number(1, _SESSION_START)))
    name = f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}"
    return RecordFile(folder / name, begun=False, head=head)


def event_of(step: int, row: Mapping[str, float]) -> bytes:
    """Return the record of a row's finite numbers; empty without any."""
    values = []
    for name, value in row.items():
        if math.isfinite(value):
            single = ctypes.c_float(value).value  # beyond float32's range it is infinite
            values.append(_bytes(1, name.encode()) + _key(2, _FLOAT) + struct.pack("<f", single))
    return _record(step, _bytes(_SUMMARY, b"".join(_bytes(1, value) for value in values))) if values else b""


_DOUBLE, _BYTES, _FLOAT = 1, 2, 5
"""Wire types of protobuf besides 0, a whole number."""
_FILE_VERSION, _SUMMARY, _SESSION_LOG = 3, 5, 7
"""Fields of a message ``Event`` (tensorflow/core/util/event.proto) besides 1, the time, and 2, the step."""
_SESSION_START = 1


def _record(step: int, content: bytes) -> bytes:
    """Return an event with a content as a record: length, event, and a checksum behind each."""
    event = _key(1, _DOUBLE) + struct.pack("<d", time.time()) + (_number(2, step) if step else b"") + content
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _bytes(field: int, content: bytes) -> bytes:
    """Encode a field of protobuf with bytes."""
    return _key(field, _BYTES) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    """Encode a field of protobuf with a whole number."""
    return _key(field, 0) + _varint(value)


def _key(field: int, wire: int) -> bytes:
    """Encode number and wire type of a field of protobuf."""
    return _varint(field << 3 | wire)


def _varint(value: int) -> bytes:
    """Return a number ≥ 0 in groups of seven bits, the lowest first."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _table() -> Iterator[int]:
    """Yield the remainder of each byte by the polynomial of CRC-32C (RFC 3720, appendix B.4), reflected."""
    for remainder in range(256):
        for _ in range(8):
            remainder = remainder >> 1 ^ 0x82F63B78 * (remainder & 1)
        yield remainder


_TABLE = tuple(_table())


def _checksum(data: bytes) -> bytes:
    """Return the CRC-32C of data, rotated and shifted as in TFRecord files."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
