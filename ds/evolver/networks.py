"""Networks of a generation's members: the elites' mean with noise, from safetensors files; without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from algorithm.core.errors import NumericalError
from algorithm.core.reading import parse_json
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
    read_manifest,
)
from algorithm.store.files import write_durably

FLOOR = 0.01
"""Smallest standard deviation of a tensor's noise, as a share of the root mean square of its mean."""

LARGEST_STD = 1.0
"""Largest standard deviation of the noise; it goes before the floor."""

REPLAY = "replay"
"""Folder of a replay's segments, in a run and in what a member begins with."""

_Tensor = NDArray[Any]


def draw_networks(elites: Sequence[Path], out: Path, noise: Callable[[str], np.random.Generator]) -> Entry:
    """Write the networks of a new member: θ = μ + σ ε for each trained number, with ε ~ N(0, 1).

    μ and σ are mean and standard deviation over the elites, σ at least ``FLOOR`` · rms(μ) of the tensor and
    at most ``LARGEST_STD``. So one elite gives its own networks plus noise. Whatever is not trained, such as
    statistics of observations and targets, is the first elite's.

    elites: files of networks of one behaviour, best first
    noise:  name of a tensor → the generator of its ε
    Returns size and SHA-256 of the file. Raises StorageError; NumericalError if a mean is not finite.
    """
    files = [_read(path) for path in elites]
    first = files[0]
    drawn = {name: _drawn(files, name, noise(name)) for name in sorted(first.trained)}
    data = safetensors.numpy.save({**first.tensors, **drawn}, dict(first.metadata))
    write_durably(out, data)
    return Entry.of(data)


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
            write_durably(folder / place, (parents[0] / place).read_bytes())
            files[name] = manifest.files[name]
    start = Manifest(step=manifest.step, files=files, replay=None, segments={})
    if replay is not None and manifest.replay is not None:
        for name in manifest.segments:
            (folder / REPLAY / name).parent.mkdir(parents=True, exist_ok=True)
            _link(replay / name, folder / REPLAY / name)
        write_durably(folder / INDEX, (parents[0] / INDEX).read_bytes())
        start = replace(start, replay=manifest.replay, segments=manifest.segments)
    write_durably(folder / MANIFEST, start.text.encode())


def check_start(folder: Path) -> None:
    """Raise StorageError unless every file of :func:`write_start` is as it was written."""
    manifest = read_manifest(folder)
    for name, entry in manifest.files.items():
        check_listed(folder, name, entry)
    if manifest.replay is not None:
        check_listed(folder, INDEX, manifest.replay)
    for name, entry in manifest.segments.items():
        check_listed(folder / REPLAY, name, entry)


def _link(source: Path, target: Path) -> None:
    """Give a segment, which never changes, another name; copy it where the file system has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        write_durably(target, source.read_bytes())


@dataclass(frozen=True)
class _Networks:
    """A file of networks. trained: names of the tensors that an optimiser trains."""

    path: Path
    metadata: Mapping[str, str]
    trained: frozenset[str]
    tensors: Mapping[str, _Tensor]


def _read(path: Path) -> _Networks:
    """Read a file of networks. Raises StorageError."""
    try:
        with safe_open(path, "numpy") as file:
            metadata, names = file.metadata() or {}, file.keys()
            trained = frozenset(parse_json(metadata[TRAINED]))
            if missing := trained.difference(names):
                raise ValueError(f"there is no {min(missing)}")
            tensors = {name: file.get_tensor(name) for name in names}
    except KeyError as error:
        raise damaged(path, "it does not state which of its tensors are trained") from error
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise damaged(path, str(error)) from error
    return _Networks(path, metadata, trained, tensors)


def _drawn(files: Sequence[_Networks], name: str, rng: np.random.Generator) -> _Tensor:
    first = files[0].tensors[name]
    elites = np.stack([file.tensors[name].astype(np.float64) for file in files])
    mean = elites.mean(0)
    floor = FLOOR * np.sqrt(np.square(mean).sum() / max(mean.size, 1))
    if not np.isfinite(floor):
        paths = ", ".join(str(file.path) for file in files)
        raise NumericalError("a mean of networks is not finite", where=f"{name} of {paths}")
    std = np.minimum(np.maximum(elites.std(0), floor), LARGEST_STD)
    return np.asarray(mean + std * rng.standard_normal(mean.shape), first.dtype)
