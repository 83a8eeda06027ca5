"""``python main_ds.py ENV evolver``: train a population on Ray, on this machine or on a cluster.

Members train for a generation, are ranked, and begin again with what the best ones have.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.locate import find_env
from algorithm.config.yaml_io import inline, write_yaml
from algorithm.core.errors import NumericalError, StorageError
from algorithm.core.seeding import stream
from algorithm.core.wording import short
from algorithm.run.signals import StopRequest
from algorithm.store.checkpoints.manager import intact_checkpoints
from algorithm.store.files import finite_or_null, write_text
from algorithm.store.lock import RunLock
from ds.cluster.command import connected
from ds.cluster.process import TICK_S, StatusLog, log
from ds.evolver.generations import Generation, MemberStart
from ds.evolver.members import MemberRun, newest_step
from ds.evolver.networks import REPLAY, write_start
from ds.evolver.plan import PopulationPlan, new_plan, resumed_plan
from ds.evolver.population import Population, elites, may_end_early, next_generation, ranking, scores


def evolve(options: DistributedOptions) -> int:
    """Run the role ``evolver``; return its exit code. Raises ConfigError and other UserErrors."""
    show_notices(options.train)
    env = find_env(options.train.env)
    plan = resumed_plan(options, env) if options.train.resume else new_plan(options, env)
    base, folder = plan.loaded.config.base_config, plan.folder
    if not plan.genes.distributions:
        log("warning: random_params names no key: only the networks evolve")
    if isinstance(base.stop_at_return, float):
        log("warning: base_config.stop_at_return has no effect: members end with their generations")
    with ExitStack() as stack:
        if not plan.resumed:
            actors = options.cluster.num_actors
            folder.make({"seed": plan.loaded.seed, "num_actors": actors, "mode": base.evolver_mode})
        stack.enter_context(RunLock(folder.lock, notice=log))
        write_text(folder.config, write_yaml(dict(plan.loaded.raw)))
        if plan.resumed:
            folder.write_lineage(plan.generation.number)  # a kill may have left it incomplete
        else:
            folder.write(plan.generation, lambda draft: None)
        ray, stop = stack.enter_context(connected(options.cluster.ray))
        return asyncio.run(Evolver(ray, plan).run(stop))


class Evolver:
    """Population of ``plan``, from its generation on. ray: the module, connected."""

    def __init__(self, ray: ModuleType, plan: PopulationPlan) -> None:
        self._ray = ray
        self._plan = plan
        self._members: Sequence[MemberRun] = ()
        self._base = plan.loaded.config.base_config
        self._generation = plan.generation
        self._status = StatusLog()
        self._begun = time.monotonic()

    async def run(self, stop: StopRequest) -> int:
        """Train until the members' runs have come to their limits, or ``stop`` is set; return the exit code.

        Raises StorageError if a generation cannot be written, NumericalError if networks cannot be averaged;
        the members have saved and ended then.
        """
        plan = self._plan
        self._members = [MemberRun(self._ray, plan.member(number)) for number in plan.generation.starts]
        self._announce()
        try:
            while not stop:
                if self._tick():
                    code = self._next()
                    if code is not None:
                        await self._end()
                        return code
                await asyncio.sleep(TICK_S)
        except (StorageError, NumericalError):
            await self._end()
            raise
        log(stop.text)
        await self._end()
        log("everything has stopped; --resume continues this generation")
        return stop.exit_code

    async def _end(self) -> None:
        """Let all members save and end."""
        await asyncio.gather(*(member.group.end() for member in self._members))

    def _tick(self) -> bool:
        """Advance all members; return whether the generation has ended."""
        for member in self._members:
            member.step()
        if self._status.show(self._rows):
            base, alive = self._base, [member for member in self._members if member.end != "given up"]
            takes_too_long = time.monotonic() - self._begun >= 60.0 * base.evolver_cem_time
            counts = [len(member.evaluations) for member in alive]
            if takes_too_long and may_end_early(
                counts, length=base.evolver_cem_length, min_length=base.evolver_cem_min_length
            ):
                for member in alive:
                    if member.end is None:
                        member.stop()
        return all(member.end for member in self._members)

    def _next(self) -> int | None:
        """End the generation and begin the next one; return an exit code if there is none."""
        failed = [member for member in self._members if member.end == "given up"]
        for member in failed:
            log(f"error: {member.why}")
        if len(failed) == len(self._members):
            log("every member was given up; --resume starts this generation again")
            return failed[0].group.learner.code or 1
        self._write_next()
        if any(self._has_ended(member) for member in self._members):
            self._report_winner()
            return 0
        self._begun = time.monotonic()
        for member in self._members:
            member.begin(self._plan.part(self._generation, member.number))
        self._announce()
        return None

    def _write_next(self) -> None:
        """Rank the members, and write what the next generation begins with."""
        plan = self._plan
        population = self._generation.population
        evaluations = {member.number: member.evaluations for member in self._members}
        failed = {member.number for member in self._members if member.end == "given up"}
        scored = scores([member.number for member in population.members], evaluations, failed)
        following = next_generation(population, scored, self._base, plan.loaded.seed, plan.genes)
        generation = Generation(
            population=following,
            starts={
                member.number: MemberStart(
                    step=newest_step(member.run), evaluations=len(member.all_evaluations)
                )
                for member in self._members
            },
            lineage=self._outcomes(evaluations, scored),
        )
        plan.folder.write(generation, lambda draft: self._write_networks(draft, following))
        self._generation = generation
        shown = ", ".join(f"{self._members[n - 1].name} {_shown(scored[n])}" for n in ranking(scored))
        log(f"generation {generation.number - 1} has ended: {shown}")

    def _outcomes(
        self, evaluations: Mapping[int, Sequence[float]], scored: Mapping[int, float]
    ) -> list[dict[str, Any]]:
        """Return a line of the lineage for each member, in their order; both arguments are by number."""
        population = self._generation.population
        order, best = ranking(scored), elites(scored, self._base.evolver_cem_best)
        return [
            {
                "generation": population.generation,
                "member": entry.number,
                "name": member.name,
                "origin": entry.origin,
                "parents": list(entry.parents),
                "genes": dict(entry.genes),
                "evaluations": finite_or_null(evaluations[entry.number]),
                "score": finite_or_null(scored[entry.number]),
                "rank": order.index(entry.number) + 1,
                "elite": entry.number in best,
                "end": member.end,
                "why": member.why,
                "step": newest_step(member.run),
            }
            for entry, member in zip(population.members, self._members, strict=True)
        ]

    def _write_networks(self, draft: Path, population: Population) -> None:
        """Write what each member begins with into ``draft``; an elite that goes on has nothing there."""
        copies = self._base.evolver_mode == "copy"
        checkpoints: dict[int, Path] = {}
        for member in population.members:
            if not member.has_new_networks:
                continue
            for number in member.parents:
                if number not in checkpoints:
                    checkpoints[number] = self._checkpoint(self._members[number - 1])
            names = (self._plan.loaded.seed, "networks", population.generation, member.number)
            write_start(
                draft / f"member_{member.number}",
                [checkpoints[number] for number in member.parents],
                partial(stream, *names),
                replay=self._members[member.parents[0] - 1].run / REPLAY if copies else None,
            )

    def _checkpoint(self, member: MemberRun) -> Path:
        """Return a member's newest checkpoint that is intact. Raises StorageError without one."""
        checkpoints = intact_checkpoints(
            member.run / "checkpoints", warn=lambda text: log(f"warning: {text}")
        )
        return next(checkpoints).path

    def _has_ended(self, member: MemberRun) -> bool:
        """Return whether the member's run has come to its limit."""
        base = self._base
        if 0 < base.max_step <= newest_step(member.run):
            return True
        return member.end == "complete" and len(member.evaluations) < base.evolver_cem_length

    def _report_winner(self) -> None:
        """Name the best member of the last generation, with the commands for its run."""
        best = min(self._generation.lineage, key=lambda record: int(record["rank"]))
        winner = self._members[int(best["member"]) - 1]
        log(f"the training is over; the best is {winner.name}, score {_gene_text(best['score'])}")
        for what, words in self._plan.commands(winner.name).items():
            log(f"  {what:9} {words}")

    def _announce(self) -> None:
        number, base = self._generation.number, self._base
        log(f"generation {number}: {base.evolver_cem_length} evaluations of every member")
        for member in self._generation.population.members:
            genes = ", ".join(
                f"{path.rpartition('.')[2]} {_gene_text(v)}" for path, v in member.genes.items()
            )
            of = f" of {', '.join(map(str, member.parents))}" if member.parents else ""
            log(f"  {self._members[member.number - 1].name}: {member.origin}{of}  {genes}".rstrip())

    def _rows(self) -> str:
        """Return node, state and evaluations of every member, a line each."""
        lines = []
        for member in self._members:
            learner, done = member.group.learner, member.evaluations
            last = f"last {_shown(done[-1])}" if done else ""
            lines.append(
                f"  {learner.node or '-'}  {member.name}  {member.end or learner.state}  "
                f"{len(done)} of {self._base.evolver_cem_length} evaluations  {last}".rstrip()
            )
        return "\n".join(lines)


def _gene_text(value: object) -> str:
    """Format the value of a gene for reading: a number briefly, anything else as YAML on one line."""
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if type(value) is int else inline(value)


def _shown(value: float) -> str:
    return short(value) if math.isfinite(value) else "no score"
