"""The lineage of a population: members of every generation that has ended, and the drift of their genes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from algorithm.app.report.charts import Chart, Line, suits_logarithm
from algorithm.app.report.page import Section
from algorithm.app.report.theme import TONES
from algorithm.config.yaml_io import inline
from algorithm.core.data import Double
from algorithm.core.reading import parse_json, read_lines
from algorithm.core.wording import short

GIVEN_UP = "given up"
"""End of a member in a generation that was completed without it."""


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
        """End of the generation for it, with the reason."""
        return f"{self.end}: {self.why}" if self.why else self.end


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
    return {number: list(each) for number, each in itertools.groupby(outcomes, lambda one: one.generation)}


def gene_text(value: object) -> str:
    """Format the value of a gene for a person."""
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if type(value) is int else inline(value)


def drifts(outcomes: Sequence[MemberOutcome]) -> Iterator[Section]:
    """Yield the charts of the genes, in the order of the lineage; nothing without genes."""
    charts = []
    for path in dict.fromkeys(path for one in outcomes for path in one.genes):
        values = {
            generation: found
            for generation, members in by_generation(outcomes).items()
            if (found := [one.genes[path] for one in members if path in one.genes])
        }
        every = [value for found in values.values() for value in found]
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in every)
        x = np.array(list(values), np.float64)
        lines = (_moments if is_number else _shares)(x, list(values.values()))
        charts.append(Chart(path, lines, log=is_number, along="generation"))
    note = (
        "Over the members of each generation. On a logarithmic scale mean and standard deviation are those "
        "of the logarithms."
    )
    if charts:
        yield Section(title="Drift of the genes", charts=charts, notes=[note])


def _moments(x: Double, values: Sequence[Sequence[float]]) -> list[Line]:
    """Return mean ± standard deviation of a number over members, and its ends.

    On a logarithmic scale they are those of the logarithms: a plain mean would show the largest value alone.
    """
    arrays = [np.array(found, np.float64) for found in values]
    is_log = suits_logarithm(np.concatenate(arrays))
    seen = [np.log(array) for array in arrays] if is_log else arrays
    mean, std = np.array([one.mean() for one in seen]), np.array([one.std() for one in seen])
    curves = np.stack([mean, mean - std, mean + std])
    middle, low, high = np.exp(curves) if is_log else curves
    ends = [np.array([pick(array) for array in arrays]) for pick in (np.min, np.max)]
    label = "geometric mean ± std" if is_log else "mean ± std"
    return [
        Line(label=label, x=x, y=middle, band=(low, high), dots=True),
        Line(label="lowest and highest", x=x, y=ends[0], style="faint"),
        Line(label="", x=x, y=ends[1], style="faint"),
    ]


def _shares(x: Double, values: Sequence[Sequence[Any]]) -> list[Line]:
    """Return the share of members that have each choice; rare ones together where there are many."""
    texts = [[gene_text(value) for value in found] for found in values]
    common = [text for text, _ in Counter(itertools.chain.from_iterable(texts)).most_common()]
    names = sorted(common if len(common) <= TONES else common[: TONES - 1])
    shares = {name: np.array([100 * found.count(name) / len(found) for found in texts]) for name in names}
    if len(common) > TONES:
        shares[f"{len(common) - len(names)} others"] = 100 - np.sum(list(shares.values()), axis=0)
    return [
        Line(label=f"{name}, % of members", x=x, y=y, tone=tone, dots=True)
        for tone, (name, y) in enumerate(shares.items())
    ]
