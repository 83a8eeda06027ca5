"""Checkpoints that are complete or do not exist: safetensors and JSON, hashed, renamed into place.

``<root>/step_000040000/{<stem>.safetensors …, state.json, manifest.json}``. Everything is written into a
hidden folder beside it; the manifest with sizes and SHA-256 comes last, then the folder gets its name.
Whoever is killed on the way leaves a hidden folder, which no reader looks at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
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
    target = root / f"step_{step:09d}"
    draft = root / f"{_DRAFT}{target.name}"
    try:
        _write_draft(draft, step, files)
        _move(draft, target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise StorageError.of(error, what="the checkpoint cannot be written", where=target) from error
    write_json(root / "latest.json", {"step": step, "folder": target.name})
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


def find_checkpoint(root: Path, step: int | None = None, *, warn: Callable[[str], None]) -> Path:
    """The folder of the newest checkpoint that can be loaded, or of the one of ``step``.

    warn: told of every damaged checkpoint passed over. One asked for by its step is never passed over.
    Raises StorageError, with the steps there are, if there is none.
    """
    steps = checkpoint_steps(root)
    if step is not None:
        if step not in steps:
            raise _missing(f"there is no checkpoint of step {step}", root, steps)
        path = root / f"step_{step:09d}"
        load_checkpoint(path)
        return path
    for candidate in reversed(steps):
        path = root / f"step_{candidate:09d}"
        try:
            load_checkpoint(path)
        except StorageError as error:
            warn(f"{error.line} · trying the one before")
            continue
        return path
    raise _missing("there is no complete checkpoint" if steps else "there is no checkpoint", root, [])


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
    aside = target.with_name(f"{_DRAFT}old_{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
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


def _missing(what: str, root: Path, steps: list[int]) -> StorageError:
    return StorageError(
        what,
        where=root,
        why=f"steps there: {', '.join(map(str, steps))}" if steps else "nothing usable was saved there",
        fix=f"use one of them: --ckpt {steps[-1]}" if steps else "train first, or choose another run with -n",
    )
