"""Checkpoints that are complete or do not exist: safetensors and JSON, hashed, renamed into place.

``<root>/step_000040000/{<stem>.safetensors …, state.json, manifest.json}``. Everything is written into a
hidden folder beside it; the manifest with sizes and SHA-256 comes last, then the folder gets its name, and
then ``latest.json`` names it. Whoever is killed on the way leaves a hidden folder, which no reader looks at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from algorithm.errors import StorageError
from algorithm.run.files import json_text, sync_folder, write_durably, write_json

SCHEMA = 1
"""Version of the layout; a reader refuses any other."""

_DRAFT = ".draft_"
_NAME = re.compile(r"step_(\d{9,})")
_SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint holds, on the CPU.

    step:    environment steps taken.
    tensors: file stem → flat mapping of names to tensors.
    state:   counters and whatever else is JSON; tuples come back as lists.
    """

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, object]


def save_checkpoint(
    root: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, object]
) -> Path:
    """Write a checkpoint and return its folder. One of the same step is replaced.

    tensors: file stem (``model``, ``<behaviour>/model``) → names → tensors; views and shared memory are fine.
    state:   strict JSON with string keys.
    Raises StorageError, with nothing changed; ValueError or TypeError for what JSON cannot hold.
    """
    files = {"state.json": _state_text(state).encode()}
    files |= {f"{stem}{_SUFFIX}": save(_plain(named)) for stem, named in tensors.items()}
    target = checkpoint_of(root, step)
    draft = root / f"{_DRAFT}{target.name}"
    try:
        _write_draft(draft, step, files)
        _move(draft, target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise StorageError.of(error, what="the checkpoint cannot be written", where=target) from error
    point_to(root, "latest", step)
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, every byte verified. Raises StorageError, naming the file and what is wrong."""
    step, files = _verified(path)
    try:
        tensors = {
            name.removesuffix(_SUFFIX): load(data) for name, data in files.items() if name.endswith(_SUFFIX)
        }
        state = json.loads(files["state.json"])
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, f"its content cannot be read: {error}") from error
    return Checkpoint(step=step, tensors=tensors, state=state)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint; whoever is killed on the way leaves a hidden folder. Raises StorageError."""
    aside = _aside(path)
    try:
        path.rename(aside)
        sync_folder(path.parent)
        shutil.rmtree(aside)
    except OSError as error:
        raise StorageError.of(error, what="an old checkpoint cannot be removed", where=path) from error


def point_to(root: Path, pointer: str, step: int, **more: float) -> None:
    """Let ``<pointer>.json`` name the checkpoint of ``step``, which is there. Raises StorageError."""
    write_json(root / f"{pointer}.json", {"step": step, "folder": _folder(step), **more})


def checkpoint_of(root: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` is or would be."""
    return root / _folder(step)


def checkpoint_steps(root: Path) -> list[int]:
    """Steps of the checkpoints in ``root``, ascending; whether they are intact is not looked at."""
    if not root.is_dir():
        return []
    names = (_NAME.fullmatch(entry.name) for entry in root.iterdir())
    return sorted(int(match[1]) for match in names if match)


def remove_drafts(root: Path) -> None:
    """Remove what a killed process left half-written. Only for the one process that writes here."""
    for draft in root.glob(f"{_DRAFT}*"):
        shutil.rmtree(draft, ignore_errors=True)


def _folder(step: int) -> str:
    return f"step_{step:09d}"


def _aside(path: Path) -> Path:
    """A hidden name beside ``path`` that is free, for what is about to be removed."""
    aside = path.with_name(f"{_DRAFT}old_{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    return aside


def _plain(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Parameters are views of one flat tensor, and safetensors takes neither shared memory nor strides.
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in named.items()
    }


def _state_text(state: Mapping[str, object]) -> str:
    _check_keys(state, "state")
    return json_text(state)


def _check_keys(value: object, where: str) -> None:
    """JSON turns other keys into strings without a word; they would come back changed."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a string")
            _check_keys(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_keys(item, f"{where}[{index}]")


def _write_draft(draft: Path, step: int, files: Mapping[str, bytes]) -> None:
    if draft.exists():
        shutil.rmtree(draft)
    for name, data in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        write_durably(draft / name, data)
    listed = {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in files.items()}
    manifest = json_text({"schema": SCHEMA, "step": step, "files": listed})
    write_durably(draft / "manifest.json", manifest.encode())
    for folder in {(draft / name).parent for name in files} | {draft}:
        sync_folder(folder)


def _move(draft: Path, target: Path) -> None:
    aside = _aside(target)
    with contextlib.suppress(FileNotFoundError):
        target.rename(aside)
    draft.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _verified(path: Path) -> tuple[int, dict[str, bytes]]:
    """Step and files of a checkpoint, read once and compared with its manifest."""
    step, listed = _read_manifest(path)
    files = {}
    for name, size, digest in listed:
        if not (path / name).resolve().is_relative_to(path.resolve()):
            raise _damaged(path / "manifest.json", f"it points outside of the checkpoint, to {name}")
        try:
            data = (path / name).read_bytes()
        except OSError as error:
            raise _damaged(path / name, error.strerror or str(error)) from error
        if len(data) != size:
            raise _damaged(path / name, f"it has {len(data)} bytes, {size} were written")
        if _digest(data) != digest:
            raise _damaged(path / name, "its SHA-256 is not the one that was written")
        files[name] = data
    return step, files


def _read_manifest(path: Path) -> tuple[int, list[tuple[str, int, str]]]:
    manifest = path / "manifest.json"
    try:
        content = json.loads(manifest.read_bytes())
        if content["schema"] != SCHEMA:
            raise _damaged(manifest, f"schema {content['schema']} was written, {SCHEMA} can be read")
        if "state.json" not in content["files"]:
            raise _damaged(manifest, "it does not list state.json")
        files = content["files"].items()
        return int(content["step"]), [(str(name), int(f["bytes"]), str(f["sha256"])) for name, f in files]
    except OSError as error:
        raise _damaged(manifest, error.strerror or str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(manifest, f"it is not a manifest ({type(error).__name__}: {error})") from error


def _damaged(where: Path, why: str) -> StorageError:
    return StorageError("a checkpoint is damaged", where=where, why=why, fix="use another one: --ckpt STEP")
