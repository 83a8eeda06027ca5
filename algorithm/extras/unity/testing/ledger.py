"""The player's record of a run, in JSON lines: options, commands, transitions."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from algorithm.extras.unity.testing.messages import UnityRLInitializationInputProto


class PlayerLedger:
    """Ledger file of a process: a line for the start, each command, setting and transition.

    A transition is written when the message with its result is sent. Images are left out.
    """

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{port}-{os.getpid()}.jsonl"
        self.file = folder / name
        self._output = self.file.open("w", encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        """Append a line; transitions are flushed later, by :meth:`flush`."""
        self._output.write(json.dumps(entry) + "\n")
        if entry.get("kind") != "transition":
            self._output.flush()

    def flush(self) -> None:
        """Flush all lines, before a message is sent."""
        self._output.flush()

    def start(self, number: int, first: UnityRLInitializationInputProto) -> None:
        """Write the line of the start; number: of this start of the build, from 1."""
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
