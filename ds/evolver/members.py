"""Members of a population: runs that Ray keeps going, one generation after the other."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from algorithm.core.errors import UsageError
from algorithm.core.reading import read_json, read_text
from algorithm.store.checkpoints.checkpoint import checkpoint_of, checkpoint_steps
from algorithm.store.checkpoints.manifest import STATE
from algorithm.store.logs.rows import read_points
from ds.cluster.group import LearnerGroup
from ds.cluster.plan import ClusterPlan, MainCommands
from ds.cluster.restarts import RestartRule
from ds.evolver.generations import MemberStart

End = Literal["complete", "stopped", "given up"]
"""complete: by itself, with its last evaluation or its last step · stopped: by a signal, for the others are
done."""


@dataclass(frozen=True, kw_only=True)
class GenerationPart:
    """One generation of a member.

    flags:       set its genes
    networks:    folder to begin with; None for its own
    start:       its progress when the generation began
    evaluations: of its run in all, with which it ends
    """

    flags: tuple[str, ...]
    networks: Path | None
    start: MemberStart
    evaluations: int


class MemberCommands:
    """Command lines of a member: ``main.py``, or a learner and its actors.

    main:   those of a learner and an actor
    script: arguments of Python before those of main.py; None where the member has actors

    ``part`` is the generation that it works on. A process that is started again goes on from the member's
    newest checkpoint; one that has made none in this generation begins the generation once more.
    """

    def __init__(self, main: MainCommands, script: tuple[str, ...] | None, part: GenerationPart) -> None:
        self._main = main
        self._script = script
        self.part = part

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> tuple[str, ...]:
        """Return the command line of the process that learns."""
        main, part = self._main, self.part
        words = (*self._script, main.env) if self._script else main.base("learner", host, port)
        words += ("-n", main.name, *main.kept)
        words += ("--resume",) if resume else (*main.common, *main.learner_flags)
        if step <= part.start.step:
            words += part.flags
            if part.networks is not None:
                words += ("--init_from", str(part.networks))
        return (*words, "--evaluations", str(part.evaluations))

    def actor(self, host: str, port: int) -> tuple[str, ...]:
        """Return the command line of an actor."""
        return (*self._main.actor(host, port), *self.part.flags)


class MemberRun:
    """A run of the population, kept running for one generation after the other.

    commands: those of ``plan``, with the generation to begin with
    Raises StorageError from :meth:`step` if its run is lost.
    """

    def __init__(
        self,
        number: int,
        ray: ModuleType,
        plan: ClusterPlan,
        commands: MemberCommands,
        *,
        say: Callable[[str], None],
        rule: RestartRule,
    ) -> None:
        self.number = number
        self.name = plan.name
        self.commands = commands
        self.run = plan.folder / plan.run
        self._actors = plan.actors
        self.group = LearnerGroup(ray, plan, say=say, rule=rule)
        self.end: End | None = None
        self.why = ""  # it was given up
        self._unwritten: list[float] = []
        if self._is_saved():
            self.end, self.group.paused = "complete", True  # before the command was started again

    @property
    def all_evaluations(self) -> list[float]:
        """Mean return of each evaluation of its run; NaN where there was none."""
        return [*read_evaluations(self.run), *self._unwritten]

    @property
    def evaluations(self) -> list[float]:
        """The evaluations of this generation."""
        return self.all_evaluations[self.commands.part.start.evaluations :]

    def step(self) -> None:
        """Advance without waiting."""
        self.group.step(self._actors)
        if self.group.error is not None:
            raise self.group.error
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
            self.end, self.why = "given up", self.group.explain_end(ended)
            self.stop()

    def stop(self) -> None:
        """Let it save and end."""
        self.group.learner.leave(signal.SIGINT)

    def begin(self, part: GenerationPart, *, actors: bool) -> None:
        """Start it for another generation; ``actors``: and its actors, whose command is another one."""
        self.commands.part, self.end, self.why = part, None, ""
        self._unwritten = []  # it is written by whoever resumes the run
        self.group.start_anew(actors=actors)

    def _is_saved(self) -> bool:
        """Return whether its newest checkpoint has all evaluations of the generation."""
        saved = newest_state(self.run)
        if not saved or saved["run"]["counters"]["evaluations"] < self.commands.part.evaluations:
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
    """Return what the open row of a checkpoint has, unless ``metrics.jsonl`` has that row by now, and whole.

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
