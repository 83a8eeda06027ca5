"""``python main_ds.py ENV evolver``: train a population on Ray, on this machine or on a cluster."""

from __future__ import annotations

import shlex
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from algorithm.app.cli.ds import ClusterOptions, DistributedOptions
from algorithm.app.command import show_notices
from algorithm.config.loader import LoadedConfig, load_config, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, NetConfig
from algorithm.config.yaml_io import write_yaml
from algorithm.core.errors import RUN_BLOCK, StorageError, UsageError
from algorithm.core.program import as_typed, program
from algorithm.core.wording import listed
from algorithm.runs.lock import RunLock
from algorithm.runs.logs.wandb_sink import require_wandb
from algorithm.runs.names import POPULATION, directory_flags, expand_name
from algorithm.runs.offers import PAST_SUCCESS
from algorithm.runs.rundir import RunDir
from ds.cluster.command import connected, say
from ds.cluster.plan import ClusterPlan, commands_from_args, make_secrets, python_arguments
from ds.cluster.restarts import RestartRule
from ds.evolver.evolver import Evolver, Rules
from ds.evolver.generations import Generation, MemberStart, PopulationDir
from ds.evolver.genes import Genes
from ds.evolver.lineage import LineageLog
from ds.evolver.members import MemberCommands, MemberRun
from ds.evolver.population import Population, first_generation


@dataclass(frozen=True, kw_only=True)
class PopulationPlan:
    """A population as command line and configuration describe it.

    loaded:     the configuration, whose draws are not used
    path:       folder of the population, absolute
    generation: to begin or go on with
    """

    loaded: LoadedConfig
    genes: Genes
    name: str
    path: Path
    generation: Generation
    resumed: bool

    def rules(self, argument: str, label: str) -> Rules:
        """Return its rules. argument: what the user types for the environment; label: its own."""

        def commands(name: str) -> dict[str, str]:
            run = RunDir(label, name, self.path.parent / name, argument or label)
            return {
                "evaluate": run.command("-n", name, "--eval=10"),
                "watch": run.command("-n", name, "--watch"),
                "report": run.command("--report", self.name),
            }

        return Rules(
            config=self.loaded.config,
            genes=self.genes,
            seed=self.loaded.seed,
            shared=self.genes.shared,
            commands=commands,
        )


def evolve(options: DistributedOptions) -> int:
    """Run the role ``evolver``; return its exit code. Raises ConfigError and other UserErrors."""
    cluster = options.cluster
    assert cluster is not None
    show_notices(options.train)
    folder = find_env(options.train.env)
    plan = _resumed(options, folder) if options.train.resume else _new(options, folder)
    if not plan.genes.distributions:
        say("warning: random_params names no key: only the networks evolve")
    if isinstance(plan.loaded.config.base_config.stop_at_return, float):
        say("warning: base_config.stop_at_return has no effect: members end with their generations")
    if cluster.ray is None:
        _check_memory(plan, options.train.device)
    with ExitStack() as stack:
        made = _make(plan, options) if not plan.resumed else PopulationDir.open(plan.path)
        stack.enter_context(RunLock(made.lock, notice=say))
        if plan.resumed:
            made.go_on(write_yaml(dict(plan.loaded.raw)), plan.generation.number)
        ray, stop = stack.enter_context(connected(cluster.ray))
        rules = plan.rules(options.train.env, folder.label)
        members = [
            _member(ray, plan, made, options, folder.label, number) for number in plan.generation.starts
        ]
        log = LineageLog(made, folder.label, options.train.env, say)
        return Evolver(members, made, plan.generation, rules, log, say=say).run(stop)


def _new(options: DistributedOptions, folder: EnvFolder) -> PopulationPlan:
    """Return the plan of a new population; nothing is written."""
    train, cluster = options.train, options.cluster
    assert cluster is not None
    assert cluster.num_learners is not None
    loaded = load_config(
        train.env,
        train.config,
        train.overrides,
        _flags(options, cluster),
        train.seed,
        defaults=DISTRIBUTED_DEFAULTS if cluster.num_actors else {},
        require_runnable=True,
    )
    _check(loaded)
    parent = train.directory.absolute() / folder.label
    name = expand_name(loaded.config.base_config.name, parent)
    numbers = range(1, cluster.num_learners + 1)
    for each in (name, *(f"{name}_{number}" for number in numbers)):
        RunDir.check_free(folder.label, each, models=train.directory, argument=train.env)
    genes = Genes(loaded)
    population = first_generation(loaded.seed, cluster.num_learners, genes)
    starts = {number: MemberStart(step=-1, evaluations=0) for number in numbers}
    generation = Generation(number=0, population=population.state(), starts=starts, lineage=())
    return PopulationPlan(
        loaded=loaded, genes=genes, name=name, path=parent / name, generation=generation, resumed=False
    )


