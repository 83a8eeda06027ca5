"""Networks and replays that a training begins with: of its own checkpoint, or of another run's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from torch import Tensor

from algorithm.agents.base import Agent
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.nn.learning.optimiser import without_prefix
from algorithm.run.inputs import RunInputs
from algorithm.run.state import misfit_errors
from algorithm.store.checkpoints.checkpoint import Checkpoint, load_checkpoint, load_replay
from algorithm.store.checkpoints.manager import find_checkpoint
from algorithm.store.checkpoints.manifest import MANIFEST
from algorithm.store.names import Ckpt, behaviour_file, is_name, is_run_name, names_beside
from algorithm.store.rundir import RunDir

_SHOWN = 8  # tensors that do not fit


def load_replays(agents: Mapping[str, Agent], saved: Checkpoint, replays: Path) -> list[str]:
    """Load the replays of a checkpoint, verified while they are read; return a line for each missing one.

    replays: folder of the segments
    Raises DamagedError, after which the agents' replays are unusable, and StorageError for a misfit.
    """
    with misfit_errors(saved.path):
        missing = [
            name
            for name, agent in agents.items()
            for store, replay in agent.stores().items()
            if not load_replay(saved.path, replays, behaviour_file(name, store), replay)
        ]
    owners = ("its" if name == DEFAULT_BEHAVIOUR else f"{name}'s" for name in missing)
    return [f"{its} replay was not saved (checkpoint_config.replay): it starts empty" for its in owners]


@dataclass(frozen=True)
class ForeignNetworks:
    """Networks from another run, which ``init_from`` names.

    saved:  their checkpoint; if it has a folder ``replay``, its optimizer moments and replay are used, too
    keep:   ``base_config.evolver_keep``, components that a resumed run keeps when it goes on with them
    parts:  components of the agents to take from it; None: all
    pinned: text for ``init_from`` that names exactly this checkpoint
    """

    saved: Checkpoint
    keep: Collection[str]
    parts: Collection[str] | None
    pinned: str

    @property
    def replay(self) -> Path | None:
        """Folder with the segments of its replay; None without one."""
        folder = self.saved.path / "replay"
        return folder if folder.is_dir() else None

    @property
    def origin(self) -> dict[str, object]:
        """Source, step, and SHA-256 of the checkpoint's manifest, for the manifest of the run."""
        manifest = (self.saved.path / MANIFEST).read_bytes()
        return {
            "source": self.pinned,
            "step": self.saved.step,
            "sha256": hashlib.sha256(manifest).hexdigest(),
            "parts": None if self.parts is None else list(self.parts),
        }


def networks_of(inputs: RunInputs, warn: Callable[[str], None], *, resumed: bool) -> ForeignNetworks | None:
    """Return the networks of another run that this one begins with, or with ``resumed`` goes on with.

    warn: called for a damaged checkpoint that is skipped
    Raises UsageError and StorageError as :func:`foreign_networks`.
    """
    base = inputs.loaded.config.base_config
    text = inputs.init_from if resumed else base.init_from
    if text is not None:
        return foreign_networks(text, inputs.run, keep=base.evolver_keep, parts=base.init_parts, warn=warn)
    if base.init_parts and not resumed:
        raise UsageError(
            "base_config.init_parts is set without init_from",
            why="there are no networks to take parts from",
            fix="set base_config.init_from to the name of a run, or leave init_parts out",
        )
    return None


def foreign_networks(
    text: str,
    run: RunDir,
    *,
    keep: Collection[str],
    parts: Collection[str] | None,
    warn: Callable[[str], None],
) -> ForeignNetworks:
    """Return the networks that a text in ``init_from`` names.

    text: NAME or NAME:CKPT of another run of the task, or the folder of a checkpoint
    run:  run that begins with them
    Raises UsageError for an invalid text, and StorageError for a missing or damaged checkpoint.
    """
    (name, _, at), folder = text.partition(":"), Path(text)
    of_study = is_run_name(name) and name in names_beside(run.env, name, models=run.models)
    if (is_name(name) or of_study) and not folder.is_absolute():
        other = RunDir.open(run.env, name, models=run.models, argument=run.argument, flag="--init_from")
        which = _checkpoint(at, text)
        saved = find_checkpoint(other.checkpoints, which, warn=warn, flag=f"--init_from {name}:")
        return ForeignNetworks(saved, keep, parts, f"{name}:{saved.step}")
    there = False
    with suppress(OSError, ValueError):  # no system has such a path
        there = (folder / MANIFEST).is_file()
    if not there:
        raise UsageError(
            "there are no networks to start from",
            where=f"init_from: {text:.200}",
            why=f"it is neither the name of a run nor the folder of a checkpoint: it has no {MANIFEST}",
            fix="pass one, such as NAME, NAME:best or models/TASK/NAME/checkpoints/step_000100000",
        )
    return ForeignNetworks(load_checkpoint(folder), keep, parts, str(folder))


