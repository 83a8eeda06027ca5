"""The checkpoints of a run: which of them stay, and which one is meant by a step, ``latest`` or ``best``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from algorithm.config.cli import Ckpt
from algorithm.errors import StorageError
from algorithm.run.checkpoint import (
    checkpoint_of,
    checkpoint_steps,
    load_checkpoint,
    point_to,
    remove_checkpoint,
    save_checkpoint,
)
from algorithm.run.files import read_json


class Keeper:
    """Saves the checkpoints of a run and removes those that need not stay.

    The order is: the checkpoint, the file that names it, the removal of others. Killed anywhere, what
    ``latest.json`` and ``best.json`` name is there and complete.

    root: folder of the checkpoints, written by nobody else
    keep: how many of the newest stay, at least 1
    best: whether the one with the best evaluation stays as well
    warn: told of a checkpoint that cannot be removed
    """

    def __init__(self, root: Path, *, keep: int, best: bool, warn: Callable[[str], None]) -> None:
        self._root, self._keep, self._warn = root, keep, warn
        self._best_score = -math.inf if best else math.inf  # nothing beats infinity
        self._best_step: int | None = None
        self._saved_step: int | None = None

    def has(self, step: int) -> bool:
        """Whether the checkpoint of ``step`` was the last one saved."""
        return step == self._saved_step

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, object]
    ) -> None:
        """Save a checkpoint of a step later than all before. Raises StorageError."""
        save_checkpoint(self._root, step, tensors, state)
        self._saved_step = step
        self._tidy()

    def is_best(self, score: float) -> bool:
        """Whether this is better than all before; never for NaN, and never where no best one is wanted."""
        return score > self._best_score

    def mark_best(self, score: float) -> None:
        """The checkpoint saved last is the best one from now on. Raises StorageError."""
        assert self._saved_step is not None
        point_to(self._root, "best", self._saved_step, mean=score)
        self._best_step, self._best_score = self._saved_step, score
        self._tidy()

    def _tidy(self) -> None:
        steps = checkpoint_steps(self._root)
        for step in steps[: -self._keep]:
            if step != self._best_step:
                try:
                    remove_checkpoint(checkpoint_of(self._root, step))
                except StorageError as error:
                    self._warn(error.line)


def find_checkpoint(root: Path, which: Ckpt | None = None, *, warn: Callable[[str], None]) -> Path:
    """The folder of a checkpoint that can be loaded.

    which: a step; ``latest`` or ``best``, the one that the file of that name says; or None, the newest that
        is intact, whatever a file says.
    warn:  told of every damaged checkpoint passed over. One that was asked for is never passed over.
    Raises StorageError, with the steps there are, if there is none.
    """
    if which is None:
        return _newest_intact(root, warn)
    path = _of_step(root, which) if isinstance(which, int) else _named_by(root / f"{which}.json")
    load_checkpoint(path)
    return path


def _newest_intact(root: Path, warn: Callable[[str], None]) -> Path:
    steps = checkpoint_steps(root)
    for candidate in reversed(steps):
        path = checkpoint_of(root, candidate)
        try:
            load_checkpoint(path)
        except StorageError as error:
            warn(f"{error.line} · trying the one before")
            continue
        return path
    raise _missing("there is no complete checkpoint" if steps else "there is no checkpoint", root, [])


def _of_step(root: Path, step: int) -> Path:
    steps = checkpoint_steps(root)
    if step not in steps:
        raise _missing(f"there is no checkpoint of step {step}", root, steps)
    return checkpoint_of(root, step)


def _named_by(pointer: Path) -> Path:
    """The checkpoint that ``latest.json`` or ``best.json`` names."""
    root = pointer.parent
    steps = checkpoint_steps(root)
    if not pointer.exists():
        raise _missing(f"no checkpoint is known as the {pointer.stem} one", pointer, steps)
    step = read_json(pointer).get("step")
    if not isinstance(step, int):
        raise StorageError("a JSON file is damaged", where=pointer, why="it does not name a step")
    if step not in steps:
        raise _missing(f"it names the checkpoint of step {step}, which is not there", pointer, steps)
    return checkpoint_of(root, step)


def _missing(what: str, where: Path, steps: list[int]) -> StorageError:
    return StorageError(
        what,
        where=where,
        why=f"steps there: {', '.join(map(str, steps))}" if steps else "nothing usable was saved there",
        fix=f"use one of them: --ckpt {steps[-1]}" if steps else "train first, or choose another run with -n",
    )
