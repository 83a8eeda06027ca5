"""An episode as a file holds it, and what those who read and write such files share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from algorithm.core.data import Array
from algorithm.core.spec import AgentSpec
from algorithm.core.system.files import replace as replace_file
from algorithm.env.config import without_team


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """Whole episode of L transitions, checked against nothing: any array may have any shape and type.

    number: in its file, from 0; agent: id of the agent
    spec: what its agent saw and did, where the file says more of it than the arrays do
    """

    number: int
    behaviour: str
    agent: int
    obs: Mapping[str, Array]  # [L+1, ...]
    action_mask: Array  # [L+1, ΣN] true where a discrete action was allowed
    action: Array  # [L, A] one-hots of the branches, then the continuous part in [-1, 1]
    reward: Array  # [L]
    terminated: Array  # [L]
    truncated: Array  # [L]
    carry: Array | None = None  # [L+1, *C] before each observation, of the agent that was recorded
    z: Array | None = None  # [L, A_c] continuous part before it was squashed
    behaviour_logp: Array | None = None  # [L, H] log-probabilities of whoever acted
    spec: AgentSpec | None = None


class FaultyRecordingError(Exception):
    """A recording that does not hold what an agent needs.

    where: in the file; empty for all of it; fix: what to do, where another recording is not the only way
    """

    def __init__(self, why: str, where: str = "", fix: str = "") -> None:
        super().__init__(why)
        self.why, self.where, self.fix = why, where, fix


Notify = Callable[[str], None]
"""Takes what a person should know of a file, such as a step that was left out."""


@dataclass(frozen=True)
class Wanted:
    """The behaviour whose episodes are read.

    behaviours: all of the environment; a recording under another name may be of any of them
    """

    behaviour: str
    behaviours: Iterable[str] = ()

    def among(self, recorded: Iterable[str], notify: Notify) -> set[str]:
        """Return the names in a recording under which its episodes are.

        That of the behaviour, or else with another team, or else the only name, if no behaviour has it.
        Raises FaultyRecordingError if there is none of them.
        """
        names, plain = set(recorded), without_team(self.behaviour)
        known = {plain, *map(without_team, self.behaviours)}
        alike = {name for name in names if without_team(name) == plain}
        strange = {name for name in names if without_team(name) not in known}
        matching = names & {self.behaviour} or alike
        if not matching and len(set(map(without_team, strange))) == 1:
            notify(f"recorded as the behaviour {', '.join(sorted(strange))}, used as {plain}")
            return strange
        if names and not matching:
            others = ", ".join(map(repr, sorted(names)))
            raise FaultyRecordingError(f"no episode is of the behaviour {plain!r}, but of {others}")
        return matching


Reader = Callable[[Path, Wanted | None, Notify], Iterator[RecordedEpisode]]
"""Yields a file's episodes of a behaviour, one after the other; None: of all.

Raises FaultyRecordingError for a file that cannot be used, or holds none of them, OSError from the system.
"""


class EpisodeWriter(Protocol):
    """Writer of a recording, complete or absent. Every method may raise OSError.

    target: name for a person
    """

    target: str

    def begin(self) -> None:
        """Open it: a target that cannot be written to fails before anything is played."""

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode."""

    def finish(self) -> None:
        """Complete it, with one episode at least."""

    def discard(self) -> None:
        """Leave nothing behind; nothing happens without :meth:`begin`."""


class Draft:
    """File that has another name until it is complete, and then replaces one of its own name.

    Every method may raise OSError but :meth:`discard`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._stream: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """Return it, empty."""
        if self.path.is_dir():
            raise IsADirectoryError("it is a folder")
        self._stream = self._draft.open("wb")
        return self._stream

    def finish(self) -> None:
        """Close it and give it its name."""
        assert self._stream is not None, "open comes first"
        self._stream.close()
        replace_file(self._draft, self.path)
        self._stream = None

    def discard(self) -> None:
        """Remove it."""
        stream, self._stream = self._stream, None
        with contextlib.suppress(OSError):  # the disk may be full
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()


def shown(value: Array) -> str:
    """Return type and shape for a person."""
    return f"{value.dtype} {list(value.shape)}"


def layout(spec: AgentSpec) -> str:
    """Return what an agent sees and does; equal texts are equal layouts. Observations stand in no order."""
    obs = spec.obs
    seen = sorted(
        f"{name} {dtype} {list(shape)}{f' of {list(counts)} choices' if counts else ''}"
        for name, shape, dtype, counts in zip(obs.names, obs.shapes, obs.dtypes, obs.categories, strict=True)
    )
    sizes = f"choices {list(spec.action.branches)}, {spec.action.continuous} continuous"
    return f"{', '.join(seen)}; {spec.action.description or sizes}"


def renamed(episode: RecordedEpisode, names: Mapping[str, str]) -> RecordedEpisode:
    """Return the episode with other names of its observations. names: in the file -> here.

    Raises FaultyRecordingError where two would have one name.
    """
    own = {name: names.get(name, name) for name in episode.obs}
    twice = sorted(name for name in own if list(own.values()).count(own[name]) > 1)
    if twice:
        raise FaultyRecordingError(
            f"rename gives the observations {', '.join(twice)} one name, {own[twice[0]]}",
            f"episode {episode.number}",
        )
    spec = episode.spec
    if spec is not None:
        obs = replace(spec.obs, names=tuple(names.get(name, name) for name in spec.obs.names))
        spec = replace(spec, obs=obs)
    return replace(episode, obs={own[name]: value for name, value in episode.obs.items()}, spec=spec)
