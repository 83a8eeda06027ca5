"""Networks of a generation's members: the elites' mean with noise, from safetensors files.

A file is read and written a chunk at a time, so that memory does not depend on the size of networks or of
their largest tensor. Torch is not needed.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from algorithm.core.errors import ModelError, NumericalError
from algorithm.core.reading import open_plain, parse_json
from algorithm.runs.checkpoints.manifest import (
    INDEX,
    LARGEST,
    MANIFEST,
    STATE,
    TENSORS,
    TRAINED,
    Entry,
    Manifest,
    damaged,
    read_manifest,
)
from algorithm.runs.files import put, replacing, write_durably

FLOOR = 0.01
"""Smallest standard deviation of a tensor's noise, as a share of the root mean square of its mean."""

LARGEST_STD = 1.0
"""Largest standard deviation of the noise; it goes before the floor."""

REPLAY = "replay"
"""Folder of a replay's segments, in a run and in what a member begins with."""

CHUNK = 2**17
"""Numbers of one tensor that are in memory at once, of each elite; a multiple of the block of a sum."""

_BLOCK = 2**12
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_Numbers = NDArray[np.float64]


def draw_networks(elites: Sequence[Path], out: Path, noise: Callable[[str], np.random.Generator]) -> Entry:
    """Write the networks of a new member: θ = μ + σ ε for each trained number, with ε ~ N(0, 1).

    μ and σ are mean and standard deviation over the elites, σ at least ``FLOOR`` · rms(μ) of the tensor and
    at most ``LARGEST_STD``. So one elite gives its own networks plus noise. Whatever is not trained, such as
    statistics of observations and targets, is the first elite's.

    elites: files of networks of one behaviour, best first
    noise:  name of a tensor → the generator of its ε
    Returns size and SHA-256 of the file. Raises StorageError; ModelError for numbers that cannot be averaged;
    NumericalError if a mean is not finite.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(_NetworkFile(path)) for path in elites]
        first = files[0]
        for other in files[1:]:
            _check_alike(first, other)
        digest, nbytes = hashlib.sha256(), 0
        file = stack.enter_context(replacing(out))
        for data in _content(files, noise):
            put(file, data)
            digest.update(data)
            nbytes += len(data)
    return Entry(nbytes, digest.hexdigest())


def write_start(
    folder: Path,
    parents: Sequence[Path],
    noise: Callable[..., np.random.Generator],
    *,
    replay: Path | None,
) -> None:
    """Write what a member begins with, durably: a checkpoint with drawn networks.

    parents: checkpoints of elites, best first
    noise:   names, such as a tensor's, → generator of its noise; see :func:`draw_networks`
    replay:  segments of the only parent's replay, which are linked here with its index, beside its moments
    """
    manifest = read_manifest(parents[0])
    files = {}
    for name in manifest.files:
        place = Path(name)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        if place.name == f"model{TENSORS}":
            files[name] = draw_networks(
                [parent / place for parent in parents],
                folder / place,
                partial(noise, name),
            )
        elif name == STATE:
            write_durably(folder / place, b"{}")
            files[name] = Entry.of(b"{}")
        elif replay is not None and place.name == f"optim{TENSORS}":
            shutil.copyfile(parents[0] / place, folder / place)
            files[name] = manifest.files[name]
    own = Manifest(step=manifest.step, files=files, replay=None, segments={})
    if replay is not None and manifest.replay is not None:
        for name in manifest.segments:
            (folder / REPLAY / name).parent.mkdir(parents=True, exist_ok=True)
            _link(replay / name, folder / REPLAY / name)
        shutil.copyfile(parents[0] / INDEX, folder / INDEX)
        own = replace(own, replay=manifest.replay, segments=manifest.segments)
    write_durably(folder / MANIFEST, own.text.encode())


def _link(source: Path, target: Path) -> None:
    """Give a segment, which never changes, another name; copy it where the file system has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def _content(files: Sequence[_NetworkFile], noise: Callable[[str], np.random.Generator]) -> Iterator[bytes]:
    """Yield the bytes of the new file, laid out as the first elite's."""
    first = files[0]
    yield first.head
    for name, stored in first.tensors.items():
        if name in first.trained:
            yield from _drawn(files, name, noise(name))
        else:
            for start in range(stored.start, stored.end, CHUNK):
                yield first.read(start, min(start + CHUNK, stored.end))


