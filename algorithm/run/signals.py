"""SIGINT and SIGTERM: the first asks the run to save and end, the second ends it at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context in which signals set a flag instead of raising.

    The handler prints nothing: it may interrupt a print, which would raise.
    """

    def __init__(self) -> None:
        self._former: dict[int, object] = {}
        self.signal: signal.Signals | None = None

    def __enter__(self) -> StopRequest:
        self._former = {number: signal.signal(number, self._handle) for number in _HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """0, or 128 plus the signal's number."""
        return 0 if self.signal is None else 128 + self.signal

    @property
    def text(self) -> str:
        """What to say once the first signal was noticed."""
        return f"{self.signal.name}: saving and ending; once more ends at once" if self.signal else ""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = signal.Signals(number)
