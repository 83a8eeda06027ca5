"""Checkpoints that are complete or do not exist: safetensors and JSON, hashed, renamed into place.

``<root>/step_000040000/{<stem>.safetensors …, state.json, replay.json, manifest.json}``, and the segments
of which the replays consist in a folder shared by all. Segments are written first, then everything else into
a hidden folder; the manifest with sizes and SHA-256 comes last, and then the folder gets its name. A kill on
the way leaves a hidden folder and segments that no checkpoint names; readers ignore both.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from algorithm.core.data import Array
from algorithm.core.errors import StorageError, described
from algorithm.core.system.files import rename, sync_folder
from algorithm.replay.buffer import ReplayBuffer
from algorithm.store.checkpoints.manifest import (
    INDEX,
    MANIFEST,
    NAME,
    STATE,
    TENSORS,
    TRAINED,
    Entry,
    Manifest,
    check_listed,
    damaged,
    is_damage,
    parsed,
    read_listed,
    read_manifest,
)
from algorithm.store.checkpoints.segments import (
    PATTERN,
    WrittenReplay,
    read_replay,
    try_to_remove,
    write_replay,
)
from algorithm.store.files import json_text, make_folder, remove_unfinished, write_bytes, write_durably

_DRAFT = ".draft_"
_DAMAGED = ".damaged"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The content of one checkpoint.

    step:    environment steps taken
    tensors: file stem (``model``, ``<behaviour>/model``, ``run``) → names → values; views and shared memory
        are fine, and numbers and booleans of any dtype
    state:   strict JSON with string keys
    replays: level ("" or ``<behaviour>``) → replay
    trained: file stem → those of its tensors that an optimiser trains; said in the file's header
    """

    step: int
    tensors: Mapping[str, Mapping[str, Tensor | Array]]
    state: Mapping[str, object]
    replays: Mapping[str, ReplayBuffer] = field(default_factory=dict)
    trained: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The content of a checkpoint without its replays, on the CPU.

    path:    its folder.
    step:    environment steps taken.
    tensors: file stem → flat mapping of names to tensors.
    state:   counters and whatever else is JSON; tuples come back as lists.
    """

    path: Path
    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


@dataclass(frozen=True)
class SaveCost:
    """Cost and place of a checkpoint. replay_bytes: the part of ``bytes_written`` that went into segments."""

    seconds: float
    bytes_written: int
    replay_bytes: int
    path: Path = Path()


def save_checkpoint(root: Path, replays: Path, snapshot: Snapshot) -> SaveCost:
    """Write a checkpoint; one of the same step is there until the new one is.

    root, replays: folders of the checkpoints and of the replays' segments
    Raises StorageError, with nothing changed; ValueError or TypeError for what cannot be written.
    """
    started = time.perf_counter()
    _check_keys(snapshot.state, "state")
    files = {STATE: json_text(snapshot.state).encode()}
    files |= {
        f"{stem}{TENSORS}": save(_plain(stem, named), _header(snapshot.trained.get(stem)))
        for stem, named in snapshot.tensors.items()
    }
    target = _free_name(root, snapshot.step)
    draft = root / f"{_DRAFT}{target.name}"
    try:
        make_folder(root)
        written = {
            level: write_replay(replays.absolute() / level, snapshot.step, replay)
            for level, replay in snapshot.replays.items()
        }
        nbytes = _write_draft(draft, snapshot.step, files, written)
        _publish(draft, target)
    except Exception as error:
        shutil.rmtree(draft, ignore_errors=True)
        with contextlib.suppress(StorageError, OSError):  # else they are litter, for a later call
            remove_segments(root, replays)
        if not isinstance(error, OSError):
            raise
        raise StorageError.of(error, what="the checkpoint cannot be written", where=target) from error
    for level, replay in snapshot.replays.items():
        replay.mark_saved(written[level].parts)
    of_replays = sum(replay.bytes_written for replay in written.values())
    return SaveCost(time.perf_counter() - started, nbytes + of_replays, of_replays, target)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, every byte verified. Raises StorageError, naming the file and what is wrong."""
    manifest = read_manifest(path)
    tensors = {}
    for name, entry in manifest.files.items():
        if name.endswith(TENSORS):
            try:
                tensors[name.removesuffix(TENSORS)] = load(read_listed(path, name, entry))
            except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError) as error:
                raise damaged(path / name, f"its content cannot be read: {error}") from error
    state = parsed(path / STATE, read_listed(path, STATE, manifest.files[STATE]))
    if not isinstance(state, dict):
        raise damaged(path / STATE, "it does not hold an object")
    return Checkpoint(path=path, step=manifest.step, tensors=tensors, state=state)


