"""Generations of a population: ranking, elites, draws and removal, as pure functions of their arguments.

Every random number follows from the population's seed, the generation, the member and the purpose alone.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from pydantic import StrictInt

from algorithm.config.random_params import Distribution
from algorithm.config.schema import BaseConfig
from algorithm.core.seeding import stream_seed
from ds.evolver.genes import Genes

FLOOR = 0.1
"""Smallest standard deviation of a number among the genes, as a share of its first distribution's."""

ATTEMPTS = 100
"""Number of draws of a gene until one is valid; then it has the value that is known to be valid."""

Origin = Literal["first", "drawn", "elite", "copied", "replaced", "again"]
"""Origin of a member of a generation.

first:    a first draw.
drawn:    genes and networks drawn from the elites (cem).
elite:    an elite that goes on undisturbed (copy).
copied:   drawn genes, with the networks of one elite (copy).
replaced: genes of a first draw in place of a member that was never an elite, networks as the others'.
again:    genes of a first draw, with its own networks: nobody of the generation before had a score.
"""


@dataclass(frozen=True)
class Member:
    """A member in one generation.

    number:   1 to N, that of its run
    genes:    dotted path → value
    parents:  numbers in the generation before, best first, that its networks come from
    since:    generation of its last first draw
    elite_in: generations in which it was an elite
    """

    number: StrictInt
    genes: Mapping[str, Any]
    origin: Origin = "first"
    parents: tuple[StrictInt, ...] = ()
    since: StrictInt = 0
    elite_in: tuple[StrictInt, ...] = ()

    @property
    def has_new_networks(self) -> bool:
        """True if it does not begin its generation with the networks of its own run."""
        return self.origin not in ("first", "elite", "again")


@dataclass(frozen=True)
class Population:
    """The members of one generation, in the order of their numbers."""

    generation: StrictInt
    members: tuple[Member, ...]


def first_generation(seed: int, size: int, genes: Genes) -> Population:
    """Return generation 0: ``size`` members with genes of a first draw each."""
    numbers = range(1, size + 1)
    return Population(0, tuple(Member(number, _first_draw(genes, seed, 0, number)) for number in numbers))


def scores(
    numbers: Iterable[int], evaluations: Mapping[int, Sequence[float]], given_up: Collection[int] = ()
) -> dict[int, float]:
    """Return each member's mean of a generation's evaluations.

    It is NaN for one that was given up, has none, or has one that is not finite.
    """
    return {
        number: _mean(evaluations.get(number, ())) if number not in given_up else math.nan
        for number in numbers
    }


def ranking(scored: Mapping[int, float]) -> list[int]:
    """Return the members' numbers, best first; NaN comes last, and of equal ones the lower number first."""

    def rank(number: int) -> tuple[bool, float, int]:
        score = scored[number]
        return (True, 0.0, number) if math.isnan(score) else (False, -score, number)

    return sorted(scored, key=rank)


def elites(scored: Mapping[int, float], best: float) -> list[int]:
    """Return the best max(1, round(best · N)) numbers, best first; none that has no score."""
    count = max(1, round(best * len(scored)))
    return [number for number in ranking(scored)[:count] if not math.isnan(scored[number])]


def fitted(first: Distribution, values: Sequence[Any]) -> Distribution:
    """Return the distribution of a gene's next values.

    Of numbers: a normal with the mean and the standard deviation of the elites, at least ``FLOOR`` of that of
    the first distribution, with its bounds. Of choices: the mean of a Dirichlet distribution whose counts are
    those of the elites and a prior of 1/C for each of the C choices.

    first:  what the gene was drawn from at first
    values: the elites'
    """
    if first.kind == "choice":
        texts = [_text(choice) for choice in first.choices]
        counts = [sum(_text(value) == text for value in values) / texts.count(text) for text in texts]
        return replace(first, weights=[count + 1 / len(texts) for count in counts])
    std = max(statistics.pstdev(values), FLOOR * first.spread)
    return replace(first, kind="normal", centre=statistics.fmean(values), std=std)


