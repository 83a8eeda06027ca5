"""Training on a Ray cluster: one learner and a number of actors, each kept running."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from algorithm.run.signals import StopRequest
from ds.cluster.group import LearnerGroup
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import TICK_S, Crew, ManagedProcess


async def train_together(crew: Crew, plan: ClusterPlan, stop: StopRequest) -> int:
    """Train according to a plan until the learner ends, or ``stop`` is set; return the exit code."""
    group = LearnerGroup(crew, plan)
    group.start()
    while (ended := group.over()) is None and not stop:
        crew.show(lambda: status(group.learner, group.actors))
        await asyncio.sleep(TICK_S)
    if ended is None:
        crew.log(stop.text)
    elif ended.code == 0:
        crew.log(f"the training is over; its run is {plan.run} on {ended.node}")
    else:
        crew.log(f"error: {group.explain_end(ended)}")
    code = None if ended is None else ended.code
    await group.end()
    if code is None:
        crew.log("everything has stopped")
        code = stop.exit_code
    return code


def status(learner: ManagedProcess, actors: Sequence[ManagedProcess]) -> str:
    """Return a line with the number of actors that run, the states of all, and the restarts."""
    states = Counter(actor.state for actor in actors)
    waiting = [f"{count} {state}" for state, count in states.most_common() if state != "running"]
    restarts = learner.restarts + sum(actor.restarts for actor in actors)
    parts = [f"{states['running']} of {len(actors)} actors run", *waiting, f"learner: {learner.state}"]
    return " · ".join([*parts, f"{restarts} restarts"])
