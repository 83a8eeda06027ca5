"""TensorBoard's event files, for one behaviour each."""

from __future__ import annotations

import base64
import io
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from algorithm.runs.files import GrowingFile
from algorithm.runs.logs.sinks import naming

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tensorboard.compat.proto.event_pb2 import Event


EVENT_FILES = "events.out.tfevents.*"
"""Pattern of their file names."""


class LoggedPicture(NamedTuple):
    """A picture as TensorBoard stores it."""

    height: int
    width: int
    colours: int  # 1 grey, 3 red, green and blue
    png: bytes

    @classmethod
    def of(cls, pixels: NDArray[np.uint8]) -> LoggedPicture:
        """pixels [H, W, C]."""
        from PIL import Image

        png = io.BytesIO()
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(png, "PNG")
        height, width, colours = pixels.shape
        return cls(height, width, colours, png.getvalue())

    def as_json(self) -> list[int | str]:
        """For a state; :meth:`from_json` takes it back."""
        return [*self[:3], base64.b64encode(self.png).decode("ascii")]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> LoggedPicture:
        """Parse :meth:`as_json`."""
        height, width, colours, png = plain
        return cls(height, width, colours, base64.b64decode(png))


EventRow = Mapping[str, float | LoggedPicture]
"""Values by column, pictures among them."""


class EventSink:
    """One event file of TensorBoard in a folder, made with the first row.

    Tensorboard's own writer is not used: its thread ends at the first error, and it is unknown then what has
    been written. A row is one record, so it is whole or not there.

    folder: created if need be, but not that above it; files of the run's earlier processes may lie in it
    purge:  a resumed run's: TensorBoard forgets what earlier files say of this step and later ones
    """

    def __init__(self, folder: Path, purge: int | None = None) -> None:
        self.path = folder
        self._purge = purge
        self._file: GrowingFile | None = None
        self._head = b""

    def write(self, step: int, row: EventRow) -> None:
        """Append the numbers and pictures of a row. A row without finite values only creates the file."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        event = Event(wall_time=time.time(), step=step)
        for name, value in row.items():
            if isinstance(value, LoggedPicture):
                image = Summary.Image(
                    height=value.height,
                    width=value.width,
                    colorspace=value.colours,
                    encoded_image_string=value.png,
                )
                event.summary.value.add(tag=name, image=image)
            elif math.isfinite(value):
                event.summary.value.add(tag=name, simple_value=value)
        with naming(self.path):
            file = self._opened()
            file.append(self._head + (_record(event) if event.summary.value else b""))
            self._head = b""

    def _opened(self) -> GrowingFile:
        if self._file is None:
            self.path.mkdir(exist_ok=True)  # not those above: a run that was moved away is not begun again
            self._file = GrowingFile(self.path / _next_event_file(self.path))
            self._head = b"".join(_record(event) for event in _first_events(self._purge))
        return self._file

    def sync(self) -> None:
        """Force the written events to the disk."""
        if self._file is not None:
            with naming(self.path):
                self._file.sync()


def _first_events(purge: int | None) -> list[Event]:
    """Return the version of the format, which a restart needs in front of it, and that at ``purge``."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    version = Event(wall_time=time.time(), file_version="brain.Event:2")
    if purge is None:
        return [version]
    restart = SessionLog(status=SessionLog.START)
    return [version, Event(wall_time=time.time(), step=purge, session_log=restart)]


def _record(event: Event) -> bytes:
    from tensorboard.summary.writer.record_writer import RecordWriter

    record = io.BytesIO()
    RecordWriter(record).write(event.SerializeToString())
    return record.getvalue()


def _next_event_file(folder: Path) -> str:
    """Return a name that sorts behind those in the folder: TensorBoard reads them in that order."""
    stamps = [path.name.split(".")[3] for path in folder.glob(EVENT_FILES)]
    stamp = max([int(time.time()), *(int(before) + 1 for before in stamps if before.isdigit())])
    return f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}"
