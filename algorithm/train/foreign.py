"""Networks and replays that a training begins with: of its own checkpoint, or of ``--networks FOLDER``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from algorithm.agents.base import Agent
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.runs.checkpoints.checkpoint import Checkpoint, load_checkpoint, load_replay
from algorithm.runs.checkpoints.manifest import MANIFEST
from algorithm.runs.names import behaviour_file
from algorithm.train.state import fitting


def load_replays(agents: Mapping[str, Agent], saved: Checkpoint, replays: Path) -> list[str]:
    """Load the replays of a checkpoint, each hashed while it is read; returns a line for each that it lacks.

    replays: folder of the segments
    Raises DamagedError, with the replays unusable, and StorageError for one that does not fit.
    """
    with fitting(saved.path):
        missing = [
            name
            for name, agent in agents.items()
            for store, replay in agent.stores().items()
            if not load_replay(saved.path, replays, behaviour_file(name, store), replay)
        ]
    owners = ("its" if name == DEFAULT_BEHAVIOUR else f"{name}'s" for name in missing)
    return [f"{its} replay was not saved (checkpoint_config.replay): it begins empty" for its in owners]


@dataclass(frozen=True)
class ForeignNetworks:
    """Networks that no checkpoint of the run holds: ``--networks FOLDER``.

    folder: a checkpoint; with a folder ``replay`` in it, of segments, its moments and replay count, too
    keep:   ``base_config.evolver_keep``, what stays when the run goes on with them
    """

    folder: Path
    keep: Collection[str]

    def __post_init__(self) -> None:
        """Raise UsageError unless it is the folder of a checkpoint."""
        there = False
        with suppress(OSError, ValueError):  # no system has such a path
            there = (self.folder / MANIFEST).is_file()
        if not there:
            raise UsageError(
                "there are no networks to begin with",
                where=f"--networks {self.folder!s:.200}",
                why=f"it is not the folder of a checkpoint: it has no {MANIFEST}",
                fix="give one, such as --networks models/TASK/NAME/checkpoints/step_000100000",
            )

    @property
    def replay(self) -> Path | None:
        """Segments of the replay that comes along; None without one."""
        folder = self.folder / "replay"
        return folder if folder.is_dir() else None


def load_foreign_replays(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own: Checkpoint, replays: Path
) -> list[str]:
    """Load the replays that go with networks from elsewhere; returns lines for the user.

    own, replays: checkpoint and segments of the run itself
    Raises StorageError as :func:`load_replays`.
    """
    if "replay" not in foreign.keep:
        return ["base_config.evolver_keep does not name the replay: it begins empty"]
    if foreign.replay is None:
        return load_replays(agents, own, replays)
    lines = load_replays(agents, replace(own, path=foreign.folder), foreign.replay)
    for agent in agents.values():
        for replay in agent.stores().values():
            replay.forget_saved()  # its rows are in no segment of this run
            replay.close_all()  # this run's episodes do not continue those of the other
    return [*lines, f"the replay is that of {foreign.folder}"]


def begin_with_networks(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own: Checkpoint | None
) -> list[str]:
    """Let agents begin with networks from elsewhere; returns lines for the user.

    own: checkpoint that the run goes on from, None for a new run
    Raises StorageError if there are none, or they do not fit.
    """
    found = load_checkpoint(foreign.folder)
    moments = None
    if own is not None and "optimiser" in foreign.keep:
        moments = own if foreign.replay is None else found
    for name, agent in agents.items():
        try:
            model = found.tensors[behaviour_file(name, "model")]
            agent.begin_with(model, moments.tensors.get(behaviour_file(name, "optim")) if moments else None)
        except (KeyError, ValueError) as error:
            raise StorageError(
                "the networks do not fit this agent",
                where=foreign.folder,
                why=str(error) if isinstance(error, ValueError) else f"there are none for {name!r}",
                fix="give a checkpoint of the same networks and configuration: --networks FOLDER",
            ) from error
    return [f"the networks are those of {foreign.folder}"]
