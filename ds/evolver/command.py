"""``python main_ds.py ENV evolver``: train a population on Ray, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from types import ModuleType

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.locate import find_env
from algorithm.config.yaml_io import write_yaml
from algorithm.run.signals import StopRequest
from algorithm.store.files import write_text
from algorithm.store.lock import RunLock
from ds.cluster.command import connected
from ds.cluster.process import log
from ds.evolver.evolver import Evolver
from ds.evolver.members import MemberRun
from ds.evolver.plan import PopulationPlan, new_plan, resumed_plan


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
        return asyncio.run(_train(plan, ray, stop))


async def _train(plan: PopulationPlan, ray: ModuleType, stop: StopRequest) -> int:
    members = [MemberRun(ray, plan.member(number)) for number in plan.generation.starts]
    return await Evolver(members, plan).run(stop)
