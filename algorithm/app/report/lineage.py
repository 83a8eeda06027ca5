"""The lineage of a population: its members in every finished generation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from algorithm.config.yaml_io import inline
from algorithm.core.reading import parse_json, read_lines
from algorithm.core.wording import short

GIVEN_UP = "given up"
"""End of a member in a generation that was completed without it."""


class MemberOutcome(BaseModel):
    """A member of a population in a finished generation.

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
        """End of the generation for the member, and the reason if there is one: ``END: WHY``."""
        return f"{self.end}: {self.why}" if self.why else self.end


def read_lineage(path: Path) -> tuple[list[MemberOutcome], list[str]]:
    """Read ``lineage.jsonl``: outcomes by generation and member, and a problem for each line without one.

    Raises StorageError for a file that cannot be read.
    """
    outcomes: dict[tuple[int, int], MemberOutcome] = {}
    problems = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            outcome = MemberOutcome.model_validate(parse_json(line))
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"])) or "its JSON"
            why = f"{place} is missing or not what the evolver writes there"
            problems.append(f"{path.name}, line {number} is left out: {why}")
        except ValueError as error:
            problems.append(f"{path.name}, line {number} is left out: {error}")
        else:
            if (outcome.generation, outcome.member) in outcomes:
                problems.append(
                    f"{path.name}, line {number}: member {outcome.member} appears twice in generation "
                    f"{outcome.generation}; the later line counts"
                )
            outcomes[outcome.generation, outcome.member] = outcome
    return [outcomes[key] for key in sorted(outcomes)], problems


def by_generation(outcomes: Sequence[MemberOutcome]) -> dict[int, list[MemberOutcome]]:
    """Return generation -> its members, in the order of ``outcomes``."""
    return {
        number: list(each) for number, each in itertools.groupby(outcomes, lambda outcome: outcome.generation)
    }


def gene_text(value: object) -> str:
    """Format the value of a gene for reading: a number briefly, anything else as YAML on one line."""
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if type(value) is int else inline(value)