def check_replay(path: Path, replays: Path) -> None:
    """Raise StorageError unless every file of the replays of the checkpoint ``path`` is as it was written."""
    manifest = read_manifest(path)
    if manifest.replay is not None:
        read_listed(path, INDEX, manifest.replay)
        for name, segment in manifest.segments.items():
            check_listed(replays, name, segment)


def load_replay(path: Path, replays: Path, level: str, replay: ReplayBuffer) -> bool:
    """Let ``replay`` go on from the one that the checkpoint ``path`` holds, every byte verified.

    replays: folder of the segments
    level:   that of the behaviour, or empty
    Returns False, with nothing changed, if the checkpoint has no replay. Raises StorageError for damage, and
    ValueError for a replay that does not fit (see :meth:`ReplayBuffer.load_state`).
    """
    manifest = read_manifest(path)
    if manifest.replay is None:
        return False
    index = parsed(path / INDEX, read_listed(path, INDEX, manifest.replay))
    if not isinstance(index, dict):
        raise damaged(path / INDEX, "it does not hold an object")
    if level not in index:
        raise damaged(path / INDEX, f"it has no replay {level!r}, only {', '.join(map(repr, index))}")
    try:
        read_replay(replays.absolute(), level, index[level], manifest.segments, replay)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise damaged(path / INDEX, f"it is not an index ({described(error)})") from error
    return True


def give_up_replay(path: Path) -> None:
    """Let a checkpoint keep its replay no longer; it stays valid without. Raises StorageError."""
    manifest = read_manifest(path)
    if manifest.replay is not None:
        write_bytes(path / MANIFEST, replace(manifest, replay=None, segments={}).text.encode())
    try_to_remove(path / INDEX)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint; a kill on the way leaves a hidden folder. Raises StorageError."""
    aside = path.with_name(f"{_DRAFT}old_{path.name}")
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
    for draft in root.glob(f"{_DRAFT}*"):
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


def _free_name(root: Path, step: int) -> Path:
    """Return a new folder for a checkpoint of ``step``; one move cannot replace a folder by another."""
    last = checkpoint_of(root, step)
    if not last.exists():
        return last
    match = NAME.fullmatch(last.name)
    assert match
    return root / f"step_{match[1]}_{int(match[2] or 1) + 1}"


def _plain(stem: str, named: Mapping[str, Tensor | Array]) -> dict[str, Tensor]:
    # Parameters are views of one flat tensor, and safetensors takes neither shared memory nor strides.
    plain = {}
    for name, value in named.items():
        tensor = value
        if not isinstance(tensor, Tensor):
            if tensor.dtype.kind not in "biuf":
                raise TypeError(f"{stem}, {name}: {tensor.dtype} cannot be saved, only numbers and booleans")
            tensor = torch.from_numpy(np.array(tensor, tensor.dtype.newbyteorder("=")))
        plain[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return plain


def _header(trained: Collection[str] | None) -> dict[str, str] | None:
    return None if trained is None else {TRAINED: json.dumps(sorted(trained))}


def _check_keys(value: object, where: str) -> None:
    """Raise TypeError for keys that are no strings: JSON would turn them into strings silently."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a string")
            _check_keys(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_keys(item, f"{where}[{index}]")


def _write_draft(
    draft: Path, step: int, files: Mapping[str, bytes], replays: Mapping[str, WrittenReplay]
) -> int:
    """Everything but the segments; returns how many bytes."""
    if draft.exists():
        shutil.rmtree(draft)
    listed = {name: Entry.of(data) for name, data in files.items()}
    index = json.dumps({level: replay.index for level, replay in replays.items()}, allow_nan=False).encode()
    segments = {
        str(PurePosixPath(level, name)): entry
        for level, replay in replays.items()
        for name, entry in replay.segments.items()
    }
    manifest = Manifest(
        step=step, files=listed, replay=Entry.of(index) if replays else None, segments=segments
    )
    contents = {**files, **({INDEX: index} if replays else {}), MANIFEST: manifest.text.encode()}
    for name, data in contents.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        write_durably(draft / name, data)
    for folder in {(draft / name).parent for name in contents}:
        sync_folder(folder)
    return sum(map(len, contents.values()))


def _publish(draft: Path, target: Path) -> None:
    rename(draft, target)
    try:
        sync_folder(target.parent)
    except OSError:
        with contextlib.suppress(OSError):
            rename(target, draft)
        raise
