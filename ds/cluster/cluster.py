"""Training on a Ray cluster: one learner and a number of actors, each kept running."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

from algorithm.train.signals import StopRequest
from ds.cluster.group import TICK_S, LearnerGroup, end, save_and_end
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import ManagedProcess, RestartRule
from ds.cluster.target_size import TargetSizeWatcher


class Cluster:
    """Training according to ``plan``, until its learner has ended.

    ray: the module, connected.
    say: prints a line.
    Raises UsageError if another command trains that run on this cluster.
    """

    def __init__(
        self,
        ray: ModuleType,
        plan: ClusterPlan,
        *,
        say: Callable[[str], None],
        rule: RestartRule,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._say, self._clock = plan, say, clock
        self._target = TargetSizeWatcher(ray, plan.label, plan.name, plan.actors, say)
        self._group = LearnerGroup(ray, plan, say=say, rule=rule, clock=clock)
        self._table = StatusTable(say)

    def run(self, stop: StopRequest) -> int:
        """Run until the training ends, cannot continue, or ``stop`` is set; return the exit code."""
        code = None
        while code is None and not stop:
            code = self._tick()
            time.sleep(TICK_S)
        if code is None:
            self._say(stop.text)
            save_and_end([self._group], self._clock)
            self._say("everything has ended")
            code = stop.exit_code
        else:
            end([self._group], self._clock, by_themselves=code == 0)
        self._target.close()
        return code

    def _tick(self) -> int | None:
        now, group = self._clock(), self._group
        self._target.step(now)
        group.step(now, self._target.number)
        self._table.show(now, group.learner, group.actors, group.endpoint, self._target.number)
        if group.error is not None:
            self._say(f"error: {group.error}")
            return group.error.exit_code
        ended = group.over()
        if ended is None:
            return None
        assert ended.code is not None
        if ended.code == 0:
            self._say(f"the training is over; its run is {self._plan.run} on {ended.node}")
        else:
            self._say(f"error: {group.explain_end(ended)}")
        return ended.code


_EVERY_S = 10.0
_SINGLE = 20
"""Number of processes above which the actors of a node share a line."""


class StatusTable:
    """Table of all processes, shown every ten seconds if it has changed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = 0.0
        self._shown: list[str] = []

    def show(
        self,
        now: float,
        learner: ManagedProcess,
        actors: Sequence[ManagedProcess],
        endpoint: tuple[str, int] | None,
        target: int,
    ) -> None:
        """Show the table if it is due. now: seconds."""
        if now < self._next:
            return
        self._next = now + _EVERY_S
        lines = rows(learner, actors, endpoint, target)
        if lines != self._shown:
            self._shown = lines
            for line in lines:
                self._say(line)


def rows(
    learner: ManagedProcess, actors: Sequence[ManagedProcess], endpoint: tuple[str, int] | None, target: int
) -> list[str]:
    """Return the lines: node, role, state, restarts; the head counts running actors."""
    running = sum(actor.state == "running" for actor in actors)
    cells = [("node", "role", "state", "restarts")]
    state = "listening" if endpoint else _state(learner)
    cells.append((learner.node or "-", "learner", state, str(learner.restarts)))
    if len(actors) <= _SINGLE:
        cells += [(a.node or "-", a.name, _state(a), str(a.restarts)) for a in actors]
    else:
        cells += [_together(node, actors) for node in sorted({actor.node for actor in actors})]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return [f"{running} of {target} actors run", *(f"  {line}".rstrip() for line in lines)]


def _together(node: str, actors: Sequence[ManagedProcess]) -> tuple[str, str, str, str]:
    here = [actor for actor in actors if actor.node == node]
    states = Counter(_state(actor) for actor in here)
    said = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return node or "-", f"{len(here)} actors", said, str(sum(actor.restarts for actor in here))


def _state(process: ManagedProcess) -> str:
    return "waits for the learner" if process.state == "ready" else process.state_text
