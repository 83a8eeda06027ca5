"""The plan of ``evidence``: suites of tasks, and the sides that are trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml

from algorithm.config.schema import Config
from benchmarks.worker import WorkerError

BARE = "bare"
"""The side of ours that says nothing but the environment."""


class Cell(NamedTuple):
    """One training."""

    suite: str
    task: str
    side: str
    seed: int


@dataclass(frozen=True)
class Task:
    """One task of the plan. zero, one: the returns that are scores 0 and 1; None: measured."""

    env: str
    steps: int
    zero: float | None = None
    one: float | None = None
    set: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Tasks with the sides and seeds that are planned for them.

    evaluations: of a run · published: label → steps → score, of others
    """

    seeds: Sequence[int]
    sides: Sequence[str]
    evaluations: int
    tasks: Mapping[str, Task]
    published: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Suites, and the sides that need words.

    peers: sides of other libraries, with what ``sb3:bare`` gets for them
    ours:  sides of this project, with the configuration keys that they set, by dotted path
    """

    peers: Mapping[str, Mapping[str, Any]]
    ours: Mapping[str, Mapping[str, Any]]
    suites: Mapping[str, Suite]

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read a plan as ``evidence.yaml`` explains it. Raises WorkerError for any other file."""
        try:
            said = yaml.safe_load(path.read_text("utf-8"))
            suites = {name: _suite(**of) for name, of in said["suites"].items()}
            sides = said.get("sides") or {}
            peers = {name: of for name, of in sides.items() if "library" in of}
            ours = {name: of["set"] for name, of in sides.items() if name not in peers}
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise WorkerError(f"{path} is no plan as evidence.yaml explains it: {error}") from error
        names = [task for suite in suites.values() for task in suite.tasks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise WorkerError(f"{path}: there are two tasks {', '.join(twice)}; a name is taken once")
        if taken := ours.keys() & {BARE, *presets()}:
            raise WorkerError(
                f"{path}: {', '.join(sorted(taken))} has a meaning already: name the side otherwise"
            )
        return cls(peers, ours, suites)

    def task(self, cell: Cell) -> Task:
        """Return the task of a cell."""
        return self.suites[cell.suite].tasks[cell.task]

    def first_peer(self, suite: str) -> str | None:
        """The side that the others of a suite are compared with; None where no other library is planned."""
        return next((side for side in self.suites[suite].sides if side in self.peers), None)

    def cells(
        self,
        suites: Sequence[str] = (),
        tasks: Sequence[str] = (),
        sides: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> list[Cell]:
        """The trainings of a part of the plan, seed by seed, so that every row fills evenly.

        tasks: parts of their names · sides, seeds: instead of the planned ones
        Raises WorkerError for a suite or a side that is not known, and a choice without any task.
        """
        known = [BARE, *self.ours, *self.peers, *presets()]
        for what, names, of in (("suite", suites, list(self.suites)), ("side", sides, known)):
            if unknown := [name for name in names if name not in of]:
                raise WorkerError(f"there is no {what} {', '.join(unknown)}; known are {', '.join(of)}")
        found = [
            Cell(name, task, side, seed)
            for name in suites or self.suites
            for task in self.suites[name].tasks
            if not tasks or any(part.lower() in task.lower() for part in tasks)
            for side in sides or self.suites[name].sides
            for seed in seeds or self.suites[name].seeds
        ]
        if not found:
            raise WorkerError(f"no task is called {' or '.join(tasks)}; the plan has {self._names(suites)}")
        return sorted(found, key=lambda cell: cell.seed)

    def _names(self, suites: Sequence[str]) -> str:
        return ", ".join(task for name in suites or self.suites for task in self.suites[name].tasks)


def _suite(tasks: Mapping[str, Any], **said: Any) -> Suite:
    return Suite(tasks={name: Task(**{"env": name, **of}) for name, of in tasks.items()}, **said)


def presets() -> list[str]:
    """The names of our presets."""
    annotation = type(Config().base_config).model_fields["preset"].annotation
    return [name for name in get_args(annotation) if name != "auto"]  # that is ``bare``
