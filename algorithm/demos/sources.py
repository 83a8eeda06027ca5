"""Demonstrations of a configuration: from paths to episodes that fit the agent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from algorithm.core.data import DemoEpisode, Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.spec import AgentSpec
from algorithm.demos.check import fitted
from algorithm.demos.config import DemoConfig
from algorithm.demos.episode import FaultyRecordingError, Notify, Reader
from algorithm.demos.mlagents import read_demo
from algorithm.demos.npz import read_npz
from algorithm.env.config import without_team

READERS: Mapping[str, Reader] = {".npz": read_npz, ".demo": read_demo}
"""By the ending of a file's name."""

_PATH = "demonstrations.path"


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
    notices: list[str] = []
    found = [
        (name, episode)
        for name, file in files
        for episode in _read(file, spec, behaviour, partial(_note, notices, name))
    ]
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
        notices=notices,
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


def _read(file: Path, spec: AgentSpec, behaviour: str, notify: Notify) -> list[DemoEpisode]:
    names = frozenset({behaviour, without_team(behaviour)})
    try:
        return [fitted(episode, spec) for episode in READERS.get(file.suffix, read_npz)(file, names, notify)]
    except FaultyRecordingError as error:
        why, where = error.why, error.where
    except OSError as error:
        why, where = error.strerror or str(error), ""
    raise UsageError(
        "a demonstration cannot be used",
        where=f"{file}{f', {where}' if where else ''}",
        why=why,
        fix="give a recording of --record of this task, made with the same wrappers",
    )


def _note(notices: list[str], file: str, text: str) -> None:
    notices.append(f"{file}: {text}")


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