def _checkpoint(at: str, text: str) -> Ckpt | None:
    """Return the checkpoint that the text behind a colon names; None for an empty one. Raises UsageError."""
    if at == "latest":
        return "latest"
    if at == "best":
        return "best"
    if at.isdecimal() or not at:
        return int(at) if at else None
    raise UsageError(
        f"{at!r} is not a checkpoint",
        where=f"init_from: {text:.200}",
        why="it is neither a number of steps, nor latest or best",
        fix="write NAME:STEP, NAME:best, or NAME for the newest one",
    )


def load_foreign_replays(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own_checkpoint: Checkpoint, replays: Path
) -> list[str]:
    """Load the replays that belong to networks of another run; return lines for the user.

    own_checkpoint, replays: checkpoint and segments of this run
    Raises StorageError as :func:`load_replays`.
    """
    if "replay" not in foreign.keep:
        return ["base_config.evolver_keep does not name the replay: it starts empty"]
    if foreign.replay is None:
        return load_replays(agents, own_checkpoint, replays)
    lines = load_replays(agents, replace(own_checkpoint, path=foreign.saved.path), foreign.replay)
    for agent in agents.values():
        for replay in agent.stores().values():
            replay.forget_saved()  # its rows are in no segment of this run
            replay.close_all()  # this run's episodes do not continue those of the other
    return [*lines, f"the replay is that of {foreign.pinned}"]


def begin_with_networks(
    agents: Mapping[str, Agent], foreign: ForeignNetworks, own_checkpoint: Checkpoint | None
) -> list[str]:
    """Load networks of another run into the agents; return lines for the user.

    Optimizer moments begin anew, unless a resumed run keeps ``optimiser``: then they are of the checkpoint
    whose replay it uses. A new run that loads ``normaliser`` gets the statistics that scale rewards.

    own_checkpoint: checkpoint from which this run is resumed, None for a new run
    Raises StorageError, with a table, for components that do not fit, UsageError for one that no agent has.
    """
    saved, moments = foreign.saved, None
    if own_checkpoint is not None and "optimiser" in foreign.keep:
        moments = own_checkpoint if foreign.replay is None else saved
    for name, agent in agents.items():
        parts, level = _prefixes(agent, foreign.parts), partial(behaviour_file, name)
        if level("model") not in saved.tensors:
            raise _misfit(foreign, f"there are none for {name!r}")
        model = _merged(agent.learner.tensors()["model"], saved.tensors[level("model")], parts, foreign)
        try:
            agent.begin_with(model, moments.tensors.get(level("optim")) if moments else None)
        except (KeyError, ValueError) as error:
            raise _misfit(foreign, str(error)) from error
        if own_checkpoint is None and "normaliser" in parts:
            theirs = without_prefix("returns.", saved.tensors.get(level("optim"), {}))
            if "statistics" in theirs:  # critics and values are in units of the scaled reward
                agent.learner.return_scale.roll_back(theirs)
    of = "" if foreign.parts is None else f" ({', '.join(foreign.parts)})"
    return [f"the networks are those of {foreign.pinned}{of}"]


def _prefixes(agent: Agent, wanted: Collection[str] | None) -> dict[str, tuple[str, ...]]:
    """Return chosen component -> prefixes of the names of its tensors."""
    parts = agent.learner.PARTS
    if unknown := set(wanted or ()) - parts.keys():
        raise UsageError(
            f"{agent.config.algorithm} has no part {', '.join(sorted(unknown))}",
            where="base_config.init_parts",
            why=f"its parts are {', '.join(parts)}",
            fix="leave it out",
        )
    return {name: prefixes for name, prefixes in parts.items() if wanted is None or name in wanted}


def _merged(
    tensors: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    parts: Mapping[str, tuple[str, ...]],
    foreign: ForeignNetworks,
) -> dict[str, Tensor]:
    """Return ``tensors`` of an agent, with those of some components from ``other``."""
    prefixes = tuple(chain.from_iterable(parts.values()))
    names = [name for name in dict.fromkeys((*tensors, *other)) if name.startswith(prefixes)]
    pairs = [(name, _shape(tensors, name), _shape(other, name)) for name in names]
    rows = [f"{name}: expected {here}, got {there}" for name, here, there in pairs if here != there]
    if rows or not names:
        rows = rows or ["it has none of the parts that this agent has"]
        more = [f"and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
        raise _misfit(foreign, "\n".join([*rows[:_SHOWN], *more]))
    return {**tensors, **{name: other[name] for name in names}}


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    """Return the shape of a tensor as text, ``none`` for a missing one."""
    return str(list(tensors[name].shape)) if name in tensors else "none"


def _misfit(foreign: ForeignNetworks, why: str) -> StorageError:
    """Return the error for networks that do not fit the agent."""
    return StorageError(
        "the networks do not fit this agent",
        where=foreign.saved.path,
        why=why,
        fix="pass a checkpoint of the same networks, or name the parts that fit: base_config.init_parts",
    )
