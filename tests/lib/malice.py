"""What somebody could put into a file so that loading it does something."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

from algorithm.store.files import json_text


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def pickled(trap: Trap, file: Path) -> None:
    """Nothing but the trap."""
    file.write_bytes(pickle.dumps(trap))


def sign(checkpoint: Path, manifest: dict[str, object]) -> None:
    """Write the manifest of somebody who forges with care: its own hash is right."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    digest = hashlib.sha256(json_text(content).encode()).hexdigest()
    (checkpoint / "manifest.json").write_text(json_text({**content, "sha256": digest}))


def flip_a_byte(file: Path, at: int = -1) -> None:
    """A byte, the last one unless ``at`` says which, becomes another one."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
