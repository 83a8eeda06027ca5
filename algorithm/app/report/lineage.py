"""The lineage of a population: the members of every generation that has ended, and their family tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from algorithm.config.yaml_io import inline
from algorithm.core.reading import parse_json, read_lines
from algorithm.core.wording import counted, listed, short

GIVEN_UP = "given up"
"""End of a member in a generation that was completed without it."""

_MOST_GENERATIONS = 100  # of a family tree: the page has to stay a page
_NODE = (86, 20)  # pixels
_PITCH = (134, 28)
_LEFT, _TOP = 4, 26


class MemberOutcome(BaseModel):
    """A member in a generation that has ended.

    parents: numbers of members of the generation before
    genes:   dotted path → value
    score:   mean return of the generation's evaluations; None without one
    rank:    1 is the best
    step:    of its run at the end of the generation; −1 without a checkpoint
    """

    model_config = ConfigDict(strict=True, frozen=True)

    generation: NonNegativeInt
    member: PositiveInt
    name: str
    origin: str
    parents: Sequence[int]
    genes: Mapping[str, Any]
    score: float | None
    rank: PositiveInt
    elite: bool
    end: str
    why: str = ""
    step: int

    @property
    def score_text(self) -> str:
        """The score in words."""
        return "no score" if self.score is None else short(self.score)

    @property
    def end_text(self) -> str:
        """How the generation ended for it, and why."""
        return f"{self.end}: {self.why}" if self.why else self.end

    @property
    def text(self) -> str:
        """All about it on one line."""
        of = f" of {listed(self.parents)}" if self.parents else ""
        parts = [
            f"{self.name} in generation {self.generation}",
            f"rank {self.rank}, {self.score_text}{', elite' if self.elite else ''}",
            f"{self.origin}{of}",
            *(f"{path} {gene_text(value)}" for path, value in self.genes.items()),
            self.end_text,
        ]
        return " · ".join(parts)


def read_lineage(path: Path) -> tuple[list[MemberOutcome], list[str]]:
    """Read ``lineage.jsonl``: outcomes by generation and member, and a problem for each line without one.

    Raises StorageError for a file that cannot be read.
    """
    found: dict[tuple[int, int], MemberOutcome] = {}
    problems = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            one = MemberOutcome.model_validate(parse_json(line))
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"])) or "its JSON"
            why = f"{place} is missing or not what the evolver writes there"
            problems.append(f"{path.name}, line {number} is left out: {why}")
        except ValueError as error:
            problems.append(f"{path.name}, line {number} is left out: {error}")
        else:
            if (one.generation, one.member) in found:
                problems.append(
                    f"{path.name}, line {number}: member {one.member} stands twice in generation "
                    f"{one.generation}; the later line counts"
                )
            found[one.generation, one.member] = one
    return [found[key] for key in sorted(found)], problems


def by_generation(outcomes: Sequence[MemberOutcome]) -> dict[int, list[MemberOutcome]]:
    """Return generation -> its members, in the order of ``outcomes``."""
    return {number: list(each) for number, each in groupby(outcomes, lambda one: one.generation)}


def gene_text(value: object) -> str:
    """Format the value of a gene for a person."""
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if type(value) is int else inline(value)


@dataclass(frozen=True)
class TreeNode:
    """A member in a generation: upper left corner in pixels, texts, and a class of the style sheet."""

    x: float
    y: float
    number: str
    score: str
    text: str
    look: str


@dataclass(frozen=True)
class FamilyTree:
    """A family tree, generations from left to right; sizes in pixels.

    heads:     (x, text) above each generation
    ancestors: corners of the lines that lead to the best of the last generation, as an SVG path
    others:    those of all other lines
    left_out:  generations before the first one shown
    """

    width: int
    height: int
    node: tuple[int, int]
    heads: Sequence[tuple[float, str]]
    nodes: Sequence[TreeNode]
    ancestors: str
    others: str
    label: str
    left_out: int


def family_tree(outcomes: Sequence[MemberOutcome]) -> FamilyTree:
    """Return the family tree of the last 100 generations. Raises ValueError without any."""
    if not outcomes:
        raise ValueError("family_tree: no outcomes")
    every = by_generation(outcomes)
    generations = dict(list(every.items())[-_MOST_GENERATIONS:])
    shown = [one for members in generations.values() for one in members]
    columns = {generation: _LEFT + _PITCH[0] * k for k, generation in enumerate(generations)}
    rows = {number: _TOP + _PITCH[1] * k for k, number in enumerate(sorted({one.member for one in shown}))}
    places = {(one.generation, one.member): (columns[one.generation], rows[one.member]) for one in shown}
    best = min(shown, key=lambda one: (-one.generation, one.rank))
    chosen = _ancestors(shown, best)
    paths: dict[bool, list[str]] = {True: [], False: []}
    for members in generations.values():
        for corners, leads in _lines(members, places, chosen):
            paths[leads].append(corners)
    return FamilyTree(
        width=2 * _LEFT + _PITCH[0] * (len(columns) - 1) + _NODE[0],
        height=_TOP + _PITCH[1] * (len(rows) - 1) + _NODE[1] + _LEFT,
        node=_NODE,
        heads=[(x, f"generation {number}") for number, x in columns.items()],
        nodes=[_node(one, places[one.generation, one.member]) for one in shown],
        ancestors="".join(paths[True]),
        others="".join(paths[False]),
        label=f"Family tree: {counted(len(rows), 'member')}, {counted(len(columns), 'generation')}; the best "
        f"of the last one is {best.name}",
        left_out=len(every) - len(generations),
    )


def _node(one: MemberOutcome, place: tuple[float, float]) -> TreeNode:
    lost = one.end == GIVEN_UP
    score = GIVEN_UP if lost else "none" if one.score is None else short(one.score)
    look = "lost" if lost else "elite" if one.elite else "member"
    return TreeNode(*place, str(one.member), score, one.text, look)


def _ancestors(outcomes: Sequence[MemberOutcome], best: MemberOutcome) -> set[tuple[int, int]]:
    """Return (generation, member) of ``best`` and all that its networks come from."""
    found = {(best.generation, best.member)}
    for one in reversed(outcomes):
        if (one.generation, one.member) in found:
            found |= {(one.generation - 1, parent) for parent in one.parents}
    return found


def _lines(
    members: Sequence[MemberOutcome],
    places: Mapping[tuple[int, int], tuple[float, float]],
    chosen: set[tuple[int, int]],
) -> Iterator[tuple[str, bool]]:
    """Yield the lines from a generation's parents, and whether they lead to the best of the last one.

    Children of the same several parents share a junction: parents + children lines, not their product.
    """
    children: dict[tuple[tuple[float, float], ...], list[MemberOutcome]] = {}
    for one in members:
        known = [places.get((one.generation - 1, parent)) for parent in one.parents]
        if parents := tuple(sorted({place for place in known if place is not None})):
            children.setdefault(parents, []).append(one)
    for parents, group in children.items():
        ends = {places[one.generation, one.member]: (one.generation, one.member) in chosen for one in group}
        starts = [(x + _NODE[0], y + _NODE[1] / 2) for x, y in parents]
        goals = {(x, y + _NODE[1] / 2): leads for (x, y), leads in ends.items()}
        if len(starts) == 1 or len(goals) == 1:
            yield from ((_curve(start, goal), leads) for start in starts for goal, leads in goals.items())
            continue
        level = math.fsum(y for _, y in starts) / len(starts)
        junction = (starts[0][0] + min(goals)[0]) / 2, round(level, 1)
        yield from ((_curve(start, junction), any(goals.values())) for start in starts)
        yield from ((_curve(junction, goal), leads) for goal, leads in goals.items())


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    middle = (start[0] + end[0]) / 2
    corners = (start, (middle, start[1]), (middle, end[1]), end)
    first, *rest = (f"{x:g} {y:g}" for x, y in corners)
    return f"M{first}C{' '.join(rest)}"
