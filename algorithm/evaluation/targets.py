"""Targets of recordings: from the text of ``--record`` to a writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from algorithm.core.errors import UsageError
from algorithm.core.spec import AgentSpec
from algorithm.demos.config import MINARI
from algorithm.demos.demo_writing import DemoWriter
from algorithm.demos.episode import EpisodeWriter, RecordedEpisode
from algorithm.demos.minari import dataset_id
from algorithm.demos.minari_writer import MinariWriter, refuse_taken
from algorithm.demos.npz import NpzWriter
from algorithm.runs.names import behaviour_level

MakeWriter = Callable[[Path, AgentSpec, str], EpisodeWriter]
"""(file, what the behaviour sees and does, its name) -> writer of a file for one behaviour."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What is recorded.

    specs:     of the behaviours
    make_env:  makes the environment in its wrappers, for its spaces
    algorithm: of the policy; description: of the recording, for a person
    """

    specs: Mapping[str, AgentSpec]
    make_env: Callable[[], gym.Env[Any, Any]]
    algorithm: str
    description: str


class FilePerBehaviour:
    """Writer of a file for each behaviour, the name of several in that of the file.

    make: of each file
    """

    def __init__(self, make: MakeWriter, path: Path, specs: Mapping[str, AgentSpec]) -> None:
        several = len(specs) > 1
        self.target = str(_named(path, "BEHAVIOUR") if several else path)
        self._writers = {
            name: make(_named(path, behaviour_level(name) or name) if several else path, spec, name)
            for name, spec in specs.items()
        }
        self._counts = dict.fromkeys(specs, 0)

    def begin(self) -> None:
        """Open all of them."""
        for writer in self._writers.values():
            writer.begin()

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode to its file."""
        name = episode.behaviour
        self._writers[name].write(replace(episode, number=self._counts[name]))
        self._counts[name] += 1

    def finish(self) -> None:
        """Complete those with an episode; others are not there."""
        for name, writer in self._writers.items():
            if self._counts[name]:
                writer.finish()
            else:
                writer.discard()

    def discard(self) -> None:
        """Leave nothing behind."""
        for writer in self._writers.values():
            writer.discard()


def _named(path: Path, behaviour: str) -> Path:
    return path.with_name(f"{path.stem}.{behaviour}{path.suffix}")


WRITERS: Mapping[str, Callable[[Path, Mapping[str, AgentSpec]], EpisodeWriter]] = {
    ".npz": lambda path, specs: NpzWriter(path),
    ".demo": partial(FilePerBehaviour, DemoWriter),
}
"""By the ending of a file's name; the keys are the endings of ``demos/config.py``."""


def refuse_target(target: str | None) -> None:
    """Raise UsageError for a target that is there and that nothing overwrites, and without its package."""
    if target is not None and target.startswith(MINARI):
        refuse_taken(dataset_id(target))


def open_target(target: str, played: Played) -> EpisodeWriter:
    """Return the writer of a target, ``FILE.npz``, ``FILE.demo`` or ``minari:ID``.

    Raises UsageError for what the target cannot hold.
    """
    if not target.startswith(MINARI):
        return WRITERS[Path(target).suffix](Path(target), played.specs)
    if len(played.specs) > 1:
        raise UsageError(
            "a data set of Minari holds one behaviour",
            where=target,
            why=f"these are {', '.join(map(repr, played.specs))}",
            fix="record to a FILE.npz",
        )
    try:
        env = played.make_env()
    except UsageError as error:
        raise UsageError(
            "a data set of Minari needs the spaces of a Gymnasium environment",
            where=target,
            why=error.what,
            fix="record to a FILE.npz",
        ) from error
    env.close()  # its spaces stay, and what makes it
    says = {"algorithm": played.algorithm, "description": played.description}
    return MinariWriter(dataset_id(target), env, **says)
