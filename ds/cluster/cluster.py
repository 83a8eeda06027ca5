"""Training on a Ray cluster: one learner and a number of actors, each kept running."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

from algorithm.core.errors import UsageError
from algorithm.run.signals import StopRequest
from ds.cluster.group import TICK_S, LearnerGroup, end, save_and_end
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import Crew, ManagedProcess, RestartRule

NAMESPACE, BOARDS = "sac", "board/"
"""Prefix of the names of boards in Ray."""

_SINGLE = 20
"""Number of processes above which the actors of a node share a line."""


class Cluster:
    """Training according to ``plan``, until its learner has ended.

    ray:   the module, connected.
    log:   prints a line.
    Raises UsageError if another command trains that run on this cluster.
    """

    def __init__(
        self,
        ray: ModuleType,
        plan: ClusterPlan,
        *,
        log: Callable[[str], None],
        rule: RestartRule,
    ) -> None:
        self._plan = plan
        self._log = log
        self._number = plan.actors
        try:
            self._crew = Crew(ray, plan.actors, board_name(plan.label, plan.name), log=log, rule=rule)
        except ValueError as error:
            raise UsageError(
                f"{plan.label} is already being trained under the name {plan.name!r} on this cluster",
                where="-n",
                why=str(error),
                fix="choose another name, or change that one's number of actors with --scale",
            ) from error
        self._group = LearnerGroup(self._crew, plan)

    def run(self, stop: StopRequest) -> int:
        """Run until the training ends, cannot continue, or ``stop`` is set; return the exit code."""
        code = None
        while code is None and not stop:
            code = self._tick()
            time.sleep(TICK_S)
        if code is None:
            self._log(stop.text)
            save_and_end(self._crew, [self._group])
            self._log("everything has stopped")
            code = stop.exit_code
        else:
            end(self._crew, [self._group], wait=code == 0)
        self._crew.close()
        return code

    def _tick(self) -> int | None:
        group = self._group
        target = self._crew.step(self._number)
        if target != self._number:
            self._log(f"{target} actors from now on, {self._number} before")
            self._number = target
        group.step(self._number)
        self._crew.show(lambda: rows(group.learner, group.actors, group.endpoint, self._number))
        if group.error is not None:
            self._log(f"error: {group.error}")
            return group.error.exit_code
        ended = group.over()
        if ended is None:
            return None
        assert ended.code is not None
        if ended.code == 0:
            self._log(f"the training is over; its run is {self._plan.run} on {ended.node}")
        else:
            self._log(f"error: {group.explain_end(ended)}")
        return ended.code


def rows(
    learner: ManagedProcess, actors: Sequence[ManagedProcess], endpoint: tuple[str, int] | None, target: int
) -> list[str]:
    """Return the lines: node, role, state, restarts; the head counts running actors."""
    running = sum(actor.state == "running" for actor in actors)
    cells = [("node", "role", "state", "restarts")]
    state = "listening" if endpoint else learner.state
    cells.append((learner.node or "-", "learner", state, str(learner.restarts)))
    if len(actors) <= _SINGLE:
        cells += [(a.node or "-", a.name, a.state, str(a.restarts)) for a in actors]
    else:
        cells += [_together(node, actors) for node in sorted({actor.node for actor in actors})]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return [f"{running} of {target} actors run", *(f"  {line}".rstrip() for line in lines)]


def _together(node: str, actors: Sequence[ManagedProcess]) -> tuple[str, str, str, str]:
    here = [actor for actor in actors if actor.node == node]
    states = Counter(actor.state for actor in here)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return node or "-", f"{len(here)} actors", counts, str(sum(actor.restarts for actor in here))


def board_name(label: str, name: str) -> str:
    """Return Ray's name for the board of a run."""
    return f"{BOARDS}{label}/{name}"
