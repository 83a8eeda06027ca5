"""The tables of ``evidence``: what every side came to, and how soon it has the first peer's last returns."""

from __future__ import annotations

from algorithm.core.wording import counted
from benchmarks.cells import Results, table
from benchmarks.sides import head, rows, standings
from benchmarks.standings import GOALS, Evidence, Reached, or_never, reached


def evidence(results: Results) -> str:
    """Every suite and side that was begun; what is only planned, was left out or failed is said below."""
    figures = results["evidence"]
    found, cells = Evidence.read(results.folder), list[list[str]]()
    waiting, alone = list[str](), list[str]()
    begun = {(row["suite"], row["side"]) for row in figures["runs"]}
    for suite, about in found.suites.items():
        planned, sides, first = about["planned"], found.sides(suite), about["first"] or ""
        idle = [side for side in planned if (suite, side) not in begun]
        if idle:
            number = counted(sum(planned[side] for side in idle), "training")
            waiting.append(f"{suite}, {number} of {', '.join(idle)}")
        if others := sorted(set(found.tasks(suite)).difference(*sides.values())):
            alone.append(f"{suite}, {', '.join(others)}")
        known = {row[0]: row for row in rows(standings(sides, first))} if sides else {}
        for side in (side for side in planned if side not in idle):
            figure = known.get(side, [side, *["–"] * 4])
            cells.append([suite, *figure, str(len(sides.get(side, ()))), found.cells(suite, side)])
    names = [name for name in head("the first peer") if name]
    text = [table(["suite", "side", *names, "tasks", "trainings finished"], cells)]
    text += [f"Not begun: {'; '.join(waiting)}."] if waiting else []
    text += [f"Without runs of every side, and so not compared: {'; '.join(alone)}."] if alone else []
    text += [f"Left out: {side}: {reason}" for side, reason in figures["left_out"].items()]
    failed = [row for row in figures["runs"] if row["state"] == "failed"]
    text += [f"Failed: {row['task']}, {row['side']}, seed {row['seed']}: {row['reason']}" for row in failed]
    return "\n\n".join(text)


def evidence_goal(results: Results) -> str:
    """Every task with a first peer: when each side has the mean of the peer's last evaluations."""
    results["evidence"]  # it is a source
    found = Evidence.read(results.folder)
    cells = [_reached(one) for suite in found.suites for one in reached(found, suite)]
    minutes, shares = ([f"{what}: {goal}" for goal in GOALS] for what in ("core-minutes", "share"))
    return table(["task", "side", *minutes, *shares], cells)


def _reached(one: Reached) -> list[str]:
    minutes = [
        f"{or_never(of)} ({count} of {one.runs})" for of, count in zip(one.minutes, one.counts, strict=True)
    ]
    ends = [[or_never(float(part[0])) for part in (of.value, of.low, of.high)] for of in one.shares]
    return [one.task, one.side, *minutes, *(f"{value} [{low}, {high}]" for value, low, high in ends)]


def evidence_pictures(results: Results) -> str:
    """The picture of every suite with figures, as :mod:`benchmarks.pictures` draws them."""
    results["evidence"]  # it is a source
    found = Evidence.read(results.folder)
    return "\n\n".join(f"![{name}](images/evidence_{name}.svg)" for name in found.suites if found.sides(name))
