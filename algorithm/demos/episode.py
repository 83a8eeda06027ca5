"""An episode as a file holds it, and what all readers and writers of such files have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from algorithm.core.data import Array
from algorithm.core.spec import AgentSpec
from algorithm.env.config import without_team


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """Whole episode of L transitions, unchecked: any array may have any shape and type.

    number: in its file, from 0; agent: id of the agent
    spec: the agent's observations and actions, where the file describes them beyond the arrays
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
    behaviour_logp: Array | None = None  # [L, H] log-probabilities of the policy that acted
    spec: AgentSpec | None = None


class FaultyRecordingError(Exception):
    """A recording that an agent cannot learn from.

    where: place in the file; empty for all of it
    fix:   advice, where another recording is not the only way
    """

    def __init__(self, why: str, where: str = "", fix: str = "") -> None:
        super().__init__(why)
        self.why, self.where, self.fix = why, where, fix


Notify = Callable[[str], None]
"""Receiver of warnings about a file, such as a step that was left out."""


@dataclass(frozen=True)
class Wanted:
    """The behaviour whose episodes are to be read.

    behaviours: all behaviours of the environment; an unknown name in a recording may stand for any of them
    """

    behaviour: str
    behaviours: Iterable[str] = ()

    def names_in(self, recorded: Iterable[str], notify: Notify) -> set[str]:
        """Return the names in a recording that stand for this behaviour.

        Its own name, or else that name with another team, or else the only name that no behaviour has.
        Raises FaultyRecordingError if there is no such name.
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
"""Yields a file's episodes of a behaviour, or of all behaviours (None), one after the other.

Raises FaultyRecordingError for a file that cannot be used or has no such episode, OSError from the system.
"""


def shown(value: Array) -> str:
    """Return type and shape of an array as text."""
    return f"{value.dtype} {list(value.shape)}"


def layout(spec: AgentSpec) -> str:
    """Return observations and action as text, equal for equal layouts in whatever order."""
    obs = spec.obs
    seen = sorted(
        f"{name} {dtype} {list(shape)}{f' of {list(counts)} choices' if counts else ''}"
        for name, shape, dtype, counts in zip(obs.names, obs.shapes, obs.dtypes, obs.categories, strict=True)
    )
    sizes = f"choices {list(spec.action.branches)}, {spec.action.continuous} continuous"
    return f"{', '.join(seen)}; {spec.action.description or sizes}"