def next_generation(
    population: Population, scored: Mapping[int, float], base: BaseConfig, seed: int, genes: Genes
) -> Population:
    """Return the generation that follows. Nobody with a score: everybody begins again with a first draw.

    scored: every member's score in the present generation
    base:   its ``evolver_`` keys are the rules. In mode ``cem`` all members are drawn anew; in ``copy``
            elites go on, and the others begin with copies of them
    """
    best, copies = elites(scored, base.evolver_cem_best), base.evolver_mode == "copy"
    now, generation = population.generation, population.generation + 1
    members = [
        replace(member, elite_in=(*member.elite_in, now)) if member.number in best else member
        for member in population.members
    ]
    of_elites = [members[number - 1].genes for number in best]
    fits = {
        path: fitted(first, [values[path] for values in of_elites])
        for path, first in genes.distributions.items()
        if best
    }
    everybody = {member.number for member in members}
    anew = _never_chosen(members, base.evolver_remove_worst) if best else everybody

    def follow(member: Member) -> Member:
        number = member.number
        if copies and number in best:
            return replace(member, origin="elite", parents=(number,))
        parents = tuple(best) or (number,)
        if copies and best:
            parents = (Random(stream_seed(seed, "parent", generation, number)).choice(best),)
        origin: Origin
        if number in anew:
            origin, drawn = "replaced" if best else "again", _first_draw(genes, seed, generation, number)
            return replace(member, genes=drawn, origin=origin, parents=parents, since=generation)
        origin = "copied" if copies else "drawn"
        drawn = _draw(genes, fits, of_elites[0], seed, generation, number)
        return replace(member, genes=drawn, origin=origin, parents=parents)

    return Population(generation, tuple(follow(member) for member in members))


def may_end_early(counts: Sequence[int], length: int, min_length: int) -> bool:
    """Return whether a generation that has taken its time may end before its ``length``.

    counts: evaluations of each member that was not given up; the others hold nobody up
    """
    return any(count < length for count in counts) and all(count >= min_length for count in counts)


def _never_chosen(members: Sequence[Member], times: int) -> set[int]:
    """Return the numbers of members never elite since first drawn, though another was ``times`` times."""

    def chosen(member: Member, since: int) -> int:
        return sum(generation >= since for generation in member.elite_in)

    return {
        member.number
        for member in members
        if not chosen(member, member.since) and any(chosen(other, member.since) >= times for other in members)
    }


def _first_draw(genes: Genes, seed: int, generation: int, number: int) -> dict[str, Any]:
    return _draw(genes, genes.distributions, genes.configured, seed, generation, number)


def _draw(
    genes: Genes,
    distributions: Mapping[str, Distribution],
    valid: Mapping[str, Any],
    seed: int,
    generation: int,
    number: int,
) -> dict[str, Any]:
    """Draw a member's genes. If they are not valid together, each replaces that of ``valid`` where it can."""

    def sample(path: str, attempt: int) -> Any:  # noqa: ANN401 - any value of a key
        return distributions[path].sample(
            Random(stream_seed(seed, "genes", generation, number, path, attempt))
        )

    values = {path: sample(path, 0) for path in distributions}
    if genes.accepts(values):
        return values
    values = {path: valid[path] for path in distributions}
    for path in distributions:
        tries = ({**values, path: sample(path, attempt)} for attempt in range(ATTEMPTS))
        values = next((tried for tried in tries if genes.accepts(tried)), values)
    return values


def _mean(evaluations: Sequence[float]) -> float:
    mean = sum(evaluations) / len(evaluations) if evaluations else math.nan
    return mean if math.isfinite(mean) else math.nan


def _text(value: object) -> str:
    """Return text that is equal for equal choices only: 1 is neither true nor 1.0."""
    return json.dumps(value, sort_keys=True)
