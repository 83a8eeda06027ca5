"""Demonstrations of a configuration: from names of files and data sets to episodes that fit the agent."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from algorithm.core.data import DemoEpisode, Demonstrations
from algorithm.core.errors import UsageError
from algorithm.core.extras import extra
from algorithm.core.spec import AgentSpec
from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError, Notify, Reader, RecordedEpisode, Wanted
from algorithm.demos.npz import read_npz
from algorithm.keys.demonstrations import MINARI, DemoConfig, dataset_id


def _read_demo(path: Path, wanted: Wanted | None, notify: Notify) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a file of ML-Agents; a :data:`~algorithm.demos.episode.Reader`."""
    episodes: Iterator[RecordedEpisode] = extra("read_demo")(path, wanted, notify)
    return episodes


READERS: Mapping[str, Reader] = {".npz": read_npz, ".demo": _read_demo}
"""Ending of a file's name -> its reader."""

_PATH = "demonstrations.path"


@dataclass(frozen=True)
class Source:
    """A file or data set of episodes.

    name: for messages, relative to the task's folder where it lies below; where: path or id
    read: yields its episodes, as a :data:`~algorithm.demos.episode.Reader` does of a file
    """

    name: str
    where: str
    read: Callable[[Wanted | None, Notify], Iterator[RecordedEpisode]]

    def error(self, why: str, where: str = "", fix: str = "") -> UsageError:
        """Return the error for a source that cannot be used; where: place in the source."""
        return UsageError(
            "a demonstration cannot be used",
            where=f"{self.where}{f', {where}' if where else ''}",
            why=why,
            fix=fix or "use a recording of this task made by --record with the same wrappers",
        )


def load_demonstrations(
    config: DemoConfig, spec: AgentSpec, behaviour: str, folder: Path, behaviours: Iterable[str] = ()
) -> Demonstrations | None:
    """Return the episodes that the configuration names and selects; None if it names none.

    folder: the task's, which paths are relative to; behaviours: all of the environment
    Raises UsageError for a path without files, a source or episode that cannot be used, and if no episode is
    left.
    """
    if config.path is None:
        return None
    candidates: list[tuple[str, DemoEpisode]] = []
    notices: list[str] = []
    wanted = Wanted(behaviour, behaviours)
    for source in _sources([config.path] if isinstance(config.path, str) else config.path, folder):
        warnings: list[str] = []
        candidates += [(source.name, episode) for episode in _fitted(source, spec, wanted, warnings.append)]
        notices += [f"{source.name}: {text}" for text in warnings]
    kept = _selected([episode for _, episode in candidates], config)
    if not kept:
        raise _nothing_left(config, [episode.total for _, episode in candidates])
    digests: defaultdict[str, hashlib._Hash] = defaultdict(hashlib.sha256)
    for number in kept:
        name, episode = candidates[number]
        _add(digests[name], episode)
    return Demonstrations(
        episodes=[candidates[number][1] for number in kept],
        digests={name: digest.hexdigest() for name, digest in digests.items()},
        notices=notices,
    )


def _fitted(source: Source, spec: AgentSpec, wanted: Wanted, notify: Notify) -> Iterator[DemoEpisode]:
    """Yield the episodes of a source as the agent learns from them. Raises UsageError."""
    try:
        for episode in source.read(wanted, notify):
            yield fitted(episode, spec, wanted.behaviour)
    except FaultyRecordingError as error:
        raise source.error(error.why, error.where, error.fix) from error
    except OSError as error:
        raise source.error(error.strerror or str(error)) from error


def _nothing_left(config: DemoConfig, totals: Sequence[float]) -> UsageError:
    """Return the error for a selection without episodes. totals: returns of all episodes."""
    why, fix = (
        "the files contain no episodes",
        "record episodes of a run with the flags --eval 10 --record FILE.npz",
    )
    if totals:
        best = f"the best of {len(totals)} episodes has {max(totals):g}"
        why, fix = f"min_return is {config.min_return:g}, and {best}", "lower demonstrations.min_return"
    return UsageError("there are no demonstrations to learn from", where=_PATH, why=why, fix=fix)


def _sources(paths: Sequence[str], folder: Path) -> list[Source]:
    """Return the files and data sets of some paths, each once; of a folder all files with a known ending.

    folder: the task's, which paths are relative to
    Raises UsageError for a path without files, a file of another ending, and an invalid id of Minari.
    """
    sources: dict[str, Source] = {}
    for text in paths:
        for source in [_dataset(text)] if text.startswith(MINARI) else _files(text, folder):
            sources.setdefault(os.path.realpath(source.where), source)  # of a link to itself, too
    return list(sources.values())


def _dataset(text: str) -> Source:
    """Return the source for ``minari:ID``. Raises UsageError for an invalid id."""
    try:
        name = dataset_id(text)
    except ValueError as error:
        raise UsageError(
            "demonstrations were not found",
            where=f"{_PATH}: {text:.200}",
            why=str(error),
            fix="write minari:NAMESPACE/NAME-vN; minari list local shows what is there",
        ) from error
    return Source(text, text, partial(extra("read_minari"), name))


def _files(text: str, folder: Path) -> Iterator[Source]:
    """Yield the sources of a path, which may be a file, a folder or a pattern."""
    endings = " or ".join(READERS)
    try:
        place = folder / Path(text).expanduser()
        files = _matching(place)
        why = f"{place} {f'holds no {endings} file' if place.is_dir() else 'is not a file, and matches none'}"
    except (OSError, RuntimeError, ValueError) as error:  # too long; of nobody's home; with a NUL
        files, why = [], str(getattr(error, "strerror", None) or error)
    wrong = [file for file in files if file.suffix.lower() not in READERS]
    if wrong:
        why = f"{wrong[0]} ends in {wrong[0].suffix or 'nothing'}; recordings end in {endings}"
    if wrong or not files:
        raise UsageError(
            "demonstrations were not found",
            where=f"{_PATH}: {text:.200}",
            why=why,
            fix=f"name a recording of --record, a folder or a pattern of them, or {MINARI}ID; paths are "
            "relative to the task's folder",
        )
    for file in files:
        name = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        yield Source(name, str(file), partial(READERS[file.suffix.lower()], file))


def _matching(place: Path) -> list[Path]:
    """Return the files of a path: itself, the recordings in a folder, or the matches of a pattern."""
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix.lower() in READERS)
    if place.exists():
        return [place]
    return sorted(place.parent.glob(place.name)) if place.parent.is_dir() else []


def _selected(episodes: Sequence[DemoEpisode], config: DemoConfig) -> list[int]:
    """Return the numbers of the episodes that the configuration selects, in order."""
    totals = [episode.total for episode in episodes]
    kept = [i for i, total in enumerate(totals) if config.min_return is None or total >= config.min_return]
    if config.max_episodes > 0:
        kept = sorted(sorted(kept, key=lambda i: -totals[i])[: config.max_episodes])
    return kept


def _add(digest: hashlib._Hash, episode: DemoEpisode) -> None:
    """Add an episode to a hash, in the form from which the agent learns."""
    arrays = {
        **episode.obs,
        "/mask": episode.action_mask,
        "/action": episode.action,
        "/reward": episode.reward,
    }
    for name, value in arrays.items():
        digest.update(f"{name} {value.dtype} {value.shape} {episode.terminated}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
