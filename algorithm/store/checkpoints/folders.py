"""Folders of checkpoints in that of a run: listing and removal."""

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
    """Return the folder of the checkpoint of ``step``, or the one that a first checkpoint would get."""
    folders = _folders(root).get(step)
    return folders[-1] if folders else root / f"step_{step:09d}"


def checkpoint_steps(root: Path) -> list[int]:
    """Return the steps of the checkpoints in ``root``, ascending; they may be damaged."""
    return sorted(_folders(root))


def remove_replaced(root: Path) -> None:
    """Remove checkpoints that a newer one of the same step replaces. Raises StorageError."""
    for folders in _folders(root).values():
        for path in folders[:-1]:
            remove_checkpoint(path)


def remove_drafts(root: Path) -> None:
    """Remove half-written checkpoints of a killed process. Only for the one process that writes here."""
    for draft in root.glob(f"{DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)
    for folder in (root, *root.glob("step_*")):
        remove_unfinished(folder)


def remove_segments(root: Path, replays: Path) -> list[Path]:
    """Remove the segments that no checkpoint in ``root`` needs; return those that could not be removed.

    No checkpoint may be being written. One with a damaged manifest needs no segments: it cannot be loaded.
    Raises StorageError, with nothing removed, if a manifest cannot be read for now.
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
    """Return step → folders of its checkpoints, all complete; the last one is the newest and counts."""
    numbered: dict[int, list[tuple[int, Path]]] = {}
    for path in root.iterdir() if root.is_dir() else ():
        if match := NAME.fullmatch(path.name):
            numbered.setdefault(int(match[1]), []).append((int(match[2] or 1), path))
    return {step: [path for _, path in sorted(paths)] for step, paths in numbered.items()}


def free_name(root: Path, step: int) -> Path:
    """Return a free path for a checkpoint of ``step``: no rename can replace an existing folder."""
    last = checkpoint_of(root, step)
    if not last.exists():
        return last
    match = NAME.fullmatch(last.name)
    assert match
    return root / f"step_{match[1]}_{int(match[2] or 1) + 1}"


def drop_replay(path: Path) -> None:
    """Remove the replay from a checkpoint, which stays valid without it. Raises StorageError."""
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
    """Convert an OSError of the block to a StorageError. what: failed action, for the message."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, what=what, where=path) from error
