"""Learning beside other libraries with everybody's defaults, on the suites of ``evidence.yaml``.

A cell is one training: an ordinary run of ours below ``models/benchmarks/evidence``, or a process of a peer.
Figures go to ``evidence.csv`` in the form that the field exchanges them, and what is known of each cell to
``evidence.json``, both after every cell.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.app.report.facts import holder_of
from algorithm.config.errors import ConfigError
from algorithm.config.locate import find_env
from benchmarks import bare, pictures
from benchmarks.harness import HERE, Bench, machine, our_version, smoke
from benchmarks.plans import BARE, Cell, Plan, Task
from benchmarks.runs import finished, overriding, read, train
from benchmarks.standings import Evidence, read_points, write_points
from benchmarks.worker import Answer, StoppedError, WorkerError

PLAN = HERE / "evidence.yaml"
EPISODES = 10


@smoke(suite=["classic"], tasks=["pendulum"], sides=[BARE, "flash64", "SB3 SAC"], seeds=[1, 2], steps=60)
def evidence(
    bench: Bench,
    earlier: Mapping[str, Any],
    *,
    plan: Path = PLAN,
    suite: list[str] = [],
    tasks: list[str] = [],
    sides: list[str] = [],
    seeds: list[int] = [],
    jobs: int = 2,
    steps: int = 0,
    retry_failed: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Measure what every side's defaults learn: finished trainings are kept, killed ones go on.

    suite, tasks, sides, seeds: a part of the plan, or sides beyond it · retry_failed: failed cells once more
    """
    planned = Plan.read(plan)
    chosen = planned.cells(suite, tasks, sides, seeds)
    found = _Findings(planned, bench.results / "evidence.csv", earlier, steps)
    missing = left_out(bench, planned, {cell.side for cell in chosen})
    for side, reason in missing.items():
        print(f"left out: {side}: {reason}", file=sys.stderr)
    found.choose([cell for cell in chosen if cell.side not in missing], missing, 1 if bench.smoke else 20)
    yield found.write()
    work = partial(_train, bench, planned, steps)
    for cell, made in bench.each(found.due(retry_failed), work, at_a_time=jobs):
        if isinstance(made, StoppedError):
            print(f"stopped: {cell}: the same command goes on with it", file=sys.stderr)
        elif made is not None:
            found.add(cell, made)
            yield found.write()
    pictures.draw(Evidence.read(bench.results), bench.results)


class _Findings:
    """All that is known of the cells, in files beside one another.

    steps: of every task instead of the plan's, if it is tried out
    """

    def __init__(self, plan: Plan, file: Path, earlier: Mapping[str, Any], steps: int) -> None:
        self._plan, self._file, self._steps = plan, file, steps
        self._cells: dict[Cell, Answer] = {}
        self._points = read_points(file) if file.exists() else {}
        self._tasks: dict[str, Any] = dict(earlier.get("tasks", {}))
        self._machine = earlier.get("machine") or machine()
        if self._machine["cpu"] != machine()["cpu"]:
            print(f"note: core-minutes were begun on {self._machine['cpu']}: others differ", file=sys.stderr)
        self._missing: dict[str, str] = {}
        self._chosen: list[Cell] = []
        for row in earlier.get("runs", ()):
            cell = Cell(row["suite"], row["task"], row["side"], row["seed"])
            if self._fits(cell, row):
                self._cells[cell] = row

    def _fits(self, cell: Cell, row: Answer) -> bool:
        """Whether a row is of the plan as it is now."""
        if cell.suite not in self._plan.suites or cell.task not in self._plan.suites[cell.suite].tasks:
            return False
        points = self._points.get((cell.side, cell.task, cell.seed))
        return row["state"] == "failed" or bool(points and points[-1][0] == self._end(cell))

    def _end(self, cell: Cell) -> int:
        return self._steps or self._plan.task(cell).steps

    def choose(self, cells: Sequence[Cell], missing: Mapping[str, str], episodes: int) -> None:
        """Say what shall be there, and measure the random policy where the plan does not say its return."""
        self._chosen, self._missing = list(cells), dict(missing)
        for cell in cells:
            task = self._plan.task(cell)
            known = self._tasks.get(cell.task, {})
            said = {"suite": cell.suite, "env": task.env, "steps": self._steps or task.steps, "one": task.one}
            zero = known.get("zero") if known.get("env") == task.env else None
            if task.zero is not None or zero is None:
                zero = task.zero
            if zero is None:
                zero = bare.random_policy(bare.Task(task.env, task.steps, None), episodes)
            self._tasks[cell.task] = {**said, "zero": zero}

    def due(self, retry_failed: bool) -> list[Cell]:
        """Chosen cells that are neither finished nor, unless they are tried once more, failed."""
        states = {cell: row["state"] for cell, row in self._cells.items()}
        return [c for c in self._chosen if states.get(c) != "finished" and (retry_failed or c not in states)]

    def add(self, cell: Cell, made: Answer | WorkerError) -> None:
        """Take what came of a cell."""
        row = {**cell._asdict(), "state": "finished", "date": date.today().isoformat()}
        if isinstance(made, WorkerError):
            print(f"failed: {cell}: {made}", file=sys.stderr)
            peer = self._plan.peers.get(cell.side, {"library": "advanced-soft-actor-critic"})
            row |= {"state": "failed", "reason": _reason(made), "version": our_version()}
            row |= {"library": peer["library"].replace("_", "-")}
        else:
            row |= {key: made[key] for key in ("library", "version", "date") if key in made}
            points = zip(made["curve"], made["core_seconds"], strict=True)
            self._points[cell.side, cell.task, cell.seed] = [
                (step, mean, core) for (step, mean), core in points if step <= self._end(cell)
            ]
            print(f"{cell.task}, {cell.side}, seed {cell.seed}: {made['curve'][-1]}", flush=True)
        self._cells[cell] = row

    def write(self) -> dict[str, Any]:
        """Write the table; returns the content of the other file. Day and commits are those of the runs."""
        rows = sorted(self._cells.values(), key=lambda row: [str(row[name]) for name in Cell._fields])
        write_points(self._file, self._points)
        every = {*self._plan.cells(), *self._chosen, *self._cells}
        suites = {
            name: {
                "first": self._plan.first_peer(name),
                "published": {label: list(map(list, of.items())) for label, of in suite.published.items()},
                "planned": _counts([cell.side for cell in sorted(every) if cell.suite == name], suite.sides),
            }
            for name, suite in self._plan.suites.items()
        }
        versions = sorted({row["version"] for row in rows if row["side"] not in self._plan.peers})
        return {
            "date": max((row["date"] for row in rows), default=date.today().isoformat()),
            "version": ", ".join(versions) or our_version(),
            "machine": self._machine,
            "load": None,
            "left_out": self._missing,
            "suites": suites,
            "tasks": self._tasks,
            "runs": rows,
        }


