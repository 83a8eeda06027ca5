"""Copies of whole runs, for sharing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from algorithm.core.errors import StorageError, UsageError
from algorithm.store.lock import lock_files
from algorithm.store.rundir import RunDir


def copy_run(run: RunDir, folder: Path, *, replace: bool) -> None:
    """Copy a run to a folder, without its lock.

    replace: the folder may hold a run, which stays until the copy is complete; if it is ``run``, do nothing
    Raises UsageError if the folder exists and is not such a run, even if it is empty; StorageError if copying
    fails.
    """
    if replace and folder.resolve() == run.path.resolve():
        return
    holds_run = (folder / "manifest.json").is_file() and (folder / "checkpoints").is_dir()
    if folder.exists() and not (replace and holds_run):
        why = "it is not a run" if replace else "replace is False"
        raise UsageError("the name is already taken", where=folder, why=why, fix="give another name")
    new = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        locks = shutil.ignore_patterns(*(file.name for file in lock_files(run.lock)))
        shutil.copytree(run.path, new, ignore=locks)
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    except OSError as error:
        raise StorageError.of(error, what="the run cannot be copied", where=folder) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
