"""The player's own record of a run, in JSON lines: options, commands, transitions."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from algorithm.extras.unity.testing.messages import UnityRLInitializationInputProto


class PlayerLedger:
    """A file of a process: a line for the start, each command, setting, and transition.

    A transition is written when the message with its result is sent. Images are left out.
    """

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{port}-{os.getpid()}.jsonl"
        self.file = folder / name
        self._stream = self.file.open("w", encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append a line; those of transitions wait for the next flush."""
        self._stream.write(json.dumps(entry) + "\n")
        if entry.get("kind") != "transition":
            self._stream.flush()

    def flush(self) -> None:
        """Hand everything to the system, before the message goes out."""
        self._stream.flush()

    def start(self, number: int, first: UnityRLInitializationInputProto) -> None:
        """Note how the process was begun. number: of the start, from 1, among those of its build."""
        self.write(
            {
                "kind": "start",
                "pid": os.getpid(),
                "argv": sys.argv[1:],
                "seed": first.seed,
                "areas": first.num_areas,
                "api": first.communication_version,
                "start": number,
            }
        )
