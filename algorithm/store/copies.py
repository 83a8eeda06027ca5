"""Copies of whole runs, for sharing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from algorithm.core.errors import StorageError, UsageError
from algorithm.store.lock import RunLock, lock_files
from algorithm.store.rundir import RunDir


def copy_run(run: RunDir, folder: Path, *, replace: bool, notice: Callable[[str], None]) -> None:
    """Copy a run to a folder, without its lock.

    replace: the folder may hold a run, which stays until the copy is complete; if it is ``run``, do nothing
    notice:  called with a message when a stale lock is replaced
    Raises UsageError if the folder exists and is not such a run, even if it is empty, if it lies within the
    run or around it, or if either run is being trained; StorageError if copying fails.
    """
    whole, target = run.path.resolve(), folder.resolve()
    if replace and target == whole:
        return
    holds_run = (folder / "manifest.json").is_file() and (folder / "checkpoints").is_dir()
    if folder.exists() and not (replace and holds_run):
        why = "it is not a run" if replace else "replace is False"
        fix = "give another name"
        raise UsageError("the name is already taken", where=folder, why=why, fix=fix)
    if target.is_relative_to(whole) or whole.is_relative_to(target):
        raise UsageError(
            "a run and its copy cannot be inside each other", where=folder, fix="choose another place"
        )
    with RunLock(run.lock, notice=notice):
        try:
            _exchange(run, folder, notice)
        except OSError as error:
            raise StorageError.of(error, what="the run cannot be copied", where=folder) from error


def _exchange(run: RunDir, folder: Path, notice: Callable[[str], None]) -> None:
    """Copy a run to a temporary folder, and rename that in place of ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        locks = shutil.ignore_patterns(*(file.name for file in lock_files(run.lock)))
        shutil.copytree(run.path, new, ignore=locks, dirs_exist_ok=True)
        if folder.exists():
            with RunLock(folder / run.lock.name, notice=notice):  # nobody trains it
                pass
            shutil.rmtree(folder)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
