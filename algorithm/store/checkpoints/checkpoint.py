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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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
from algorithm.store.checkpoints.folders import DRAFT, free_name, remove_segments
from algorithm.store.checkpoints.manifest import (
    INDEX,
    MANIFEST,
    STATE,
    TENSORS,
    TRAINED,
    Entry,
    Manifest,
    check_listed,
    damaged,
    parsed,
    read_listed,
    read_manifest,
)
from algorithm.store.checkpoints.segments import (
    WrittenReplay,
    read_replay,
    write_replay,
)
from algorithm.store.files import json_text, make_folder, write_durably


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The content of a checkpoint that is to be written.

    step:    environment steps taken
    tensors: file stem (``model``, ``<behaviour>/model``, ``run``) → names → values of any numeric dtype;
        views and shared memory are allowed
    state:   strict JSON with string keys
    replays: level ("" or ``<behaviour>``) → replay
    trained: file stem → names of its tensors that an optimiser trains; written to the file's header
    """

    step: int
    tensors: Mapping[str, Mapping[str, Tensor | Array]]
    state: Mapping[str, object]
    replays: Mapping[str, ReplayBuffer] = field(default_factory=dict)
    trained: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The content of a checkpoint that was read, without its replays, on the CPU.

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
    """Cost and path of a checkpoint. replay_bytes: share of ``bytes_written`` for segments of replays."""

    seconds: float
    bytes_written: int
    replay_bytes: int
    path: Path = Path()


def save_checkpoint(root: Path, replays: Path, snapshot: Snapshot) -> SaveCost:
    """Write a checkpoint; an older one of the same step stays until the new one is complete.

    root, replays: folders of the checkpoints and of the replays' segments
    Raises StorageError, with nothing changed; ValueError or TypeError for a content that cannot be written.
    """
    started = time.perf_counter()
    files = {STATE: json_text(snapshot.state).encode()}
    files |= {
        f"{stem}{TENSORS}": save(_plain(stem, named), _header(snapshot.trained.get(stem)))
        for stem, named in snapshot.tensors.items()
    }
    target = free_name(root, snapshot.step)
    draft = root / f"{DRAFT}{target.name}"
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
    """Read a checkpoint, every byte verified. Raises StorageError with the file and its fault."""
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
    """Load a replay from the checkpoint ``path``, every byte verified, so that ``replay`` continues it.

    replays: folder of the segments
    level:   folder level of the behaviour, or empty
    Return False, with nothing changed, if the checkpoint has no replay. Raises StorageError for damage, and
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


def _plain(stem: str, named: Mapping[str, Tensor | Array]) -> dict[str, Tensor]:
    """Return copies of tensors and arrays on the CPU that safetensors can write."""
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
    """Return the header of a file of tensors: the trained ones; None if that is unknown."""
    return None if trained is None else {TRAINED: json.dumps(sorted(trained))}


def _write_draft(
    draft: Path, step: int, files: Mapping[str, bytes], replays: Mapping[str, WrittenReplay]
) -> int:
    """Write all files of a checkpoint but the segments; return the number of bytes."""
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
    """Rename a complete draft to its final name. Raises OSError, with the draft back in place."""
    rename(draft, target)
    try:
        sync_folder(target.parent)
    except OSError:
        with contextlib.suppress(OSError):
            rename(target, draft)
        raise
