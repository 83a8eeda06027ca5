"""Contents of a source of episodes, read one after the other, and their fit to what agents see and do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.wording import Rows, counted, short
from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError, RecordedEpisode
from algorithm.demos.sources import Digest, Renaming, Source
from algorithm.env.config import without_team


@dataclass
class Contents:
    """Numbers about the episodes of a source; none of their arrays is kept.

    misfit: the first reason why it cannot be learned from, with its place; empty if it can
    """

    source: Source
    misfit: str = ""
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    behaviours: Counter[str] = field(default_factory=Counter)
    layouts: Counter[tuple[str, str]] = field(default_factory=Counter)
    terminated: int = 0
    choices: int = 0
    forbidden: int = 0
    notices: list[str] = field(default_factory=list)
    digest: Digest = field(default_factory=Digest)

    def rows(self) -> Rows:
        """Return lines for a person."""
        lengths, others = self.lengths, set(self.behaviours) - {DEFAULT_BEHAVIOUR}
        rows = [("fits", f"no: {self.misfit}" if self.misfit else "yes")]
        rows.append(("episodes", f"{len(lengths):,}, {counted(sum(lengths), 'step')}"))
        if others:
            each = (f"{name} {number:,}" for name, number in sorted(self.behaviours.items()))
            rows.append(("behaviours", ", ".join(each)))
        for seen, done in self.layouts:
            rows += [("observation", seen), ("action", done)]
        if self.choices:
            rows.append(("masks", f"{self.forbidden / self.choices:.1%} of the choices are forbidden"))
        if lengths:
            rows += [("return", _spread(self.returns)), ("length", _spread(lengths))]
            cut_off = len(lengths) - self.terminated
            rows.append(("ends", f"{self.terminated:,} terminated, {cut_off:,} cut off"))
        rows += [("notice", text) for text in self.notices]
        return rows if self.misfit else [*rows, ("digest", str(self.digest))]

    def add(self, episode: RecordedEpisode) -> None:
        """Count an episode, whatever its arrays are."""
        reward, mask = np.atleast_1d(episode.reward), episode.action_mask
        self.returns.append(float(reward.sum(dtype=np.float64)) if reward.dtype.kind in "fiub" else np.nan)
        self.lengths.append(len(reward))
        self.behaviours[episode.behaviour] += 1
        self.layouts[_layout(episode)] += 1
        self.terminated += bool(np.count_nonzero(np.atleast_1d(episode.terminated)[-1:]))
        self.choices += mask.size
        self.forbidden += mask.size - int(np.count_nonzero(mask))


def look(source: Source, specs: Mapping[str, AgentSpec], renaming: Renaming) -> Contents:
    """Return what a source holds, and the first reason why agents of these specs cannot learn from it.

    specs: by behaviour
    """
    contents = Contents(source)
    known = {without_team(name): spec for name, spec in specs.items()} | dict(specs)
    try:
        for episode in source.read(None, contents.notices.append):
            episode = renaming(episode)
            contents.add(episode)
            try:
                contents.digest.add(fitted(episode, _spec_of(episode, known)))
            except FaultyRecordingError as error:
                contents.misfit = contents.misfit or _told(error)
    except FaultyRecordingError as error:
        contents.misfit = contents.misfit or _told(error)
    except OSError as error:
        contents.misfit = contents.misfit or error.strerror or str(error)
    if not contents.lengths:
        contents.misfit = contents.misfit or "it holds no episode"
    return contents


def _spec_of(episode: RecordedEpisode, known: Mapping[str, AgentSpec]) -> AgentSpec:
    if episode.behaviour not in known:
        there = ", ".join(map(repr, known))
        raise FaultyRecordingError(
            f"it is of the behaviour {episode.behaviour!r}, and the environment has {there}",
            f"episode {episode.number}",
        )
    return known[episode.behaviour]


def _told(error: FaultyRecordingError) -> str:
    told = f"{error.where}: {error.why}" if error.where else error.why
    return f"{told}; {error.fix}" if error.fix else told


def _layout(episode: RecordedEpisode) -> tuple[str, str]:
    """Return observations and action of an episode for a person; equal ones have equal texts."""
    seen = (
        f"{name} {'×'.join(map(str, value.shape[1:])) or 'scalar'} {value.dtype}"
        for name, value in episode.obs.items()
    )
    width, choices = (value.shape[-1] if value.ndim else 0 for value in (episode.action, episode.action_mask))
    parts = [counted(choices, "choice")] * bool(choices) + [f"{width - choices} continuous"] * (
        width > choices
    )
    return ", ".join(seen), " and ".join(parts) or "none"


def _spread(values: list[float] | list[int]) -> str:
    mean, low, high = (short(float(of(values))) for of in (np.mean, np.min, np.max))
    return mean if low == high else f"{mean} on average, {low} to {high}"