def _resumed(options: DistributedOptions, folder: EnvFolder) -> PopulationPlan:
    """Return the plan of a population that goes on with its last complete generation."""
    train, cluster = options.train, options.cluster
    assert cluster is not None
    parent = train.directory.absolute() / folder.label
    made = PopulationDir.open(parent / (train.name or _newest(parent, train.env, train.directory)))
    seed = int(made.facts()["seed"])
    if train.seed not in (None, seed):
        raise UsageError(
            f"the population's seed is {seed}, not {train.seed}",
            where="--seed",
            why="everything random follows from it",
            fix="leave --seed out, or begin another population",
        )
    loaded = load_config_file(
        made.config, train.overrides, _flags(options, cluster), seed, env=folder, require_runnable=True
    )
    _check(loaded)
    generation = made.newest(say)
    if generation is None:
        raise StorageError(
            "there is nothing to go on from", where=made.path, why="it has no generation that is intact"
        )
    genes = Genes(loaded)
    _check_unchanged(made, generation, loaded, genes, cluster)
    run = RunDir(folder.label, made.path.name, made.path, train.env)
    _refuse_if_done(generation, loaded, run)
    return PopulationPlan(
        loaded=loaded,
        genes=genes,
        name=made.path.name,
        path=made.path,
        generation=generation,
        resumed=True,
    )


def _check_unchanged(
    made: PopulationDir, generation: Generation, loaded: LoadedConfig, genes: Genes, cluster: ClusterOptions
) -> None:
    """Raise UsageError where a population would go on as another one."""
    facts = made.facts()
    size = len(generation.starts)
    if size != cluster.num_learners:
        raise UsageError(
            f"the population has {size} members, not {cluster.num_learners}",
            where="--num_learners",
            why="their number stays as it was at the start",
            fix=f"--num_learners {size}",
        )
    if bool(facts["num_actors"]) != bool(cluster.num_actors):
        raise UsageError(
            f"the population was begun with {facts['num_actors']} actors for each member",
            where="--num_actors",
            why="a member of one process cannot go on as a learner, nor the other way round",
            fix=f"--num_actors {facts['num_actors']}, or another number above 0"
            if facts["num_actors"]
            else "leave --num_actors out",
        )
    if facts["mode"] != loaded.config.base_config.evolver_mode:
        raise UsageError(
            f"the population was begun with evolver_mode {facts['mode']}",
            where="base_config.evolver_mode",
            why="the networks of its members are alike in one mode, and apart in the other",
            fix=f"-o base_config.evolver_mode={facts['mode']}, or begin another population",
        )
    before = list(Population.of(generation.population).members[0].genes)
    if set(before) != set(genes.distributions):
        raise UsageError(
            f"the settings that evolve are {listed(before) or 'none'}, not "
            f"{listed(list(genes.distributions)) or 'none'}",
            where=f"{RUN_BLOCK}.random_params",
            why="every member has values of the ones, and none of the others",
            fix="leave the keys as they were (their bounds may change), or begin another population",
        )


def _refuse_if_done(generation: Generation, loaded: LoadedConfig, run: RunDir) -> None:
    """Raise UsageError if members have come to the limit of their steps, with which a population ends."""
    limit, steps = loaded.config.base_config.max_step, [one.step for one in generation.starts.values()]
    if 0 < limit <= max(steps):
        words = ["-n", run.name, f"--num_learners={len(steps)}", "--resume", f"--max_step={2 * limit}"]
        longer = run.command(*words, role="evolver")
        raise UsageError(
            "nothing is left to do",
            where=run.path,
            why=f"base_config.max_step is {limit:,}, and members have come to it",
            fix=f"{longer}    (train on)",
        )


def _newest(parent: Path, argument: str, models: Path) -> str:
    """Return the name of the population that was begun last."""
    begun = sorted(
        parent.glob(f"*/{POPULATION}"), key=lambda file: (file.stat().st_mtime_ns, file.parent.name)
    )
    if not begun:
        alone = shlex.join([*program(), argument, *directory_flags(models)])
        raise UsageError(
            "there is no population yet",
            where=parent,
            why="none was begun there",
            fix=f"begin one: leave --resume out, or train alone: {alone}",
        )
    return begun[-1].parent.name


def _flags(options: DistributedOptions, cluster: ClusterOptions) -> dict[str, object]:
    """Return the flags that stand for a key; those of the network only where there are learners."""
    flags = dict(options.flags)
    return flags if cluster.num_actors else {k: v for k, v in flags.items() if not k.startswith("net_config")}


