"""What somebody could put into a file so that loading it does something."""

from __future__ import annotations

import pickle
from pathlib import Path


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def pickled(trap: Trap, file: Path) -> None:
    """Nothing but the trap."""
    file.write_bytes(pickle.dumps(trap))
