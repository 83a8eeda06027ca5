"""The lineage of a population: its members in every finished generation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

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


def read_lineage(path: Path) -> list[MemberOutcome]:
    """Read ``lineage.jsonl``: outcomes by generation and member, without lines that a kill cut off.

    Raises StorageError for a file that cannot be read.
    """
    outcomes: dict[tuple[int, int], MemberOutcome] = {}
    for line in read_lines(path):
        with suppress(ValueError):
            outcome = MemberOutcome.model_validate(parse_json(line))
            outcomes[outcome.generation, outcome.member] = outcome
    return [outcomes[key] for key in sorted(outcomes)]


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
