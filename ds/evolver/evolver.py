"""Generations of a population: members train, are ranked, and begin again with what the best ones have."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from algorithm.config.schema import BaseConfig
from algorithm.errors import StorageError
from algorithm.reading import read_text
from algorithm.runs.checkpoints.checkpoint import checkpoint_of, checkpoint_steps
from algorithm.runs.checkpoints.manifest import TENSORS, check_listed, read_manifest
from algorithm.train.signals import StopRequest
from ds.cluster.group import TICK_S, LearnerGroup, end, save_and_end
from ds.cluster.plan import ClusterPlan, MainCommands
from ds.cluster.process import RestartRule
from ds.evolver.generations import Generation, MemberStart, PopulationDir
from ds.evolver.genes import gene_flags
from ds.evolver.population import Boundary, Population, Result

_SHOWN_EVERY_S = 10.0

End = Literal["complete", "stopped", "given up"]
"""complete: by itself, with its last evaluation or its last step · stopped: by a signal, for the others are
done."""


@dataclass(frozen=True, kw_only=True)
class Part:
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
    script: main.py, where the member has no actors

    ``part`` is the generation that it works on. A process that is started again goes on from the member's
    newest checkpoint; one that has made none in this generation begins the generation once more.
    """

    def __init__(self, main: MainCommands, script: Path | None, part: Part) -> None:
        self._main, self._script, self.part = main, script, part

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> tuple[str, ...]:
        """Return the command line of the process that learns."""
        main, part = self._main, self.part
        words = (str(self._script), main.env) if self._script else main.base("learner", host, port)
        words += ("-n", main.name, *main.kept)
        words += ("--resume",) if resume else (*main.common, *main.learner_flags)
        if step <= part.start.step:
            words += part.flags
            if part.networks is not None:
                words += ("--networks", str(part.networks))
        return (*words, "--evaluations", str(part.evaluations))

    def actor(self, host: str, port: int) -> tuple[str, ...]:
        """Return the command line of an actor."""
        return (*self._main.actor(host, port), *self.part.flags)


class Member:
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
        clock: Callable[[], float],
    ) -> None:
        self.number, self.name, self.commands = number, plan.name, commands
        self.run = plan.folder / plan.run
        self._actors = plan.actors
        self.group = LearnerGroup(ray, plan, say=say, rule=rule, clock=clock)
        self.end: End | None = None
        self.why = ""  # it was given up

    @property
    def scores(self) -> list[float]:
        """Mean return of each evaluation in this generation; NaN where there was none."""
        return evaluations(self.run)[self.commands.part.start.evaluations :]

    def step(self, now: float) -> None:
        """Advance without waiting. now: seconds."""
        self.group.step(now, self._actors)
        if self.group.error is not None:
            raise self.group.error
        ended = None if self.end else self.group.over()
        if ended is None:
            return
        if ended.code == 0:
            self.end = "complete"
        elif ended.state == "ended":
            self.end = "stopped"
        else:
            self.end, self.why = "given up", self.group.explain_end(ended)
            self.stop()

    def stop(self) -> None:
        """Let it save and end."""
        self.group.learner.leave(signal.SIGINT)

    def begin(self, part: Part) -> None:
        """Start it for another generation."""
        self.commands.part, self.end, self.why = part, None, ""
        self.group.start_anew()


class Evolver:
    """Population whose members are ``members``, from ``generation`` on.

    folder: of the population
    begin:  returns a member's part, see :func:`part_of`
    limit:  steps after which a member's run ends, -1 for none
    say:    prints a line
    """

    def __init__(
        self,
        members: Sequence[Member],
        folder: PopulationDir,
        generation: Generation,
        base: BaseConfig,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = {member.number: member for member in members}
        self._folder, self._base, self._say, self._clock = folder, base, say, clock
        self._generation = generation
        self._population = Population.from_state(generation.population)
        self._begun = clock()
        self._shown_at = 0.0
        self._table: list[str] = []

    def run(self, stop: StopRequest) -> int:
        """Train until the members' runs have ended, or ``stop`` is set; return the exit code.

        Raises StorageError if a generation cannot be written.
        """
        groups = [member.group for member in self._members.values()]
        try:
            while not stop:
                self._tick()
                if all(member.end for member in self._members.values()):
                    code = self._boundary()
                    if code is not None:
                        end(groups, self._clock, by_themselves=code == 0)
                        return code
                time.sleep(TICK_S)
        except StorageError:
            save_and_end(groups, self._clock)
            raise
        self._say(stop.text)
        save_and_end(groups, self._clock)
        self._say("everything has ended; --resume goes on")
        return stop.exit_code

    def _tick(self) -> None:
        now = self._clock()
        for member in self._members.values():
            member.step(now)
        if now >= self._shown_at:
            self._shown_at = now + _SHOWN_EVERY_S
            self._show()
            if self._enough(now):
                for member in self._members.values():
                    if member.end is None:
                        member.stop()

    def _enough(self, now: float) -> bool:
        """Return whether the time is over and every member that goes on has the fewest evaluations."""
        if now < self._begun + 60.0 * self._base.evolver_cem_time:
            return False
        fewest = self._base.evolver_cem_min_length
        going = [member for member in self._members.values() if member.end is None]
        others = [member for member in self._members.values() if member.end in ("complete", "stopped")]
        return all(len(member.scores) >= fewest for member in [*going, *others])
