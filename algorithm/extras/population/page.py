"""``report.html`` of a population: returns, scores, drift of its genes. Loads no torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.curves import experiment_lines, mean_line
from algorithm.app.report.facts import Facts, TolerantReader, holder_of, number, state_of
from algorithm.app.report.lineage import (
    GIVEN_UP,
    MemberOutcome,
    by_generation,
    gene_text,
    read_lineage,
)
from algorithm.app.report.page import FolderPage, Section, Tile, heading, link_to_page
from algorithm.app.report.report import PURPOSES
from algorithm.core.reading import read_json
from algorithm.core.wording import counted, listed
from algorithm.extras.population.drift import drifts
from algorithm.extras.standings.experiments import Experiment, behaviours_of
from algorithm.run.evaluation.statistics import INTERVAL
from algorithm.store.follow_up_commands import playing_commands
from algorithm.store.names import LINEAGE, is_name
from algorithm.store.rundir import RunDir

_MOST_MARKS = 50
_MOST_PROBLEMS = 12


@dataclass(frozen=True)
class PopulationFacts:
    """A population, as its files describe it.

    folder:   of the population; it is not a run's
    outcomes: of all members in the generations that have ended
    names:    member -> name of its run
    members:  member -> its run, if the run has a folder
    start:    options of the command that started it
    problems: a line for each file that is missing or damaged
    """

    folder: RunDir
    outcomes: Sequence[MemberOutcome]
    names: Mapping[int, str]
    members: Mapping[int, Facts]
    start: Mapping[str, object]
    problems: Sequence[str]

    @classmethod
    def gather(cls, folder: RunDir) -> PopulationFacts:
        """Read the files of a population; missing and damaged ones become ``problems``."""
        files = TolerantReader()
        nothing: tuple[list[MemberOutcome], list[str]] = [], []
        outcomes, bad_lines = files.read(folder.path / LINEAGE, read_lineage, nothing)
        start = files.read(folder.path / "population.json", read_json, dict[str, object]())
        names = {outcome.member: _name(folder, outcome) for outcome in outcomes} or _consecutive_runs(folder)
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
        """Outcomes of the last generation that has ended, best first."""
        return sorted(
            (each for each in self.outcomes if each.generation == self.outcomes[-1].generation),
            key=lambda outcome: (outcome.rank, outcome.member),
        )

    @property
    def best(self) -> MemberOutcome | None:
        """Best outcome of the last generation; None without any score."""
        return next((outcome for outcome in self.last if outcome.score is not None), None)

    @property
    def steps(self) -> int:
        """Environment steps of all members together."""
        saved = {outcome.member: outcome.step for outcome in self.outcomes}
        return sum(
            max(saved.get(member, 0), (self.members[member].steps or 0) if member in self.members else 0, 0)
            for member in self.names
        )


def write_population(folder: RunDir) -> Path:
    """Write the page about a population into its folder; return the page's path.

    The page lists damaged files and lost runs, and may be of a population that still trains. Raises
    StorageError if it cannot be written.
    """
    facts = PopulationFacts.gather(folder)
    runs = Experiment(folder.name, tuple(facts.members.values()))
    curves = (_curves(facts, runs, name) for name in behaviours_of([runs]))
    return FolderPage(
        folder=folder,
        subtitle=_subtitle(facts),
        sections=[*curves, _scores(facts.outcomes), *drifts(facts.outcomes), *_last(facts)],
        problems=_shortened(facts.problems),
        commands=_commands(facts),
        tiles=_tiles(facts),
    ).write()


def _name(folder: RunDir, outcome: MemberOutcome) -> str:
    """Return the name of a member's run, by its number if the stored name is not valid."""
    return outcome.name if is_name(outcome.name) else f"{folder.name}_{outcome.member}"


def _sibling(folder: RunDir, name: str) -> RunDir:
    """Return the run of that name beside the population's folder."""
    return RunDir(folder.env, name, folder.path.with_name(name), folder.argument)


def _consecutive_runs(folder: RunDir) -> dict[int, str]:
    """Return the names of the runs NAME_1, NAME_2, … beside the folder, by number."""
    names = ((number, f"{folder.name}_{number}") for number in itertools.count(1))
    return dict(itertools.takewhile(lambda pair: _sibling(folder, pair[1]).config.exists(), names))


def _shortened(problems: Sequence[str]) -> list[str]:
    """Return the first problems, and a line that counts the others."""
    more = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], *([f"and {counted(more, 'problem')} more"] if more > 0 else [])]


def _subtitle(facts: PopulationFacts) -> str:
    holder, seed = holder_of(facts.folder.lock), number(facts.start, "seed")
    state = "not running" if holder is None else state_of(holder)
    return f"population · {state} · seed {'unknown' if seed is None else f'{seed:.0f}'}"


