"""Ranking, elites, fits, draws and removal, step by step, and what they reach together."""

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from algorithm.config.random_params import Distribution
from algorithm.config.schema import BaseConfig
from ds.evolver.population import (
    FLOOR,
    Population,
    elites,
    first_generation,
    fitted,
    may_end_early,
    next_generation,
    ranking,
    scores,
)

NAN = math.nan
RATE = Distribution("uniform", 0.5, bounds=(0.0, 1.0))
STEPS = Distribution("uniform", 3, bounds=(1.0, 9.0), whole=True)
KIND = Distribution("choice", choices=("a", "b", "c"))
CEM = BaseConfig(evolver_mode="cem", evolver_cem_best=0.5, evolver_remove_worst=3)
COPY = CEM.model_copy(update={"evolver_mode": "copy"})


@dataclass
class MadeGenes:
    """Genes without a configuration; ``limit``: of the sum of all numbers."""

    distributions: dict[str, Distribution] = field(
        default_factory=lambda: {"rate": RATE, "steps": STEPS, "kind": KIND}
    )
    configured: dict[str, Any] = field(default_factory=lambda: {"rate": 0.5, "steps": 3, "kind": "a"})
    limit: float = math.inf

    def accepts(self, values):
        return sum(v for v in values.values() if not isinstance(v, str)) <= self.limit


GENES = MadeGenes()


def members(population: Population) -> list[tuple[int, str, tuple[int, ...]]]:
    return [(member.number, member.origin, member.parents) for member in population.members]


def scored(*values: float) -> dict[int, float]:
    return dict(enumerate(values, 1))


def test_a_score_is_the_mean_of_a_generations_evaluations():
    evaluations = {1: [1.0, 2.0, 6.0], 2: [3.0, NAN], 3: [], 4: [9.0], 5: [math.inf], 6: [1e308, 1e308]}
    found = scores(range(1, 8), evaluations, given_up=[4])
    assert found[1] == 3.0 and list(found) == [1, 2, 3, 4, 5, 6, 7]
    assert [number for number, score in found.items() if math.isnan(score)] == [2, 3, 4, 5, 6, 7]


def test_nan_ranks_last_and_ties_go_to_the_lower_number():
    assert ranking(scored(NAN, 1.0, 3.0, 1.0, -math.inf, NAN)) == [3, 2, 4, 5, 1, 6]
    assert ranking({2: 0.0, 1: -0.0}) == [1, 2]


def test_elites_are_the_best_and_at_least_one():
    assert elites(scored(NAN, 1.0, 3.0, 1.0, 2.0), 0.4) == [3, 5]
    assert elites(scored(1.0, 2.0), 0.01) == [2] and elites(scored(NAN, NAN), 1.0) == []
    assert elites(scored(NAN, 2.0, NAN), 1.0) == [2], "none without a score"


def test_the_fit_of_numbers_is_their_mean_and_deviation():
    """0.2 and 0.6: mean 0.4, deviation 0.2. The floor is a tenth of (1 − 0)/√12 = 0.02887."""
    fit = fitted(RATE, [0.2, 0.6])
    assert (fit.kind, fit.bounds, fit.whole) == ("normal", (0.0, 1.0), False)
    assert (fit.centre, fit.std) == (pytest.approx(0.4), pytest.approx(0.2))
    assert fitted(RATE, [0.2]).std == pytest.approx(0.1 / math.sqrt(12))
    assert fitted(RATE, [0.2, 0.2001]).std == pytest.approx(0.1 / math.sqrt(12))
    steps = fitted(STEPS, [2, 5])
    assert (steps.centre, steps.std, steps.whole) == (3.5, 1.5, True)
    assert fitted(Distribution("normal", 1.0, 0.5), [3.0]).std == pytest.approx(0.05)
    wide = Distribution("normal", 1.0, 99.0, (0.0, 1.0))
    assert fitted(wide, [0.5]).std == pytest.approx(0.1 / math.sqrt(12)), "its bounds, not 99"
    assert FLOOR == 0.1


def test_the_fit_of_choices_counts_the_elites_and_a_prior():
    """Of a, b, c with elites a, a, c: counts 2, 0, 1 and a third each."""
    assert fitted(KIND, ["a", "a", "c"]).weights == pytest.approx([7 / 3, 1 / 3, 4 / 3])
    alike = Distribution("choice", choices=(1, True, 1.0, "1", None, [1]))
    assert fitted(alike, [True, [1]]).weights == pytest.approx([w + 1 / 6 for w in (0, 1, 0, 0, 0, 1)])
    twice = Distribution("choice", choices=("a", "a", "b"))
    assert fitted(twice, ["a", "a"]).weights == pytest.approx([4 / 3, 4 / 3, 1 / 3]), "shared by both"


