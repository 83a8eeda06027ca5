"""Contents of a source of episodes, and whether agents can learn from them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from algorithm.core.data import DemoEpisode
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.wording import Rows, counted, short
from algorithm.demos.check import fitted
from algorithm.demos.episode import FaultyRecordingError, RecordedEpisode
from algorithm.demos.sources import Digest, Source
from algorithm.env.config import without_team


@dataclass
class Contents:
    """Statistics of the episodes of a source; their arrays are not kept.

    doubt:  why the source was not compared with the agents; empty if it was
    misfit: the first reason why agents cannot learn from it, with its place; empty if they can
    remedy: advice on the misfit, where another recording is not the only way
    """

    source: Source
    doubt: str
    misfit: str = ""
    remedy: str = ""
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
        """Return (label, text) of each line of the table that is printed about the source."""
        lengths, others = self.lengths, set(self.behaviours) - {DEFAULT_BEHAVIOUR}
        rows = [("fits", f"no: {self.misfit}" if self.misfit else self.doubt or "yes")]
        if self.remedy:
            rows.append(("to do", self.remedy))
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
        return rows if self.misfit or self.doubt else [*rows, ("digest", str(self.digest))]

    def add(self, episode: RecordedEpisode) -> None:
        """Add an episode to the statistics, whatever its arrays are."""
        reward, mask = np.atleast_1d(episode.reward), episode.action_mask
        self.returns.append(float(reward.sum(dtype=np.float64)) if reward.dtype.kind in "fiub" else np.nan)
        self.lengths.append(len(reward))
        self.behaviours[episode.behaviour] += 1
        self.layouts[_layout(episode)] += 1
        self.terminated += bool(np.count_nonzero(np.atleast_1d(episode.terminated)[-1:]))
        self.choices += mask.size
        self.forbidden += mask.size - int(np.count_nonzero(mask))

    def blame(self, error: FaultyRecordingError) -> None:
        """Keep an error as the misfit if it is the first."""
        if not self.misfit:
            self.misfit = f"{error.where}: {error.why}" if error.where else error.why
            self.remedy = error.fix

    def check_behaviours(self, specs: Mapping[str, AgentSpec]) -> None:
        """Raise FaultyRecordingError if there is no episode, or if one of several behaviours is unknown."""
        if not self.lengths:
            raise FaultyRecordingError("it contains no episode")
        known, names = (set(map(without_team, each)) for each in (specs, self.behaviours))
        if specs and names - known and len(names) > 1:  # a single name may stand for another one
            others, there = (", ".join(map(repr, sorted(each))) for each in (names - known, specs))
            raise FaultyRecordingError(f"it is of the behaviour {others}, and the environment has {there}")


def read_contents(source: Source, specs: Mapping[str, AgentSpec], doubt: str = "") -> Contents:
    """Read a source, and return its statistics and the first reason why agents cannot learn from it.

    specs: of the agents, by behaviour; empty where they are unknown, for the reason ``doubt``
    """
    contents = Contents(source, doubt)
    try:
        for episode in source.read(None, contents.notices.append):
            contents.add(episode)
            try:
                if specs:
                    contents.digest.add(_fitted(episode, specs))
            except FaultyRecordingError as error:
                contents.blame(error)
        contents.check_behaviours(specs)
    except FaultyRecordingError as error:
        contents.blame(error)
    except OSError as error:
        contents.blame(FaultyRecordingError(error.strerror or str(error)))
    return contents


def _fitted(episode: RecordedEpisode, specs: Mapping[str, AgentSpec]) -> DemoEpisode:
    """Return the episode as an agent of its behaviour learns from it.

    If there is no such behaviour, the first one that it fits is taken: of those of the same name in other
    teams, or of all if there are none of them. Raises FaultyRecordingError if it fits none.
    """
    plain = without_team(episode.behaviour)
    alike = [name for name in specs if without_team(name) == plain]
    *others, last = [episode.behaviour] if episode.behaviour in specs else alike or specs
    for name in others:
        with contextlib.suppress(FaultyRecordingError):
            return fitted(episode, specs[name], name)
    return fitted(episode, specs[last], last)


def _layout(episode: RecordedEpisode) -> tuple[str, str]:
    """Return an episode's observations and action as texts, equal for equal layouts."""
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
    """Return mean, smallest and largest value in words; only the value if all are equal."""
    mean, low, high = (short(float(of(values))) for of in (np.mean, np.min, np.max))
    return mean if low == high else f"{mean} on average, {low} to {high}"
