"""Planned failures of the player: ``KIND@PLACE``, as in ``crash@step:50`` or ``hang@handshake#1``."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.extras.unity.testing.messages import ObservationProto

KINDS = {
    "crash": "a segmentation fault",
    "exit": "an exception, with exit code 1",
    "hang": "sleeps for ever",
    "quit": "says goodbye and ends with code 0",
    "spaces": "vectors have one number more from there on",
    "short": "observations have less data than their shape says from there on",
}
PLACES = "start, handshake, reset or step:N"


class QuitError(Exception):
    """Exception for a planned end of the application."""


@dataclass(frozen=True)
class PlannedFault:
    """A planned failure: its kind, its place, the step, and the number of the start (0: every start)."""

    kind: str
    place: str
    step: int = 0
    start: int = 0

    @staticmethod
    def parse(text: str) -> PlannedFault:
        """Read ``KIND@PLACE[:N][#START]``. Raises ValueError."""
        match = re.fullmatch(r"([\w-]+)@(start|handshake|reset|step)(?::(\d+))?(?:#(\d+))?", text)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"{text!r} is not KIND@PLACE with one of {', '.join(KINDS)} at {PLACES}")
        return PlannedFault(match[1], match[2], int(match[3] or 0), int(match[4] or 0))


class FaultPlan:
    """Planned failures of this process.

    starts: file that counts the starts of a build, for failures of the first or second one only
    """

    def __init__(self, planned: list[PlannedFault], starts: Path | None) -> None:
        self.start = 1
        if starts is not None:
            with starts.open("ab") as file:
                file.write(b".")
            self.start = starts.stat().st_size
        self._planned = [fault for fault in planned if fault.start in (0, self.start)]
        self._active: set[str] = set()

    def reach(self, place: str, step: int = 0) -> None:
        """Cause the failures planned for this place and step. Raises QuitError for a planned end."""
        for fault in self._planned:
            if fault.place == place and fault.step == step:
                self._cause(fault.kind)

    def _cause(self, kind: str) -> None:
        """Crash, end or hang the process, by ``kind``; any other kind becomes active."""
        if kind == "crash":
            print("Caught fatal signal - signo:11 code:1 errno:0 addr:(nil)", flush=True)
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        elif kind == "exit":
            print("NullReferenceException: Object reference not set to an instance of an object", flush=True)
            sys.stderr.flush()
            os._exit(1)
        elif kind == "hang":
            print("(the player hangs)", flush=True)
            while True:
                time.sleep(3600)
        elif kind == "quit":
            raise QuitError
        else:
            self._active.add(kind)

    def values(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return a sensor's value, with one number more after the failure ``spaces``."""
        return np.append(value, np.float32(0)) if "spaces" in self._active and value.ndim == 1 else value

    def message(self, message: ObservationProto) -> ObservationProto:
        """Return a sensor's message, with less data after the failure ``short``."""
        if "short" in self._active:
            del message.float_data.data[-1:]
            message.compressed_data = message.compressed_data[:-30]
        return message
