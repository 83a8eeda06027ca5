"""Training on a Ray cluster: one learner and a number of actors, each kept running."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from algorithm.core.errors import UsageError
from algorithm.run.signals import StopRequest
from ds.cluster.group import LearnerGroup
from ds.cluster.member import Board
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import TICK_S, Crew, ManagedProcess

NAMESPACE = "sac"


class Cluster:
    """Training according to ``plan``, until its learner has ended.

    Raises UsageError if another command trains that run on this cluster.
    """

    def __init__(self, crew: Crew, plan: ClusterPlan) -> None:
        self._plan = plan
        self._log = crew.log
        self._crew = crew
        self._number = plan.options.cluster.num_actors
        self._board = _make_board(crew, plan)
        self._group = LearnerGroup(crew, plan)

    async def run(self, stop: StopRequest) -> int:
        """Run until the training ends, cannot continue, or ``stop`` is set; return the exit code."""
        code = None
        self._group.start()
        while code is None and not stop:
            code = await self._tick()
            await asyncio.sleep(TICK_S)
        if code is None:
            self._log(stop.text)
        await self._group.end()
        if code is None:
            self._log("everything has stopped")
            code = stop.exit_code
        self._crew.ray.kill(self._board)
        return code

    async def _tick(self) -> int | None:
        group = self._group
        asked = await self._board.asked.remote()
        if asked not in (None, self._number):
            self._log(f"{asked} actors from now on, {self._number} before")
            self._number = asked
        group.scale(self._number)
        self._crew.show(lambda: status(group.learner, group.actors, self._number))
        ended = group.over()
        if ended is None:
            return None
        if ended.code == 0:
            self._log(f"the training is over; its run is {self._plan.run} on {ended.node}")
        else:
            self._log(f"error: {group.explain_end(ended)}")
        return ended.code


def status(learner: ManagedProcess, actors: Sequence[ManagedProcess], target: int) -> str:
    """Return a line with the number of actors that run, the states of all, and the restarts."""
    states = Counter(actor.state for actor in actors)
    waiting = [f"{count} {state}" for state, count in states.most_common() if state != "running"]
    restarts = learner.restarts + sum(actor.restarts for actor in actors)
    parts = [f"{states['running']} of {target} actors run", *waiting, f"learner: {learner.state}"]
    return " · ".join([*parts, f"{restarts} restarts"])


def board_name(label: str, name: str) -> str:
    """Return Ray's name for the board of a run."""
    return f"board/{label}/{name}"


def _make_board(crew: Crew, plan: ClusterPlan) -> Any:  # noqa: ANN401 - a handle of Ray
    """Make the board on this node. Raises UsageError if the run has one."""
    ray = crew.ray
    node = ray.get_runtime_context().get_node_id()
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    options = {"name": board_name(plan.label, plan.name), "num_cpus": 0, "scheduling_strategy": here}
    try:
        return ray.remote(Board).options(max_restarts=-1, max_task_retries=-1, **options).remote()
    except ValueError as error:
        raise UsageError(
            f"{plan.label} is already being trained under the name {plan.name!r} on this cluster",
            where="-n",
            why=str(error),
            fix="choose another name, or change that one's number of actors with --scale",
        ) from error
