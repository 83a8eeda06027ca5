"""The player's own record of a run, in JSON lines: options, commands, transitions."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.unity_player.messages import UnityRLInitializationInputProto

if TYPE_CHECKING:
    from tests.unity_player.academy import Academy
    from tests.unity_player.agent import Agent, Question, Values


class Ledger:
    """A file of a process: a line for the start, each command, setting, and transition.

    A transition is written when the message with its result is sent. Images are left out.
    """

    def __init__(self, folder: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns()}-{port}-{os.getpid()}.jsonl"
        self.file = folder / name
        self._stream = self.file.open("w", encoding="utf-8")

    def write(self, entry: dict[str, Any]) -> None:
        self._stream.write(json.dumps(entry) + "\n")
        if entry.get("kind") != "transition":
            self._stream.flush()

    def flush(self) -> None:
        """Hand everything to the system, before the message goes out."""
        self._stream.flush()

    def start(self, academy: Academy, first: UnityRLInitializationInputProto) -> None:
        self.write(
            {
                "kind": "start",
                "pid": os.getpid(),
                "argv": sys.argv[1:],
                "seed": first.seed,
                "areas": first.num_areas,
                "api": first.communication_version,
                "start": academy.faults.start,
            }
        )

    def transition(self, agent: Agent, question: Question, after: Values, end: str | None) -> None:
        assert question.action is not None
        self.write(
            {
                "kind": "transition",
                "behaviour": agent.behaviour.name,
                "agent": agent.id,
                "episode": agent.book.episode,
                "decision": agent.book.decision - 1,
                "obs": _numbers(question.values),
                "mask": question.mask,
                "continuous": question.action.continuous.tolist(),
                "discrete": question.action.discrete.tolist(),
                "reward": agent.reward,
                "group_reward": agent.group_reward,
                "after": _numbers(after),
                "end": end,
            }
        )


def _numbers(values: Values) -> list[list[float]]:
    return [value.ravel().tolist() for value in values if value.dtype.kind == "f"]
