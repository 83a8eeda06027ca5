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

from algorithm.runs.logs.rows import RecordFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


def event_file(folder: Path, purge: int | None = None) -> RecordFile:
    """Return a new event file of a folder, made with the first record.

    Tensorboard's own writer is not used: its thread ends at the first error, and it is unknown then what has
    been written. A row is one record, so it is whole or not there.

    purge: a resumed run's: TensorBoard forgets what earlier files say of this step and later ones
    """
    stamps = [path.name.split(".")[3] for path in folder.glob(EVENT_FILES)]  # read in their order
    stamp = max([int(time.time()), *(int(before) + 1 for before in stamps if before.isdigit())])
    head = _record(file_version="brain.Event:2")
    if purge is not None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        head += _record(step=purge, session_log=SessionLog(status=SessionLog.START))
    name = f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}"
    return RecordFile(folder / name, begun=False, head=head)


def event_of(step: int, row: Mapping[str, float | LoggedPicture]) -> bytes:
    """Return the record of a row's finite numbers and its pictures; empty without any."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = []
    for name, value in row.items():
        if isinstance(value, LoggedPicture):
            image = Summary.Image(
                height=value.height,
                width=value.width,
                colorspace=value.colours,
                encoded_image_string=value.png,
            )
            values.append(Summary.Value(tag=name, image=image))
        elif math.isfinite(value):
            values.append(Summary.Value(tag=name, simple_value=value))
    return _record(step=step, summary=Summary(value=values)) if values else b""


def _record(**fields: object) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    record = io.BytesIO()
    RecordWriter(record).write(Event(wall_time=time.time(), **fields).SerializeToString())
    return record.getvalue()
