"""``python main_ds.py ENV evolver``: train a population on Ray, on this machine or on a cluster."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.locate import find_env
from algorithm.config.schema import NetConfig
from algorithm.config.yaml_io import write_yaml
from algorithm.core.errors import COMMON_BLOCK
from algorithm.run.signals import StopRequest
from algorithm.store.follow_up_commands import PAST_SUCCESS
from algorithm.store.lock import RunLock
from ds.cluster.command import connected, log
from ds.cluster.plan import ClusterPlan, CommandRoles, make_secrets
from ds.cluster.process import Crew, RestartRule
from ds.evolver.evolver import Evolver
from ds.evolver.generations import PopulationDir
from ds.evolver.lineage import LineageLog
from ds.evolver.members import MemberRoles, MemberRun
from ds.evolver.plan import PopulationPlan, new_plan, resumed_plan


def evolve(options: DistributedOptions) -> int:
    """Run the role ``evolver``; return its exit code. Raises ConfigError and other UserErrors."""
    cluster = options.cluster
    assert cluster is not None
    show_notices(options.train)
    folder = find_env(options.train.env)
    plan = resumed_plan(options, folder) if options.train.resume else new_plan(options, folder)
    if not plan.genes.distributions:
        log("warning: random_params names no key: only the networks evolve")
    if isinstance(plan.loaded.config.base_config.stop_at_return, float):
        log("warning: base_config.stop_at_return has no effect: members end with their generations")
    if cluster.ray is None:
        _check_memory(plan, options.train.device)
    with ExitStack() as stack:
        made = PopulationDir.open(plan.run.path) if plan.resumed else _make(plan, cluster.num_actors or 0)
        stack.enter_context(RunLock(made.lock, notice=log))
        if plan.resumed:
            made.go_on(write_yaml(dict(plan.loaded.raw)), plan.generation.number)
        ray, stop = stack.enter_context(connected(cluster.ray))
        crew = Crew(ray, log=log, rule=RestartRule())
        return asyncio.run(_train(crew, made, plan, options, stop))


async def _train(
    crew: Crew, made: PopulationDir, plan: PopulationPlan, options: DistributedOptions, stop: StopRequest
) -> int:
    members = [_member(crew, plan, options, number) for number in plan.generation.starts]
    return await Evolver(crew, members, made, plan, LineageLog(plan.run, log)).run(stop)


def _check_memory(plan: PopulationPlan, device: str) -> None:
    """Raise UsageError if the replays of all members do not fit into this machine together.

    Builds one environment and one agent, so that networks that cannot be built are an error of this command.
    """
    from algorithm.app.console.output import open_console  # torch is for local members only
    from algorithm.core.system.memory import free_memory
    from algorithm.replay.budget import MemoryBudget
    from algorithm.run.context import RunContext
    from algorithm.run.experience.faults import Faults

    if plan.loaded.config.base_config.kind.player:  # a player would be started for it
        return
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=True))
        context = RunContext(loaded=plan.loaded, device=device, faults=Faults(console), stack=stack)
        env = context.env("evaluate")
        budget = MemoryBudget(free_memory() // len(plan.generation.starts))
        context.fit(env.specs)
        context.agents(env.specs, plan.loaded.env_dir, memory=budget)


def _make(plan: PopulationPlan, actors: int) -> PopulationDir:
    """Make the folder of a new population, with its first generation."""
    facts = {
        "seed": plan.loaded.seed,
        "num_actors": actors,
        "mode": plan.loaded.config.base_config.evolver_mode,
    }
    folder = PopulationDir.create(plan.run.path, write_yaml(dict(plan.loaded.raw)), facts)
    folder.write(plan.generation, lambda draft: None)
    return folder


def _member(crew: Crew, plan: PopulationPlan, options: DistributedOptions, number: int) -> MemberRun:
    cluster, config = options.cluster, plan.loaded.config
    assert cluster is not None
    name = f"{plan.run.name}_{number}"
    first = [PAST_SUCCESS[1]]  # members end with their generations
    if config.base_config.evolver_mode == "cem":  # the mean of networks that began apart is no network
        first.append(f"{COMMON_BLOCK}.network_seed={plan.loaded.seed}")
    seeded = replace(options, train=replace(options.train, seed=plan.loaded.seed + number - 1))
    roles = CommandRoles(options=seeded, name=name, first=tuple(first))
    members = MemberRoles(roles, plan.part(plan.generation, number), alone=not cluster.num_actors)
    own_secrets = config.net_config.secrets != NetConfig().secrets
    local = cluster.ray is None
    described = ClusterPlan(
        label=plan.run.env,
        name=name,
        argument=options.train.env,
        models=options.train.directory,
        folder=Path.cwd(),
        roles=members,
        actors=cluster.num_actors or 0,
        learner_cpus=0.0 if local else cluster.learner_cpus,
        actor_cpus=0.0 if local else cluster.actor_cpus,
        adopt=True,
        secrets=None if own_secrets or not cluster.num_actors else make_secrets,
        prefix=f"{name} ",
        learners=len(plan.generation.starts),
    )
    return MemberRun(number, crew, described, members)
