"""``report.html`` of a population: returns, scores, drift of its genes, a family tree. Loads no torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from algorithm.app.report.charts import Chart, Line, suits_logarithm
from algorithm.app.report.curves import experiment_lines, mean_line
from algorithm.app.report.experiments import Experiment, behaviours_of
from algorithm.app.report.facts import Facts, TolerantReader, holder_of, number
from algorithm.app.report.lineage import (
    GIVEN_UP,
    MemberOutcome,
    by_generation,
    family_tree,
    gene_text,
    read_lineage,
)
from algorithm.app.report.page import render
from algorithm.app.report.report import PURPOSES, Tile
from algorithm.app.report.theme import TONES
from algorithm.core.data import Double
from algorithm.core.reading import read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import counted, listed
from algorithm.evaluation.statistics import INTERVAL
from algorithm.runs.files import write_text
from algorithm.runs.names import is_name
from algorithm.runs.offers import playing_commands
from algorithm.runs.rundir import RunDir

_LINEAGE = "lineage.jsonl"
_MOST_MARKS = 50
_MOST_PROBLEMS = 12


@dataclass(frozen=True)
class PopulationFacts:
    """A population as its files describe it; what cannot be used is named in ``problems``.

    folder:   that of the population, which is none of a run
    outcomes: of the generations that have ended, by generation and member
    names:    member -> name of its run
    members:  member -> its run, of those that have a folder
    start:    what the command line said at the start
    """

    folder: RunDir
    outcomes: Sequence[MemberOutcome]
    names: Mapping[int, str]
    members: Mapping[int, Facts]
    start: Mapping[str, object]
    problems: Sequence[str]

    @classmethod
    def gather(cls, folder: RunDir) -> PopulationFacts:
        """Read what there is. Raises nothing for a file that is missing or damaged."""
        files = TolerantReader()
        nothing: tuple[list[MemberOutcome], list[str]] = [], []
        outcomes, bad_lines = files.read(folder.path / _LINEAGE, read_lineage, nothing)
        start = files.read(folder.path / "population.json", read_json, dict[str, object]())
        names = {one.member: _name(folder, one) for one in outcomes} or _begun(folder)
        problems, members = [*files.problems, *bad_lines], {}
        for member, name in sorted(names.items()):
            run = _sibling(folder, name)
            if run.config.exists():
                members[member] = Facts.gather(run)
                problems += (f"{name}: {problem}" for problem in members[member].problems)
            else:
                problems.append(f"{name}: there is no such run")
        return cls(folder, outcomes, names, members, start, problems)

    @property
    def last(self) -> list[MemberOutcome]:
        """The last generation that has ended, best first."""
        return sorted(
            (one for one in self.outcomes if one.generation == self.outcomes[-1].generation),
            key=lambda one: (one.rank, one.member),
        )

    @property
    def best(self) -> MemberOutcome | None:
        """The best of the last generation; None if nobody has a score."""
        return next((one for one in self.last if one.score is not None), None)

    @property
    def steps(self) -> int:
        """Environment steps of all members."""
        saved = {one.member: one.step for one in self.outcomes}
        return sum(
            max(saved.get(member, 0), (self.members[member].steps or 0) if member in self.members else 0, 0)
            for member in self.names
        )


def is_population(folder: Path) -> bool:
    """Return whether a folder is one of a population."""
    return (folder / _LINEAGE).is_file()


def write_population(folder: RunDir) -> Path:
    """Write the page about the population in ``folder`` there; returns its path.

    One that still trains, has damaged files or has lost runs gets a page that says so. Raises StorageError
    where the page cannot be written.
    """
    facts = PopulationFacts.gather(folder)
    runs = Experiment(folder.name, tuple(facts.members.values()))
    page = render(
        "population.html",
        title=f"{folder.env}, {folder.name}",
        subtitle=_subtitle(facts),
        problems=_shortened(facts.problems),
        tiles=_tiles(facts),
        behaviours=[_curves(facts, runs, name) for name in behaviours_of([runs])],
        scores=_scores(facts.outcomes),
        drifts=list(_drifts(facts.outcomes)),
        tree=family_tree(facts.outcomes) if facts.outcomes else None,
        last=_last(facts),
        origin=_origin(facts),
        commands=_commands(facts),
    )
    write_text(folder.report, page)
    return folder.report


def _name(folder: RunDir, one: MemberOutcome) -> str:
    """Return the name of a member's run; a text that is no name of a run leads nowhere."""
    return one.name if is_name(one.name) else f"{folder.name}_{one.member}"