def _counts(names: Sequence[str], order: Sequence[str]) -> dict[str, int]:
    return {name: names.count(name) for name in dict.fromkeys([*order, *names])}


def _reason(error: WorkerError) -> str:
    """The last words of what failed."""
    first, *said = [line.strip() for line in str(error).splitlines()]
    return (" ".join(said) or first)[:300]


def left_out(bench: Bench, plan: Plan, sides: set[str]) -> dict[str, str]:
    """Sides of other libraries that cannot be trained here, and why."""
    found = {}
    for side in sorted(sides & plan.peers.keys()):
        library = plan.peers[side]["library"]
        if bench.smoke or not bench.python.exists():
            found[side] = "its library is not installed: `make bench-peers`"
            continue
        looked = f"from importlib.util import find_spec; raise SystemExit(find_spec({library!r}) is None)"
        if subprocess.run([str(bench.python), "-c", looked], check=False).returncode:
            found[side] = f"{bench.python} has no {library}: `make bench-peers`"
    return found


def _train(bench: Bench, plan: Plan, steps: int, cell: Cell) -> Answer | None:
    """A cell from wherever it is to its end. Raises WorkerError if that fails; None without the peer."""
    task, suite = plan.task(cell), plan.suites[cell.suite]
    end = steps or task.steps
    every, episodes = (end // 2, 1) if steps else (end // suite.evaluations, EPISODES)
    if cell.side in plan.peers:
        fit = {"steps": end, "every": every, "episodes": episodes}
        said = {"env": {"env_id": task.env}, "seed": cell.seed, "fit": fit, **plan.peers[cell.side]}
        made = bench.theirs("sb3:bare", **said)
        if made and made.get("error"):
            raise WorkerError(made["error"])
        return made
    keys = {
        "base_config.max_step": end,
        "eval_config.per_step": every,
        "eval_config.episodes": episodes,
    }
    return _ours(bench, cell, task, keys, plan.ours.get(cell.side))


def _ours(
    bench: Bench, cell: Cell, task: Task, keys: Mapping[str, int], side: Mapping[str, Any] | None
) -> Answer:
    """A run of ours from wherever it is to its end. Raises WorkerError.

    keys: of its configuration · side: keys that its side sets; None: the side is bare, or a preset
    """
    try:
        label = find_env(task.env).label
    except ConfigError as error:
        raise WorkerError(str(error)) from error
    folder = bench.runs / "evidence" / cell.task.replace(" ", "_")
    run = folder / "models" / label / f"{cell.side}-{cell.seed}"
    wait_for(run)
    if not finished(run, keys):
        folder.mkdir(parents=True, exist_ok=True)
        words = [task.env, f"--name={run.name}", "--device=cpu", "--quiet"]
        if any((run / "checkpoints").glob("step_*")):
            words += ["--resume"]
        else:
            shutil.rmtree(run, ignore_errors=True)  # what was killed before its first checkpoint
            preset = [] if cell.side == BARE or side is not None else [f"--preset={cell.side}"]
            said = {**keys, "base_config.stop_at_return": None, **task.set, **(side or {})}
            words += [f"--seed={cell.seed}", *preset, *overriding(said)]
        train(bench, words, folder, log=run.name)
        if not finished(run, keys):
            raise WorkerError(f"{run} has ended before its last step: remove it")
    return read(run)


def wait_for(run: Path) -> None:
    """Wait for a run whose process outlived what began it. Raises WorkerError for one on another machine."""
    told = False
    while (holder := holder_of(run / "run.lock")) is not None and holder.is_running:
        if holder.is_elsewhere:
            raise WorkerError(f"{run} is trained by {holder}")
        if not told:
            print(f"waiting: {run} is trained by {holder}", flush=True)
        told = True
        time.sleep(1)
