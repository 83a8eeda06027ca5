"""The table of a cluster's processes, as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ds.cluster.member import Member

_EVERY_S = 10.0
_SINGLE = 20
"""With more processes than that the actors of a node share a line."""


class Table:
    """Says every ten seconds how everybody fares, if that has changed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = 0.0
        self._shown: list[str] = []

    def show(
        self,
        now: float,
        learner: Member,
        actors: Sequence[Member],
        endpoint: tuple[str, int] | None,
        wished: int,
    ) -> None:
        """Say it if it is time. now: seconds."""
        if now < self._next:
            return
        self._next = now + _EVERY_S
        lines = rows(learner, actors, endpoint, wished)
        if lines != self._shown:
            self._shown = lines
            for line in lines:
                self._say(line)


def rows(
    learner: Member, actors: Sequence[Member], endpoint: tuple[str, int] | None, wished: int
) -> list[str]:
    """Node, role, state, restarts; the head counts the actors that run."""
    running = sum(actor.state == "running" for actor in actors)
    cells = [("node", "role", "state", "restarts")]
    state = "listening" if endpoint else _state(learner)
    cells.append((learner.node or "-", "learner", state, str(learner.restarts)))
    if len(actors) <= _SINGLE:
        cells += [(a.node or "-", a.name, _state(a), str(a.restarts)) for a in actors]
    else:
        cells += [_together(node, actors) for node in sorted({actor.node for actor in actors})]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return [f"{running} of {wished} actors run", *(f"  {line}".rstrip() for line in lines)]


def _together(node: str, actors: Sequence[Member]) -> tuple[str, str, str, str]:
    here = [actor for actor in actors if actor.node == node]
    states = Counter(_state(actor) for actor in here)
    said = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return node or "-", f"{len(here)} actors", said, str(sum(actor.restarts for actor in here))


def _state(member: Member) -> str:
    if member.state == "placing":
        return "waits for a node with room"
    return "waits for the learner" if member.state == "ready" else member.state