def _tiles(facts: PopulationFacts) -> list[Tile]:
    ended, best = by_generation(facts.outcomes), facts.best
    lost = sum(outcome.end == GIVEN_UP for outcome in facts.last)
    score = Tile(
        "best score", "none", "no generation has a score yet" if not ended else "no member has a score"
    )
    if best is not None:
        score = Tile("best score", best.score_text, f"{best.name}, generation {best.generation}")
    return [
        Tile("generations", f"{len(ended):,}", "that have ended"),
        Tile("members", f"{len(facts.names):,}", f"{lost} given up in the last generation" if lost else ""),
        score,
        Tile("environment steps", f"{facts.steps:,}", "of all members"),
    ]


def _curves(facts: PopulationFacts, runs: Experiment, behaviour: str) -> Section:
    """Return the section with the members' evaluations of one behaviour."""
    series = runs.series(behaviour)
    title = heading("Learning curves", behaviour)
    if not series:
        return Section(title=title, text=["No member was evaluated yet."])
    lines = experiment_lines(series, f"mean of {counted(len(series), 'member')}, {INTERVAL} interval")
    notes = ["Evaluations only."]
    if len(series) > 1:
        notes.insert(0, "Thin: the members. Thick: their mean with Student's 95 % interval.")
        best = facts.best
        of_best = [facts.members[best.member]] if best and best.member in facts.members else []
        name = f"{best.name}, the best of the last generation" if best else ""
        for curve in Experiment("", tuple(of_best)).series(behaviour):
            lines.append(Line(label=name, x=curve.eval_step, y=curve.eval_return, tone=1))
    # A generation ends at the median of its members' steps.
    ends = [
        float(np.median([outcome.step for outcome in each]))
        for each in by_generation(facts.outcomes).values()
    ]
    every = math.ceil(len(ends) / _MOST_MARKS) or 1
    marks = [step for step in ends[every - 1 :: every] if step > 0]
    if marks:
        notes.append(
            f"Dotted: the end of {'each generation' if every == 1 else f'every {every} generations'}."
        )
    chart = Chart("Return over environment steps of a member", lines, large=True, marks=marks)
    return Section(title=title, chart=chart, notes=[" ".join(notes)])


def _scores(outcomes: Sequence[MemberOutcome]) -> Section:
    """Return the section with best, mean and worst score of each generation."""
    known = {
        generation: scores
        for generation, members in by_generation(outcomes).items()
        if (scores := [member.score for member in members if member.score is not None])
    }
    if not known:
        return Section(title="Generations", text=["No generation has a score yet."])
    x = np.array(list(known), np.float64)
    best, worst = (np.array([pick(scores) for scores in known.values()]) for pick in (max, min))
    lines = [
        Line(label="best", x=x, y=best, tone=1, dots=True),
        mean_line(f"mean, {INTERVAL} interval", x, list(known.values()), dots=True),
        Line(label="worst", x=x, y=worst, tone=2, dots=True),
    ]
    chart = Chart("Score by generation", lines, large=True, along="generation")
    note = "The score of a member is the mean of its evaluations in a generation."
    return Section(title="Generations", chart=chart, notes=[note])


def _last(facts: PopulationFacts) -> Iterator[Section]:
    """Yield the table of the last generation; nothing before one has ended."""
    if not facts.outcomes:
        return
    genes = list(dict.fromkeys(path for outcome in facts.last for path in outcome.genes))
    rows = []
    for outcome in facts.last:
        name, rank = _name(facts.folder, outcome), f"{outcome.rank}{', elite' if outcome.elite else ''}"
        title = link_to_page(name, _sibling(facts.folder, name).path, facts.folder.path)
        values = [gene_text(outcome.genes[path]) if path in outcome.genes else "" for path in genes]
        parents = listed(outcome.parents) or "none"
        rows.append([title, rank, outcome.score_text, *values, outcome.origin, parents, outcome.end_text])
    head = ["member", "rank", "score", *genes, "origin", "parents", "end"]
    yield Section(title=f"Generation {facts.last[0].generation}", head=head, rows=rows)


def _commands(facts: PopulationFacts) -> list[tuple[str, str]]:
    """Return (purpose, command) of commands to continue the population and to play its best run."""
    folder, best, commands = facts.folder, facts.best, []
    if facts.names:
        words = ["-n", folder.name, f"--num_learners={len(facts.names)}"]
        if actors := number(facts.start, "num_actors"):
            words.append(f"--num_actors={actors:.0f}")
        commands.append(("Continue it", folder.command(*words, "--resume", role="evolver")))
    if best is not None and best.member in facts.members:
        member = facts.members[best.member]
        playing = playing_commands(member.run, member.render_modes, episodes=100)
        commands += [
            (f"{PURPOSES[purpose]}: {member.run.name}, the best of the last generation", command)
            for purpose, command in playing.items()
        ]
    return commands
