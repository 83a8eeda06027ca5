"""Demonstrations of a configuration: from paths to episodes that fit the agent.

A recording is an ``.npz`` file as ``--record`` writes it, of which nothing is believed.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from algorithm.core.data import Array, DemoEpisode, Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.reading import open_plain
from algorithm.core.spec import AgentSpec
from algorithm.core.system.memory import free_memory
from algorithm.demos.config import DemoConfig
from algorithm.env.config import without_team

_PATH = "demonstrations.path"
_LARGEST = 2**40  # bytes of a file; its episodes are read one after the other
_FIELDS = ("action_mask", "action", "reward", "terminated", "truncated")
_TOLERANCE = 1e-5  # of rounding, in continuous actions at their bounds


def load_demonstrations(
    config: DemoConfig, spec: AgentSpec, behaviour: str, folder: Path
) -> Demonstrations | None:
    """Return the episodes that the configuration names and selects; None if it names no file.

    folder: the task's, which paths are relative to
    Raises UsageError for a path without files, a file or episode that cannot be used, and if none is left.
    """
    if config.path is None:
        return None
    files = list(_files([config.path] if isinstance(config.path, str) else config.path, folder))
    found = [(name, episode) for name, file in files for episode in _read(file, spec, behaviour)]
    kept = _selected([episode for _, episode in found], config)
    if not kept:
        best = max((episode.total for _, episode in found), default=None)
        raise UsageError(
            "there are no demonstrations to learn from",
            where=_PATH,
            why="the files hold no episode"
            if best is None
            else f"min_return is {config.min_return:g}, and the best of {len(found)} episodes has {best:g}",
            fix="record episodes of a run with the flags --eval 10 --record FILE.npz"
            if best is None
            else "lower demonstrations.min_return",
        )
    hashes: dict[str, hashlib._Hash] = {}
    for number in kept:
        name, episode = found[number]
        _take_in(hashes.setdefault(name, hashlib.sha256()), episode)
    return Demonstrations(
        episodes=[found[number][1] for number in kept],
        digests={name: one.hexdigest() for name, one in hashes.items()},
    )


def _files(paths: Sequence[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file once, with its name for a person."""
    seen = set()
    for text in paths:
        try:
            place = folder / Path(text).expanduser()
            found = _matching(place)
            why = f"{place} {'holds no .npz file' if place.is_dir() else 'is no file, and matches none'}"
        except (OSError, RuntimeError, ValueError) as error:  # too long; of nobody's home; with a NUL
            found, why = [], str(getattr(error, "strerror", None) or error)
        if not found:
            raise UsageError(
                "demonstrations were not found",
                where=f"{_PATH}: {text:.200}",
                why=why,
                fix="name a recording of --record; paths are relative to the task's folder",
            )
        for file in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file), file


def _matching(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(place.glob("*.npz"))
    if place.exists():
        return [place]
    return sorted(place.parent.glob(place.name)) if place.parent.is_dir() else []


def _read(file: Path, spec: AgentSpec, behaviour: str) -> list[DemoEpisode]:
    try:
        return list(_read_recording(file, spec, frozenset({behaviour, without_team(behaviour)})))
    except FaultyRecordingError as error:
        raise UsageError(
            "a demonstration cannot be used",
            where=f"{file}{f', {error.where}' if error.where else ''}",
            why=error.why,
            fix="give a recording of --record of this task, made with the same wrappers",
        ) from error


def _selected(episodes: Sequence[DemoEpisode], config: DemoConfig) -> list[int]:
    """Return the numbers of the episodes that are taken, in their order."""
    totals = [episode.total for episode in episodes]
    kept = [i for i, total in enumerate(totals) if config.min_return is None or total >= config.min_return]
    if config.max_episodes > 0:
        kept = sorted(sorted(kept, key=lambda i: -totals[i])[: config.max_episodes])
    return kept


def _take_in(digest: hashlib._Hash, episode: DemoEpisode) -> None:
    arrays = {
        **episode.obs,
        "/mask": episode.action_mask,
        "/action": episode.action,
        "/reward": episode.reward,
    }
    for name, value in arrays.items():
        digest.update(f"{name} {value.dtype} {value.shape} {episode.terminated}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())


class FaultyRecordingError(Exception):
    """A recording that does not hold what an agent needs. where: in the file; empty for all of it."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(why)
        self.why, self.where = why, where


def _read_recording(path: Path, spec: AgentSpec, behaviours: frozenset[str]) -> Iterator[DemoEpisode]:
    """Yield the episodes of a file that one of ``behaviours`` has played, checked against ``spec``.

    Raises FaultyRecordingError for a file, or an episode in it, that cannot be used.
    """
    try:
        with open_plain(path, _LARGEST, follow=True) as stream, zipfile.ZipFile(stream) as archive:
            names = _list_of(archive, "behaviour").tolist()
            others = sorted(set(names) - behaviours)
            if names and not behaviours.intersection(names):
                shown = ", ".join(map(repr, sorted(behaviours)))
                raise FaultyRecordingError(
                    f"no episode is of the behaviour {shown}, but of {', '.join(map(repr, others))}"
                )
            for number, name in enumerate(names):
                if name in behaviours:
                    yield _episode(archive, number, spec)
    except OSError as error:
        raise FaultyRecordingError(error.strerror or str(error)) from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise FaultyRecordingError(f"it is no recording: {error}") from error


def _list_of(archive: zipfile.ZipFile, name: str) -> Array:
    """Return one of the arrays on all episodes."""
    value = _array(archive, name)
    if value.ndim != 1:
        raise FaultyRecordingError(f"expected one entry for each episode, got {_shown(value)}", name)
    return value


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    """Return an array by name. Nothing is allocated for a size that only its header claims."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise FaultyRecordingError("it is missing", name) from None
    if info.file_size > free_memory() // 2:
        raise FaultyRecordingError(
            f"it has {info.file_size:,} bytes, more than half of the free memory", name
        )
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name} is of the version {version} of numpy's format")
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, column_major, dtype = read(member)
        if not all(type(size) is int and size >= 0 for size in shape):  # numpy takes True for a size
            raise ValueError(f"{name} has the shape {shape}")
        if dtype.hasobject:
            raise FaultyRecordingError("it holds Python objects, which are not read", name)
        data = member.read(info.file_size)
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} has {len(data):,} bytes, and its header says {dtype} {list(shape)}")
    value: Array = np.frombuffer(data, dtype).reshape(shape, order="F" if column_major else "C")
    return value


