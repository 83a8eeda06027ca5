"""Lineage of a population: its members in every finished generation, and curves of them in TensorBoard."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from algorithm.config.yaml_io import inline
from algorithm.core.errors import StorageError
from algorithm.core.reading import parse_json, read_lines
from algorithm.core.wording import short
from algorithm.store.logs.events import event_file, event_of
from algorithm.store.rundir import RunDir
from ds.evolver.generations import PopulationDir
from ds.evolver.members import MemberRun, newest_step
from ds.evolver.population import Population, elites, ranking

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


def make_records(
    population: Population,
    members: Sequence[MemberRun],
    evaluations: Mapping[int, Sequence[float]],
    scored: Mapping[int, float],
    best: float,
) -> list[dict[str, Any]]:
    """Return a line of the lineage for each member, in their order.

    evaluations, scored: by number; best: share of members that are elites
    """
    order, chosen = ranking(scored), elites(scored, best)
    return [
        {
            "generation": population.generation,
            "member": entry.number,
            "name": member.name,
            "origin": entry.origin,
            "parents": list(entry.parents),
            "genes": dict(entry.genes),
            "evaluations": [_finite(value) for value in evaluations[entry.number]],
            "score": _finite(scored[entry.number]),
            "rank": order.index(entry.number) + 1,
            "elite": entry.number in chosen,
            "end": member.end,
            "why": member.why,
            "step": newest_step(member.run),
        }
        for entry, member in zip(population.members, members, strict=True)
    ]


def summarise(outcomes: Sequence[MemberOutcome]) -> dict[str, float]:
    """Return the metrics of a generation: scores, and the mean and std, or the shares, of each gene."""
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    row = {"evo/given_up": float(sum(outcome.end == GIVEN_UP for outcome in outcomes))}
    if scores:
        row |= {
            "evo/score_best": max(scores),
            "evo/score_mean": statistics.fmean(scores),
            "evo/score_worst": min(scores),
        }
    for path in outcomes[0].genes:
        values = [outcome.genes[path] for outcome in outcomes]
        if all(type(value) in (int, float) for value in values):
            row[f"evo/{path}/mean"] = statistics.fmean(values)
            row[f"evo/{path}/std"] = statistics.pstdev(values)
        else:
            texts = [gene_text(value) for value in values]
            row |= {f"evo/{path}/share of {text}": texts.count(text) / len(texts) for text in texts}
    return row


class LineageLog:
    """Curves of a population in TensorBoard; the training does not depend on them.

    A generation is a row at the median step of its members. All rows are made from the lineage, so those of
    an earlier command are written anew.

    run: folder of the population
    log: prints a line
    """

    def __init__(self, run: RunDir, log: Callable[[str], None]) -> None:
        self._run = run
        self._log = log
        self._events = event_file(self._run.log, purge=0)
        self._written = 0

    def update(self) -> None:
        """Write the generations that have been added to the lineage since the last call."""
        try:
            generations = list(by_generation(read_lineage(PopulationDir(self._run.path).lineage)).values())
        except StorageError as error:
            self._log(f"warning: {error.line}")
            return
        for outcomes in generations[self._written :]:
            step = statistics.median(outcome.step for outcome in outcomes)
            self._events.write(event_of(max(int(step), 0), summarise(outcomes)))
        self._written = len(generations)
        if self._events.error is not None:
            self._log(f"warning: {self._events.error.line} · its rows wait for the next generation")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
