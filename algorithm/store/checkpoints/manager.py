"""The checkpoints of a run: which ones stay, and how a step, ``latest`` or ``best`` is resolved."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_json
from algorithm.store.checkpoints.checkpoint import (
    Checkpoint,
    SaveCost,
    Snapshot,
    check_replay,
    load_checkpoint,
    save_checkpoint,
)
from algorithm.store.checkpoints.folders import (
    checkpoint_of,
    checkpoint_steps,
    drop_replay,
    remove_checkpoint,
    remove_drafts,
    remove_replaced,
    remove_segments,
    set_aside,
)
from algorithm.store.checkpoints.segments import try_to_remove
from algorithm.store.files import write_json
from algorithm.store.names import Ckpt

Replays = Literal["always", "last", "never"]
"""Checkpoints that keep the replay: all, only the newest, or none."""


class CheckpointManager:
    """The checkpoints of a run: it saves them, and removes those that are not to be kept.

    The order is: the checkpoint, the file that names it, the removal of others, the removal of segments that
    none needs any more. After a kill at any time ``latest.json`` and ``best.json`` name complete checkpoints.

    root:       folder of the checkpoints, written by no other process
    replays:    folder of the segments that they share, written by no other process
    keep:       number of newest checkpoints that are kept, at least 1
    best:       whether the one with the best evaluation is kept as well
    milestones: the first checkpoint at or after each of these steps is kept for ever
    replay:     which checkpoints keep the replay
    warn:       called for files that cannot be removed, and for checkpoints that a resumed run drops
    """

    def __init__(
        self,
        root: Path,
        replays: Path,
        *,
        keep: int,
        best: bool,
        milestones: Collection[int] = (),
        replay: Replays = "always",
        warn: Callable[[str], None],
    ) -> None:
        self._root = root
        self._replays = replays
        self._keep = keep
        self._warn = warn
        self._milestones = milestones
        self._replay = replay
        self._best_score = -math.inf if best else math.inf  # nothing beats infinity
        self._best_step: int | None = None
        self._saved_step: int | None = None

    @property
    def latest(self) -> Path | None:
        """The checkpoint that was saved last, or that this run went on from; None if there is none."""
        return None if self._saved_step is None else checkpoint_of(self._root, self._saved_step)

    def has(self, step: int) -> bool:
        """Return whether the checkpoint saved last is that of ``step``."""
        return step == self._saved_step

    def save(self, snapshot: Snapshot) -> SaveCost:
        """Save a checkpoint of a later step than all before, or again that of the last step.

        Raises StorageError, with nothing changed; the next attempt writes everything.
        """
        chosen = replace(snapshot, replays={}) if self._replay == "never" else snapshot
        cost = save_checkpoint(self._root, self._replays, chosen)
        self._saved_step = snapshot.step
        try:
            _point_to(self._root, "latest", snapshot.step)
        except StorageError as error:  # it names an older one, which must stay then
            self._warn(error.line)
        else:
            self._tidy()
        return cost

    def is_best(self, score: float) -> bool:
        """Return whether a score is better than all before; never for NaN, or if no best one is kept."""
        return score > self._best_score

    def mark_best(self, score: float) -> None:
        """Mark the checkpoint saved last as the best one. Raises StorageError."""
        assert self._saved_step is not None
        _point_to(self._root, "best", self._saved_step, mean=score)
        self._best_step = self._saved_step
        self._best_score = score
        self._tidy()

    def resume(self, step: int) -> None:
        """Continue from the checkpoint of ``step``; call it once, before any save. Raises StorageError.

        ``best.json`` counts if its checkpoint is not later. Later checkpoints are removed, or renamed if they
        are damaged, so that no reader takes them. Half-written files of a killed process are removed.
        """
        remove_drafts(self._root)
        self._try(remove_replaced, self._root)
        steps = checkpoint_steps(self._root)
        self._recall_best([known for known in steps if known <= step])
        if step in steps:
            self._saved_step = step
            _point_to(self._root, "latest", step)
        self._leave_behind([known for known in steps if known > step])
        self._remove_segments()

    def _tidy(self) -> None:
        """Remove the checkpoints and replays that are not to be kept."""
        steps = checkpoint_steps(self._root)
        stay = {*steps[-self._keep :], self._best_step, *self._first_behind_milestones(steps)}
        for step in steps:
            if step not in stay:
                self._try(remove_checkpoint, checkpoint_of(self._root, step))
        self._try(remove_replaced, self._root)
        remove_drafts(self._root)
        if self._replay == "last":
            for step in checkpoint_steps(self._root)[:-1]:
                self._try(drop_replay, checkpoint_of(self._root, step))
        self._remove_segments()

    def _first_behind_milestones(self, steps: list[int]) -> set[int]:
        """Return, for each milestone, the first step at or after it."""
        behind = ([step for step in steps if step >= milestone] for milestone in self._milestones)
        return {later[0] for later in behind if later}

    def _remove_segments(self) -> None:
        """Remove segments of replays that no checkpoint needs; a failure is a warning."""
        try:
            left = remove_segments(self._root, self._replays)
        except StorageError as error:
            self._warn(f"{error.line} · no segments of replays are removed for now")
            return
        if left:
            self._warn(
                f"{len(left)} segments of replays that are no longer needed cannot be removed, such as "
                f"{left[0]}"
            )

    def _recall_best(self, steps: list[int]) -> None:
        """Read step and score of the best checkpoint from ``best.json``, if it is one of ``steps``."""
        pointer = self._root / "best.json"
        if not pointer.exists():
            return
        try:
            best = read_json(pointer)
        except StorageError as error:
            self._warn(f"{error.line} · the best checkpoint is searched again")
            best = {}
        step, mean = best.get("step"), best.get("mean")
        if type(step) is int and step in steps and (type(mean) is int or type(mean) is float):
            self._best_step = step
            self._best_score = max(self._best_score, float(mean))
        elif not try_to_remove(pointer):
            raise StorageError("a file cannot be removed", where=pointer, fix="remove it yourself")

    def _leave_behind(self, steps: list[int]) -> None:
        """Remove checkpoints later than the resumed one; rename damaged ones."""
        removed = []
        for step in steps:
            path = checkpoint_of(self._root, step)
            try:
                load_checkpoint(path)
                check_replay(path, self._replays)
            except StorageError as error:
                self._warn(f"{_wrong(error)} · it was renamed to {set_aside(path).name}")
                continue
            remove_checkpoint(path)
            removed.append(step)
        if removed:
            self._warn(
                f"training continues from before them: removed the checkpoints of steps {_listed(removed)}"
            )

    def _try(self, act: Callable[[Path], None], path: Path) -> None:
        """Call a function for a path; a failure is a warning."""
        try:
            act(path)
        except StorageError as error:
            self._warn(error.line)


def find_checkpoint(
    root: Path, which: Ckpt | None = None, *, warn: Callable[[str], None], flag: str = "--ckpt "
) -> Checkpoint:
    """Find and read a checkpoint, every byte verified.

    which: a step; ``latest`` or ``best``, the one named by that file; or None, the newest one
        that is intact, whatever those files name.
    warn:  called for every damaged checkpoint that is skipped, which happens only for None.
    flag:  flag or argument that names a step, for the advice
    Raises StorageError, with the steps of all checkpoints, if there is no such one.
    """
    if which is None:
        return next(intact_checkpoints(root, warn=warn))
    return load_checkpoint(_folder_of(root, which, flag))


def intact_checkpoints(root: Path, *, warn: Callable[[str], None]) -> Iterator[Checkpoint]:
    """Yield the intact checkpoints, newest first, without their replays; each is read when it is needed.

    warn: called for every damaged one.
    Raises StorageError, with the steps of all checkpoints, after the last one.
    """
    steps = checkpoint_steps(root)
    for step in reversed(steps):
        try:
            saved = load_checkpoint(checkpoint_of(root, step))
        except StorageError as error:
            warn(skip_warning(error))
        else:
            yield saved
    if steps:
        raise StorageError(
            "there is no complete checkpoint",
            where=root,
            why=f"those of steps {_listed(steps)} are damaged, see above",
            fix="restore a copy of one of them, or train another run with -n",
        )
    raise _missing("there is no checkpoint", root, [], flag="")


def skip_warning(error: StorageError) -> str:
    """Return the warning that a damaged checkpoint is skipped."""
    return f"{_wrong(error)} · trying the one before"


def _point_to(root: Path, pointer: str, step: int, **more: float) -> None:
    """Write ``<pointer>.json``, which names the checkpoint of ``step``. Raises StorageError."""
    write_json(root / f"{pointer}.json", {"step": step, "folder": checkpoint_of(root, step).name, **more})


def _folder_of(root: Path, which: Ckpt, flag: str) -> Path:
    """Return the folder of a step's checkpoint, or of the one that ``latest.json`` or ``best.json`` names."""
    steps = checkpoint_steps(root)
    if not isinstance(which, str):  # also a whole number of numpy
        step, where, lacks = which, root, f"there is no checkpoint of step {which}"
    else:
        where = root / f"{which}.json"
        if not where.exists():
            raise _missing(f"no checkpoint is recorded as the {which} one", where, steps, flag)
        named = read_json(where).get("step")
        if type(named) is not int:
            raise StorageError("a JSON file is damaged", where=where, why="it does not name a step")
        step, lacks = named, f"it names the checkpoint of step {named}, which does not exist"
    if step not in steps:
        raise _missing(lacks, where, steps, flag)
    return checkpoint_of(root, step)


def _wrong(error: StorageError) -> str:
    """Return the error without its advice."""
    return " · ".join(part for part in (error.what, error.where, error.why) if part)


def _listed(steps: list[int]) -> str:
    """Return steps as text."""
    return ", ".join(map(str, steps))


def _missing(what: str, where: Path, steps: list[int], flag: str) -> StorageError:
    """Return the error for a checkpoint that does not exist."""
    return StorageError(
        what,
        where=where,
        why=f"available steps: {_listed(steps)}" if steps else "the run ended before it saved one",
        fix=f"use one of them: {flag}{steps[-1]}" if steps else "choose another run, or train one, with -n",
    )