def _sibling(folder: RunDir, name: str) -> RunDir:
    return RunDir(folder.env, name, folder.path.with_name(name), folder.argument)


def _begun(folder: RunDir) -> dict[int, str]:
    """Return the runs NAME_1, NAME_2, … beside the folder; without a lineage they are the members."""
    names = ((number, f"{folder.name}_{number}") for number in itertools.count(1))
    return dict(itertools.takewhile(lambda one: _sibling(folder, one[1]).config.exists(), names))


def _shortened(problems: Sequence[str]) -> list[str]:
    more = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], *([f"and {counted(more, 'problem')} more"] if more > 0 else [])]


def _subtitle(facts: PopulationFacts) -> str:
    holder, seed = holder_of(facts.folder.lock), number(facts.start, "seed")
    state = "not running"
    if holder is not None:
        state = f"still running, {holder}" if holder.lives else "killed"
    return f"population · {state} · seed {'unknown' if seed is None else f'{seed:.0f}'}"


def _tiles(facts: PopulationFacts) -> list[Tile]:
    ended, best = by_generation(facts.outcomes), facts.best
    lost = sum(one.end == GIVEN_UP for one in facts.last)
    score = Tile("best score", "none", "no generation has a score yet" if not ended else "nobody has a score")
    if best is not None:
        score = Tile("best score", best.score_text, f"{best.name}, generation {best.generation}")
    return [
        Tile("generations", f"{len(ended):,}", "that have ended"),
        Tile("members", f"{len(facts.names):,}", f"{lost} given up in the last generation" if lost else ""),
        score,
        Tile("environment steps", f"{facts.steps:,}", "of all members"),
    ]


def _curves(facts: PopulationFacts, runs: Experiment, behaviour: str) -> dict[str, object]:
    """Return the chart of the members' evaluations in one behaviour."""
    series = runs.series(behaviour)
    lines = experiment_lines(series, f"mean of {counted(len(series), 'member')}, {INTERVAL} interval")
    best = facts.best
    if best is not None and best.member in facts.members and len(series) > 1:
        own = Experiment("", (facts.members[best.member],)).series(behaviour)
        name = f"{best.name}, the best of the last generation"
        lines += [Line(label=name, x=one.eval_step, y=one.eval_return, tone=1) for one in own]
    steps = [_boundary(members) for members in by_generation(facts.outcomes).values()]
    every = math.ceil(len(steps) / _MOST_MARKS) or 1
    marks = [step for step in steps[every - 1 :: every] if step > 0]
    title = "Return over environment steps of a member"
    return {
        "suffix": "" if behaviour == DEFAULT_BEHAVIOUR else f": {behaviour}",
        "several": len(series) > 1,
        "chart": Chart(title, lines, large=True, marks=marks) if lines else None,
        "marks": ("each generation" if every == 1 else f"every {every} generations") if marks else "",
    }


def _boundary(members: Sequence[MemberOutcome]) -> float:
    """Return the step at which most members ended a generation."""
    return float(np.median([float(one.step) for one in members]))


def _scores(outcomes: Sequence[MemberOutcome]) -> Chart | None:
    """Return the chart of best, mean and worst score; None if nobody has one."""
    known = {
        generation: scores
        for generation, members in by_generation(outcomes).items()
        if (scores := [one.score for one in members if one.score is not None])
    }
    if not known:
        return None
    x = np.array(list(known), np.float64)
    best, worst = (np.array([pick(scores) for scores in known.values()]) for pick in (max, min))
    lines = [
        Line(label="best", x=x, y=best, tone=1, dots=True),
        mean_line(f"mean, {INTERVAL} interval", x, list(known.values()), dots=True),
        Line(label="worst", x=x, y=worst, tone=2, dots=True),
    ]
    return Chart("Score by generation", lines, large=True, along="generation")


