"""Members of a population: runs that Ray keeps going, one generation after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from typing_extensions import override

from algorithm.app.cli.ds import DistributedOptions
from algorithm.core.errors import UsageError
from algorithm.core.reading import read_json, read_text
from algorithm.store.checkpoints.folders import checkpoint_of, checkpoint_steps
from algorithm.store.checkpoints.manifest import STATE
from algorithm.store.logs.rows import read_points
from ds.cluster.group import LearnerGroup
from ds.cluster.plan import ClusterPlan
from ds.evolver.generations import MemberStart

End = Literal["complete", "stopped", "given up"]
"""complete: by itself, with its last evaluation or its last step · stopped: by a signal, for the others are
done."""


@dataclass(frozen=True, kw_only=True)
class GenerationPart:
    """One generation of a member.

    overrides:   set its genes
    networks:    folder to begin with; None for its own
    start:       its progress when the generation began
    evaluations: of its run in all, with which it ends
    """

    overrides: tuple[str, ...]
    networks: Path | None
    start: MemberStart
    evaluations: int


@dataclass(kw_only=True)
class MemberPlan(ClusterPlan):
    """A member of a population: a process of ``main.py``, or a learner and its actors.

    number: from 1 on
    first:  overrides of a learner that begins the run
    part:   the generation that it works on

    A process that is started again goes on from the member's newest checkpoint; one that has made none in
    this generation begins the generation once more.
    """

    number: int
    first: tuple[str, ...]
    part: GenerationPart
    adopt: ClassVar[bool] = True

    @property
    def alone(self) -> bool:
        """Whether the member has no actors."""
        return not self.options.cluster.num_actors

    @property
    @override
    def module(self) -> str:
        return "algorithm.app.command" if self.alone else super().module

    @override
    def learner(self, host: str, port: int, *, resume: bool, step: int) -> Any:
        made, part = super().learner(host, port, resume=resume, step=step), self.part
        overrides = (*made.train.overrides, *(() if resume else self.first))
        train = replace(made.train, overrides=overrides, evaluations=part.evaluations)
        if step <= part.start.step:
            networks = None if part.networks is None else str(part.networks)
            train = replace(train, overrides=(*overrides, *part.overrides), init_from=networks)
        return train if self.alone else replace(made, train=train)

    @override
    def actor(self, host: str, port: int) -> DistributedOptions:
        made = super().actor(host, port)
        return replace(
            made, train=replace(made.train, overrides=(*made.train.overrides, *self.part.overrides))
        )

    @override
    def secrets_at(self, host: str, *names: str) -> Mapping[str, bytes]:
        return {} if self.alone else super().secrets_at(host, *names)


class MemberRun:
    """A run of the population, kept running for one generation after the other."""

    def __init__(self, ray: ModuleType, plan: MemberPlan) -> None:
        self.number = plan.number
        self.name = plan.name
        self.run = plan.folder / plan.run
        self.group = LearnerGroup(ray, plan)
        self.end: End | None = None
        self.why = ""  # it was given up
        self._plan = plan
        self._unwritten: list[float] = []
        if self._is_saved():
            self.end = "complete"  # before the command was started again
        else:
            self.group.start()

    @property
    def all_evaluations(self) -> list[float]:
        """Mean return of each evaluation of its run; NaN where there was none."""
        return [*read_evaluations(self.run), *self._unwritten]

    @property
    def evaluations(self) -> list[float]:
        """The evaluations of this generation."""
        return self.all_evaluations[self._plan.part.start.evaluations :]

    def step(self) -> None:
        """Advance without waiting."""
        ended = None if self.end else self.group.over()
        if ended is None:
            return
        if ended.code == 0:
            self.end = "complete"
        elif ended.state == "ended":
            self.end = "stopped"
        elif ended.code == UsageError.exit_code and ended is self.group.learner and self._is_saved():
            self.end = "complete"  # killed behind its last checkpoint: nothing was left to do
        else:
            self.end, self.why = "given up", ended.explain_end()
            self.stop()

    def stop(self) -> None:
        """Let it save and end."""
        self.group.learner.leave()

    def begin(self, part: GenerationPart) -> None:
        """Start it for another generation."""
        self._plan.part, self.end, self.why = part, None, ""
        self._unwritten = []  # it is written by whoever resumes the run
        self.group.start()

    def _is_saved(self) -> bool:
        """Return whether its newest checkpoint has all evaluations of the generation."""
        saved = newest_state(self.run)
        if not saved or saved["run"]["counters"]["evaluations"] < self._plan.part.evaluations:
            return False
        self._unwritten = unwritten_evaluations(self.run, saved["metrics"])
        return True


def read_evaluations(run: Path) -> list[float]:
    """Return the mean return of each evaluation of a run, over its behaviours; NaN where it is none."""
    return [value for _, value in read_points(run / "metrics.jsonl", "eval/return_mean")]


def newest_step(run: Path) -> int:
    """Return the step of a run's newest checkpoint, -1 without one."""
    return max(checkpoint_steps(run / "checkpoints"), default=-1)


def newest_state(run: Path) -> dict[str, Any]:
    """Return the state in a run's newest checkpoint; empty without one."""
    step = newest_step(run)
    return {} if step < 0 else read_json(checkpoint_of(run / "checkpoints", step) / STATE)


def unwritten_evaluations(run: Path, metrics: Mapping[str, Any]) -> list[float]:
    """Return the mean return in a checkpoint's open row, unless ``metrics.jsonl`` has the whole row by now.

    A kill between the last checkpoint of a generation and that row leaves it in the checkpoint alone.
    """
    lines = read_text(run / "metrics.jsonl").splitlines() if (run / "metrics.jsonl").exists() else []
    if any(line.startswith(f'{{"step": {metrics["step"]},') and line.endswith("}") for line in lines):
        return []
    values = [value for _, name, value in metrics["pending"] if name == "eval/return_mean"]
    return [_mean(values)] if values else []


def _mean(values: Sequence[Any]) -> float:
    """Return the mean over behaviours; NaN if one of them has none."""
    return math.nan if None in values else math.fsum(values) / len(values)
