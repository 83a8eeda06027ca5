"""Framing of ``.demo`` files: records with their length before them. No length is trusted.

The meta data are at byte 0, the parameters of the behaviour at byte 33, and behind them is a record for each
step. A recorder writes the meta data twice: without numbers first, and with them when it closes the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from algorithm.demos.episode import FaultyRecordingError

MOST_STEPS = 10**7
VERSIONS = (0, 1)

_META = 32  # bytes
_PARAMETERS = 2**20
_RECORD = 64 * 2**20
_DIGITS = 5  # bytes of a length: seven bits each


class DemoRecords:
    """Messages of a file, read one after the other.

    file: opened for reading bytes
    cut:  whether the file ends within a record
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._left = self._size  # bytes to come
        self._start = 0  # offset of the last record
        self.cut = False

    def meta(self, message: Any) -> Any:  # noqa: ANN401 - protobuf messages
        """Return the meta data. Raises FaultyRecordingError, also for a version that is not known."""
        meta = self._required(message, _META, "meta data")
        if meta.api_version not in VERSIONS:
            raise FaultyRecordingError(f"its version is {meta.api_version}; 0 and 1 can be read")
        if not 0 <= meta.number_steps <= MOST_STEPS:
            raise FaultyRecordingError(
                f"its meta data state {meta.number_steps:,} steps; at most {MOST_STEPS:,} can be read"
            )
        return meta

    def brain(self, message: Any) -> Any:  # noqa: ANN401 - protobuf messages
        """Return the parameters of the behaviour, which begin at byte 33. Raises FaultyRecordingError."""
        self._file.seek(_META + 1)
        self._left = max(0, self._size - _META - 1)
        return self._required(message, _PARAMETERS, "parameters of the behaviour")

    def pairs(self, message: Any) -> Iterator[Any]:  # noqa: ANN401 - protobuf messages
        """Yield the message of each step. Raises FaultyRecordingError for one that is broken."""
        while (data := self._record(_RECORD, "step")) is not None:
            yield self._decoded(message, data, "step")

    def _required(self, message: Any, limit: int, what: str) -> Any:  # noqa: ANN401 - protobuf messages
        """Return the next message. Raises FaultyRecordingError if the file ends before it."""
        data = self._record(limit, what)
        if data is None:
            raise FaultyRecordingError(f"it ends before its {what}")
        return self._decoded(message, data, what)

    def _decoded(self, message: Any, data: bytes, what: str) -> Any:  # noqa: ANN401 - protobuf messages
        """Return a message from its bytes. Raises FaultyRecordingError."""
        from google.protobuf.message import DecodeError  # installed with the classes of messages

        try:
            return message.FromString(data)
        except DecodeError as error:
            raise FaultyRecordingError(f"the {what} cannot be decoded", self._where()) from error

    def _record(self, limit: int, what: str) -> bytes | None:
        """Return the bytes of the next record; None at the end of the file, and sets :attr:`cut`."""
        self._start = self._size - self._left
        length = 0
        for digit in range(_DIGITS):
            byte = self._file.read(1)
            if not byte:
                self.cut = digit > 0
                return None
            self._left -= 1
            length |= (byte[0] & 0x7F) << 7 * digit
            if byte[0] < 0x80:
                break
        else:
            raise FaultyRecordingError(f"expected the length of the {what}", self._where())
        if length > limit:
            raise FaultyRecordingError(
                f"{what} of {length:,} bytes; at most {limit:,} can be read", self._where()
            )
        if length > self._left:
            self.cut = True
            return None
        self._left -= length
        return self._file.read(length)

    def _where(self) -> str:
        """Return the offset of the last record, for messages."""
        return f"byte {self._start:,}"