def _episode(archive: zipfile.ZipFile, number: int, spec: AgentSpec) -> DemoEpisode:
    prefix = f"{number}/obs/"
    seen = {n.removeprefix(prefix).removesuffix(".npy") for n in archive.namelist() if n.startswith(prefix)}
    if seen != set(spec.obs.names):
        expected, got = (", ".join(sorted(each)) or "none" for each in (spec.obs.names, seen))
        raise FaultyRecordingError(f"expected the observations {expected}, got {got}", f"episode {number}")
    names = [*(f"obs/{name}" for name in spec.obs.names), *_FIELDS]
    found = {name: _array(archive, f"{number}/{name}") for name in names}
    try:
        _check(found, spec)
    except FaultyRecordingError as error:
        raise FaultyRecordingError(error.why, f"episode {number}, {error.where}") from error
    return DemoEpisode(
        obs={name: found[f"obs/{name}"] for name in spec.obs.names},
        action_mask=found["action_mask"].astype(np.bool_),
        action=_within_bounds(found["action"].astype(np.float32), spec),
        reward=found["reward"].astype(np.float32),
        terminated=bool(found["terminated"][-1]),
    )


def _within_bounds(action: np.ndarray, spec: AgentSpec) -> np.ndarray:
    action[:, spec.action.discrete :].clip(-1.0, 1.0, out=action[:, spec.action.discrete :])
    return action


def _check(found: Mapping[str, Array], spec: AgentSpec) -> None:
    """Raise FaultyRecordingError for an array that is not what the spec says."""
    length = len(found["reward"]) if found["reward"].ndim else 0
    if not length:
        raise FaultyRecordingError(f"expected at least one step, got {_shown(found['reward'])}", "reward")
    expected = {
        f"obs/{name}": (np.dtype(dtype), (length + 1, *shape)) for name, shape, dtype in spec.obs.items()
    }
    action = spec.action
    expected["action_mask"] = np.dtype(np.bool_), (length + 1, action.discrete)
    expected["action"] = np.dtype(np.float32), (length, action.size)
    expected["reward"] = np.dtype(np.float32), (length,)
    expected["terminated"] = expected["truncated"] = np.dtype(np.bool_), (length,)
    for name, (dtype, shape) in expected.items():
        value = found[name]
        if value.dtype != dtype or value.shape != shape:
            raise FaultyRecordingError(f"expected {dtype} {list(shape)}, got {_shown(value)}", name)
        if dtype.kind == "f" and not np.isfinite(value).all():
            raise FaultyRecordingError("it holds numbers that are not finite", name)
    _check_choices(found["action"], found["action_mask"][:-1], spec)
    for name, counts in zip(spec.obs.names, spec.obs.categories, strict=True):
        if not counts:
            continue
        value = found[f"obs/{name}"].reshape(length + 1, -1)
        if (value < 0).any() or (value >= np.array(counts)).any():  # type: ignore[operator]  # whole numbers
            raise FaultyRecordingError(f"expected choices among {list(counts)}, from 0 on", f"obs/{name}")
    for name in ("terminated", "truncated"):
        if found[name][:-1].any():
            raise FaultyRecordingError("it is true before the last step", name)


def _check_choices(action: Array, mask: Array, spec: AgentSpec) -> None:
    chosen, continuous = np.split(action, [spec.action.discrete], axis=1)
    for branch in spec.action.branch_slices:
        one = chosen[:, branch]
        if not (np.isin(one, (0, 1)).all() and (one.sum(1) == 1).all()):
            raise FaultyRecordingError(f"expected one choice among {one.shape[1]} in each step", "action")
    if (chosen.astype(np.bool_) & ~mask.astype(np.bool_)).any():
        raise FaultyRecordingError("a choice was taken that action_mask forbids", "action")
    if (np.abs(continuous) > 1.0 + _TOLERANCE).any():
        raise FaultyRecordingError("expected continuous actions in [-1, 1]", "action")


def _shown(value: Array) -> str:
    return f"{value.dtype} {list(value.shape)}"