def _drifts(outcomes: Sequence[MemberOutcome]) -> Iterator[Chart]:
    """Yield a chart for each gene, in the order of the lineage."""
    for path in dict.fromkeys(path for one in outcomes for path in one.genes):
        values = {
            generation: found
            for generation, members in by_generation(outcomes).items()
            if (found := [one.genes[path] for one in members if path in one.genes])
        }
        every = [value for found in values.values() for value in found]
        x = np.array(list(values), np.float64)
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in every)
        lines = _moments(list(values.values())) if numbers else _shares(list(values.values()))
        drawn = [
            Line(label=label, x=x, y=y, style=style, tone=tone, band=band, dots=style == "line")
            for tone, (label, y, style, band) in enumerate(lines)
        ]
        yield Chart(path, drawn, log=numbers, along="generation")


_Curve = tuple[str, Double, str, tuple[Double, Double] | None]
"""Label, values [P], style and band of a line."""


def _moments(values: Sequence[Sequence[float]]) -> list[_Curve]:
    """Return mean ± standard deviation of a number over members, and its ends.

    On a logarithmic scale they are those of the logarithms: a plain mean would show the largest value alone.
    """
    arrays = [np.array(found, np.float64) for found in values]
    logarithmic = suits_logarithm(np.concatenate(arrays))
    seen = [np.log(array) for array in arrays] if logarithmic else arrays
    mean, std = np.array([one.mean() for one in seen]), np.array([one.std() for one in seen])
    middle, band = mean, (mean - std, mean + std)
    if logarithmic:
        middle, band = np.exp(mean), (np.exp(mean - std), np.exp(mean + std))
    return [
        ("geometric mean ± std" if logarithmic else "mean ± std", middle, "line", band),
        ("lowest and highest", np.array([array.min() for array in arrays]), "faint", None),
        ("", np.array([array.max() for array in arrays]), "faint", None),
    ]


def _shares(values: Sequence[Sequence[Any]]) -> list[_Curve]:
    """Return the share of members that have each choice; rare ones together where there are many."""
    texts = [[gene_text(value) for value in found] for found in values]
    counts: dict[str, int] = {}
    for text in itertools.chain.from_iterable(texts):
        counts[text] = counts.get(text, 0) + 1
    common = sorted(counts, key=lambda text: -counts[text])
    names = sorted(common if len(common) <= TONES else common[: TONES - 1])
    shares: list[_Curve] = [
        (name, np.array([100 * found.count(name) / len(found) for found in texts]), "line", None)
        for name in names
    ]
    if len(common) > TONES:
        rest = 100 - np.sum([y for _, y, _, _ in shares], axis=0)
        shares.append((f"{len(common) - len(names)} others", rest, "line", None))
    return [(f"{name}, % of members", y, style, band) for name, y, style, band in shares]


def _last(facts: PopulationFacts) -> dict[str, object] | None:
    """Return the table of the last generation; None before one has ended."""
    if not facts.outcomes:
        return None
    genes = list(dict.fromkeys(path for one in facts.last for path in one.genes))
    rows = []
    for one in facts.last:
        name = _name(facts.folder, one)
        page = _sibling(facts.folder, name).report
        values = [gene_text(one.genes[path]) if path in one.genes else "" for path in genes]
        origin, parents = one.origin, listed(one.parents) or "none"
        rows.append(
            {
                "rank": f"{one.rank}{', elite' if one.elite else ''}",
                "name": name,
                "href": f"../{quote(name)}/{page.name}" if page.exists() else "",
                "cells": [one.score_text, *values, origin, parents, one.end_text],
            }
        )
    head = ["member", "rank", "score", *genes, "origin", "parents", "end"]
    return {"generation": facts.last[0].generation, "head": head, "rows": rows}


def _origin(facts: PopulationFacts) -> list[tuple[str, str]]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return [("folder", str(facts.folder.path)), ("this page", f"written {now}")]


def _commands(facts: PopulationFacts) -> list[tuple[str, str]]:
    """Return purposes and commands to go on with, ready to be copied."""
    folder, best, found = facts.folder, facts.best, []
    if facts.names:
        words = ["-n", folder.name, f"--num_learners={len(facts.names)}"]
        if actors := number(facts.start, "num_actors"):
            words.append(f"--num_actors={actors:.0f}")
        found.append(("Go on with it", folder.command(*words, "--resume", role="evolver")))
    if best is not None and best.member in facts.members:
        member = facts.members[best.member]
        playing = playing_commands(member.run, member.render_modes, episodes=100)
        found += [
            (f"{PURPOSES[purpose]}: {member.run.name}, the best of the last generation", command)
            for purpose, command in playing.items()
        ]
    return [*found, ("Write this page anew", folder.command("--report", folder.name))]