def test_cem_draws_every_member_from_all_elites():
    first = first_generation(7, 4, GENES)
    after = next_generation(first, scored(1.0, 4.0, NAN, 3.0), CEM, 7, GENES)
    assert after.generation == 1
    assert members(after) == [(n, "drawn", (2, 4)) for n in (1, 2, 3, 4)]
    assert [member.elite_in for member in after.members] == [(), (0,), (), (0,)]
    assert after == next_generation(first, scored(1.0, 4.0, NAN, 3.0), CEM, 7, GENES)
    again = next_generation(replace(first, generation=1), scored(1.0, 4.0, NAN, 3.0), CEM, 7, GENES)
    assert {json.dumps(member.genes) for member in again.members}.isdisjoint(
        json.dumps(member.genes) for member in after.members
    ), "another generation has other random numbers"


def test_copies_begin_as_an_elite_and_elites_go_on():
    first = first_generation(7, 6, GENES)
    after = next_generation(
        first,
        scored(1.0, 4.0, 2.0, 3.0, NAN, 0.0),
        COPY.model_copy(update={"evolver_cem_best": 0.34}),
        7,
        GENES,
    )
    assert [member.origin for member in after.members] == [
        "elite" if number in (2, 4) else "copied" for number in range(1, 7)
    ]
    for number in (2, 4):
        assert after.members[number - 1].parents == (number,)
        assert after.members[number - 1].genes == first.members[number - 1].genes
    copies = [member for member in after.members if member.origin == "copied"]
    assert all(len(member.parents) == 1 and member.parents[0] in (2, 4) for member in copies)
    assert all(member.genes != first.members[member.number - 1].genes for member in copies)


@pytest.mark.parametrize("base", [CEM, COPY])
def test_nobody_with_a_score_begins_again_with_its_own_networks(base):
    first = first_generation(7, 3, GENES)
    after = next_generation(first, scored(NAN, NAN, NAN), base, 7, GENES)
    assert members(after) == [(n, "again", (n,)) for n in (1, 2, 3)]
    assert [member.since for member in after.members] == [1, 1, 1]
    for before, member in zip(first.members, after.members, strict=True):
        assert member.genes != before.genes and 0 <= member.genes["rate"] <= 1


def test_who_was_never_an_elite_is_replaced():
    """remove_worst 3, four members, two elites; on the right the generations in which each was an elite."""
    population = first_generation(3, 4, GENES)

    def step(*values):
        nonlocal population
        population = next_generation(population, scored(*values), COPY, 3, GENES)
        return [member.origin for member in population.members]

    assert step(9, 8, 1, 0) == ["elite", "elite", "copied", "copied"]  # 1: 0 · 2: 0
    assert step(9, 1, 8, 0) == ["elite", "copied", "elite", "copied"]  # 1: 0 1 · 2: 0 · 3: 1
    assert step(NAN, 9, 8, 0) == ["copied", "elite", "elite", "copied"]  # 1: 0 1 · 2: 0 2 · 3: 1 2
    # 1 is an elite for the third time: 4, which never was, is replaced
    assert step(9, 8, 0, 1) == ["elite", "elite", "copied", "replaced"]
    assert [member.since for member in population.members] == [0, 0, 0, 4]
    assert population.members[3].parents in ((1,), (2,)) and population.members[3].elite_in == ()
    # what the others were before generation 4 does not count against it
    assert step(9, 8, 0, 1) == ["elite", "elite", "copied", "copied"]
    assert step(9, 8, 0, 1) == ["elite", "elite", "copied", "copied"]
    assert step(9, 8, 0, 1) == ["elite", "elite", "copied", "replaced"], "4, 5 and 6"
    # once chosen it stays, however often others are
    assert step(1, 0, 0, 9) == ["elite", "copied", "copied", "elite"]
    for _ in range(5):
        assert step(9, 8, 0, 1) == ["elite", "elite", "copied", "copied"]


def test_a_draw_that_is_not_valid_is_repeated_until_one_is():
    """Of 1 to 9 steps the sum allows 4, each as likely; 3 is the known value."""
    population = first_generation(1, 300, MadeGenes(limit=5.0))
    steps = [member.genes["steps"] for member in population.members]
    assert {steps.count(n) > 45 for n in (1, 2, 3, 4)} == {True}, "75 expected, standard error 7.5"


def test_a_gene_that_has_no_valid_draw_keeps_the_known_value():
    genes = MadeGenes(limit=3.5)
    genes.distributions["steps"] = Distribution("choice", choices=(7, 8))
    first = first_generation(1, 3, genes)
    assert [member.genes["steps"] for member in first.members] == [3, 3, 3]
    assert len({member.genes["rate"] for member in first.members}) == 3


@pytest.mark.parametrize(
    ("counts", "early"),
    [
        ((5, 5, 5), False),  # it ends by itself
        ((5, 6, 5), False),
        ((5, 5, 1), False),
        ((5, 5, 2), True),
        ((2, 2, 2), True),
        ((5, 2), True),
        ((), False),
    ],
)
def test_a_generation_that_takes_long_ends_with_few_evaluations_of_each(counts, early):
    assert may_end_early(counts, length=5, min_length=2) is early
