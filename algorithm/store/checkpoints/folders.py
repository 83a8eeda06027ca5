"""Folders of checkpoints in that of a run: which there are, what can be removed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from algorithm.core.errors import StorageError
from algorithm.core.system.files import rename, sync_folder
from algorithm.store.checkpoints.manifest import INDEX, MANIFEST, NAME, is_damage, read_manifest
from algorithm.store.checkpoints.segments import PATTERN, try_to_remove
from algorithm.store.files import remove_unfinished, write_bytes

DRAFT = ".draft_"
"""Begins the names of folders that are being written, or removed."""

_DAMAGED = ".damaged"


def checkpoint_of(root: Path, step: int) -> Path:
    """Return the folder that the checkpoint of ``step`` has, or would have."""
    found = _folders(root).get(step)
    return found[-1] if found else root / f"step_{step:09d}"


def checkpoint_steps(root: Path) -> list[int]:
    """Return the steps of the checkpoints in ``root``, ascending; they may be damaged."""
    return sorted(_folders(root))


def remove_replaced(root: Path) -> None:
    """Remove checkpoints of which there is a newer one of the same step. Raises StorageError."""
    for folders in _folders(root).values():
        for path in folders[:-1]:
            remove_checkpoint(path)


def remove_drafts(root: Path) -> None:
    """Remove what a killed process left half-written. Only for the one process that writes here."""
    for draft in root.glob(f"{DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)
    for folder in (root, *root.glob("step_*")):
        remove_unfinished(folder)


def remove_segments(root: Path, replays: Path) -> list[Path]:
    """Remove the segments that no checkpoint in ``root`` needs; returns those that would not go.

    Nothing may be being written. A checkpoint whose manifest is damaged needs none: it cannot be loaded.
    Raises StorageError, with nothing removed, for a manifest that could not be read, but may be later.
    """
    needed = set()
    for folders in _folders(root).values():
        for path in folders:
            try:
                manifest = read_manifest(path)
            except StorageError as error:
                if is_damage(error):
                    continue
                raise
            needed |= {replays / name for name in manifest.segments}
    return [file for file in replays.rglob(PATTERN) if file not in needed and not try_to_remove(file)]


def _folders(root: Path) -> dict[int, list[Path]]:
    """Step → folders of its checkpoints. The last one counts: it is complete, as all are, and newer."""
    found: dict[int, list[tuple[int, Path]]] = {}
    for path in root.iterdir() if root.is_dir() else ():
        if match := NAME.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append((int(match[2] or 1), path))
    return {step: [path for _, path in sorted(paths)] for step, paths in found.items()}


def free_name(root: Path, step: int) -> Path:
    """Return a new folder for a checkpoint of ``step``; one move cannot replace a folder by another."""
    last = checkpoint_of(root, step)
    if not last.exists():
        return last
    match = NAME.fullmatch(last.name)
    assert match
    return root / f"step_{match[1]}_{int(match[2] or 1) + 1}"


def give_up_replay(path: Path) -> None:
    """Let a checkpoint keep its replay no longer; it stays valid without. Raises StorageError."""
    manifest = read_manifest(path)
    if manifest.replay is not None:
        write_bytes(path / MANIFEST, replace(manifest, replay=None, segments={}).text.encode())
    try_to_remove(path / INDEX)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint; a kill on the way leaves a hidden folder. Raises StorageError."""
    aside = path.with_name(f"{DRAFT}old_{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    with _explained("an old checkpoint cannot be removed", path):
        rename(path, aside)
        sync_folder(path.parent)
        shutil.rmtree(aside)


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint so that no reader takes it, and return the name. Raises StorageError."""
    names = (path.with_name(f"{path.name}{_DAMAGED}{n or ''}") for n in range(10**6))
    aside = next(name for name in names if not name.exists())
    with _explained("a checkpoint cannot be renamed", path):
        rename(path, aside)
        sync_folder(path.parent)
    return aside


@contextlib.contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, what=what, where=path) from error