def _drawn(files: Sequence[_NetworkFile], name: str, rng: np.random.Generator) -> Iterator[bytes]:
    """Yield the bytes of a drawn tensor; the same whatever ``CHUNK`` is."""
    stored = files[0].tensors[name]
    if stored.dtype not in _DTYPES:
        raise ModelError(
            f"networks of numbers {stored.dtype} cannot be averaged",
            where=f"{files[0].path}, {name}",
            fix=f"use networks of {', '.join(_DTYPES)}",
        )
    dtype, floor = _DTYPES[stored.dtype], FLOOR * _rms(files, name)
    if not math.isfinite(floor):
        paths = ", ".join(str(file.path) for file in files)
        raise NumericalError("a mean of networks is not finite", where=f"{name} of {paths}")
    for values in _chunks(files, name):
        mean = _mean(values)
        variance = _mean([(value - mean) ** 2 for value in values])
        std = np.minimum(np.maximum(np.sqrt(variance), floor), LARGEST_STD)
        yield (mean + std * rng.standard_normal(mean.size)).astype(dtype).tobytes()


def _rms(files: Sequence[_NetworkFile], name: str) -> float:
    """Return the root mean square of the mean; its sum is exact over blocks, so that no order matters."""
    sums: list[float] = []
    count = 0
    for values in _chunks(files, name):
        squares = _mean(values) ** 2
        whole = squares.size // _BLOCK * _BLOCK
        sums += squares[:whole].reshape(-1, _BLOCK).sum(1).tolist()
        sums += [float(squares[whole:].sum())]
        count += squares.size
    return math.sqrt(math.fsum(sums) / count) if count else 0.0


def _chunks(files: Sequence[_NetworkFile], name: str) -> Iterator[list[_Numbers]]:
    """Yield the elites' numbers of one tensor, each [≤ CHUNK] and in the files' order."""
    dtype = np.dtype(_DTYPES[files[0].tensors[name].dtype])
    size = files[0].tensors[name].end - files[0].tensors[name].start
    step = CHUNK * dtype.itemsize
    for start in range(0, size, step):
        end = min(start + step, size)
        parts = [
            file.read(file.tensors[name].start + start, file.tensors[name].start + end) for file in files
        ]
        yield [np.frombuffer(part, dtype).astype(np.float64) for part in parts]


def _mean(values: Sequence[_Numbers]) -> _Numbers:
    total = np.zeros_like(values[0])
    for value in values:
        total += value
    return total / len(values)


@dataclass(frozen=True)
class _StoredTensor:
    """Type, shape and place of a tensor: bytes ``start`` to ``end`` of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class _NetworkFile:
    """An open safetensors file that says which of its tensors are trained. Raises StorageError.

    tensors: in their order in the file
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with safe_open(path, "numpy") as layout:  # whose types, shapes and places fit together
                self.trained = frozenset(parse_json((layout.metadata() or {})[TRAINED]))
                missing = self.trained.difference(layout.keys())
            if missing:
                raise ValueError(f"there is no {min(missing)}")
            self._file: BinaryIO = open_plain(path, LARGEST)
        except KeyError as error:
            raise damaged(path, "it does not say which of its tensors are trained") from error
        except (OSError, ValueError, TypeError, SafetensorError) as error:
            raise damaged(path, str(error)) from error
        size = int.from_bytes(self.read(0, 8), "little")
        self.head = self.read(0, 8 + size)
        header = parse_json(self.head[8:])
        del header["__metadata__"]
        found = {name: _stored(entry, len(self.head)) for name, entry in header.items()}
        self.tensors = dict(sorted(found.items(), key=lambda item: item[1].start))

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of the file. Raises StorageError."""
        try:
            self._file.seek(start)
            data = self._file.read(end - start)
        except OSError as error:
            raise damaged(self.path, error.strerror or str(error)) from error
        if len(data) != end - start:
            raise damaged(self.path, f"it ends at byte {start + len(data):,}, before {end:,}")
        return data

    def __enter__(self) -> _NetworkFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _stored(entry: Mapping[str, Any], behind: int) -> _StoredTensor:
    start, end = entry["data_offsets"]
    return _StoredTensor(entry["dtype"], tuple(entry["shape"]), behind + start, behind + end)


def _check_alike(first: _NetworkFile, other: _NetworkFile) -> None:
    """Raise StorageError unless both train the same tensors, in shape and type."""
    for name in sorted(first.trained | other.trained):
        one, two = (
            (file.tensors[name].dtype, file.tensors[name].shape) if name in file.trained else None
            for file in (first, other)
        )
        if one != two:
            raise damaged(other.path, f"its {name} is {two}, and that of {first.path} is {one}")