def _check(loaded: LoadedConfig) -> None:
    """Raise UsageError for a configuration that no population can be trained with."""
    require_wandb(loaded.config.wandb_config)
    base = loaded.config.base_config
    if not base.evolver_enabled:
        raise UsageError(
            "evolver_enabled is false",
            where=f"{loaded.source}: base_config.evolver_enabled",
            why="the configuration forbids a population",
            fix=as_typed("-o base_config.evolver_enabled=true, or train alone: python main.py"),
        )
    if base.evolver_cem_min_length > base.evolver_cem_length:
        raise UsageError(
            f"a generation ends with {base.evolver_cem_length} evaluations, but needs at least "
            f"{base.evolver_cem_min_length}",
            where=f"{loaded.source}: base_config.evolver_cem_length and evolver_cem_min_length",
            why="the first ends a generation, the second is what suffices once evolver_cem_time is over",
            fix=f"-o base_config.evolver_cem_min_length={base.evolver_cem_length}, or a longer generation",
        )
    if loaded.config.eval_config.per_step <= 0:
        raise UsageError(
            "a population needs evaluations",
            where=f"{loaded.source}: eval_config.per_step",
            why="it is switched off, and members are ranked by them",
            fix="-o eval_config.per_step=2000",
        )
    if base.in_editor:
        raise UsageError(
            "the Unity Editor is one player",
            where="base_config.unity_args.editor",
            why="every member has players of its own",
            fix="leave --editor out and set base_config.unity_args.build_path",
        )


def _check_memory(plan: PopulationPlan, device: str) -> None:
    """Raise UsageError if the replays of all members do not fit into this machine together.

    Builds one environment and one agent, so that networks that cannot be built are an error of this command.
    """
    from algorithm.agents.networks import pick_device  # torch is for local members only
    from algorithm.app.console.output import open_console
    from algorithm.core.system.memory import free_memory
    from algorithm.experience.faults import Faults
    from algorithm.replay.budget import MemoryBudget
    from algorithm.train.assembly import Assembly

    if plan.loaded.config.base_config.kind.player:  # a player would be started for it
        return
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=True))
        assembly = Assembly(
            loaded=plan.loaded, device=pick_device(device), faults=Faults(console), stack=stack
        )
        env = assembly.env("evaluate")
        budget = MemoryBudget(free_memory() // len(plan.generation.starts))
        assembly.agents(env.specs, plan.loaded.env_dir, memory=budget)


def _make(plan: PopulationPlan, options: DistributedOptions) -> PopulationDir:
    """Make the folder of a new population, with its first generation."""
    assert options.cluster is not None
    facts = {
        "seed": plan.loaded.seed,
        "num_actors": options.cluster.num_actors or 0,
        "mode": plan.loaded.config.base_config.evolver_mode,
    }
    folder = PopulationDir.create(plan.path, write_yaml(dict(plan.loaded.raw)), facts)
    folder.write(plan.generation, lambda draft: None)
    return folder


def _member(
    ray: ModuleType,
    plan: PopulationPlan,
    folder: PopulationDir,
    options: DistributedOptions,
    label: str,
    number: int,
) -> MemberRun:
    cluster, config = options.cluster, plan.loaded.config
    assert cluster is not None
    name = f"{plan.name}_{number}"
    main = commands_from_args(options, name)
    flags = [f"--seed={plan.loaded.seed + number - 1}", *PAST_SUCCESS]  # members end with their generations
    if config.base_config.evolver_mode == "cem":  # the mean of networks that began apart is no network
        flags += ["-o", f"{RUN_BLOCK}.network_seed={plan.loaded.seed}"]
    main = replace(main, learner_flags=(*main.learner_flags, *flags))
    own_secrets = config.net_config.secrets != NetConfig().secrets
    local = cluster.ray is None
    script = None if cluster.num_actors else python_arguments("main.py", "asac")
    commands = MemberCommands(
        main, script, plan.rules(options.train.env, label).part(plan.generation, folder, number)
    )
    described = ClusterPlan(
        label=label,
        name=name,
        argument=options.train.env,
        models=options.train.directory,
        folder=Path.cwd(),
        commands=commands,
        actors=cluster.num_actors or 0,
        learner_cpus=0.0 if local else cluster.learner_cpus,
        actor_cpus=0.0 if local else cluster.actor_cpus,
        found=True,
        secrets=None if own_secrets else make_secrets,
        prefix=f"{name} ",
        learners=len(plan.generation.starts),
    )
    return MemberRun(number, ray, described, commands, say=say, rule=RestartRule(), clock=time.monotonic)
