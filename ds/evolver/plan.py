"""Plan of a population: what command line, configuration and an earlier command make of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from algorithm.app.cli.ds import DistributedOptions
from algorithm.config.loader import LoadedConfig, load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, NetConfig
from algorithm.core.errors import COMMON_BLOCK, StorageError, UsageError
from algorithm.core.program import as_typed, program
from algorithm.core.wording import listed
from algorithm.store.follow_up_commands import PAST_SUCCESS
from algorithm.store.logs.upload import require_upload
from algorithm.store.names import POPULATION, directory_flags, expand_name
from algorithm.store.rundir import RunDir
from ds.cluster.process import log
from ds.evolver.generations import Generation, MemberStart, PopulationDir
from ds.evolver.genes import Genes
from ds.evolver.members import GenerationPart, MemberPlan
from ds.evolver.population import first_generation


@dataclass(frozen=True, kw_only=True)
class PopulationPlan:
    """A population as command line and configuration describe it.

    loaded:     the configuration of all members, whose draws are not used
    run:        folder of the population
    generation: to begin or go on with
    """

    options: DistributedOptions
    loaded: LoadedConfig
    genes: Genes
    run: RunDir
    generation: Generation
    resumed: bool

    @property
    def folder(self) -> PopulationDir:
        """Files of the population."""
        return PopulationDir(self.run.path)

    def member(self, number: int) -> MemberPlan:
        """Return the plan of member ``number``, which begins with its part of the generation."""
        options, config = self.options, self.loaded.config
        first = [PAST_SUCCESS[1]]  # members end with their generations
        if config.base_config.evolver_mode == "cem":  # the mean of networks that began apart is no network
            first.append(f"{COMMON_BLOCK}.network_seed={self.loaded.seed}")
        return MemberPlan(
            options=replace(
                options,
                learner_port=None,  # members on one machine cannot share one
                train=replace(options.train, seed=self.loaded.seed + number - 1),
            ),
            label=self.run.env,
            name=f"{self.run.name}_{number}",
            folder=Path.cwd(),
            makes_secrets=config.net_config.secrets == NetConfig().secrets,
            number=number,
            first=tuple(first),
            part=self.part(self.generation, number),
        )

    def part(self, generation: Generation, number: int) -> GenerationPart:
        """Return the part of member ``number`` in ``generation``."""
        genes = generation.population.members[number - 1].genes
        start = generation.starts[number]
        return GenerationPart(
            overrides=tuple(self.genes.overrides(genes)),
            networks=self.folder.networks(generation.number, number),
            start=start,
            evaluations=start.evaluations + self.loaded.config.base_config.evolver_cem_length,
        )

    def commands(self, name: str) -> dict[str, str]:
        """Return command lines for a member's run by their purpose."""
        run = RunDir(self.run.env, name, self.run.path.parent / name, self.run.argument)
        return {
            "evaluate": run.command("-n", name, "--eval=10"),
            "watch": run.command("-n", name, "--watch"),
            "report": run.command("--report", self.run.name),
        }


def new_plan(options: DistributedOptions, folder: EnvFolder) -> PopulationPlan:
    """Return the plan of a new population; nothing is written."""
    train, cluster = options.train, options.cluster
    loaded = load_config(
        train.env,
        train.config,
        train.overrides,
        _key_flags(options),
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
    generation = Generation(
        population=first_generation(loaded.seed, cluster.num_learners, genes),
        starts={number: MemberStart(step=-1, evaluations=0) for number in numbers},
        lineage=(),
    )
    run = RunDir(folder.label, name, parent / name, train.env)
    return PopulationPlan(
        options=options, loaded=loaded, genes=genes, run=run, generation=generation, resumed=False
    )


def resumed_plan(options: DistributedOptions, folder: EnvFolder) -> PopulationPlan:
    """Return the plan of a population that goes on with its last complete generation."""
    train = options.train
    parent = train.directory.absolute() / folder.label
    name = train.name or _newest(parent, train.env, train.directory)
    run = RunDir(folder.label, name, parent / name, train.env)
    population = PopulationDir(run.path)
    facts = population.facts()
    seed = int(facts["seed"])
    if train.seed not in (None, seed):
        raise UsageError(
            f"the population's seed is {seed}, not {train.seed}",
            where="--seed",
            why="everything random follows from it",
            fix="leave --seed out, or start another population",
        )
    loaded = load_config_file(
        population.config, train.overrides, _key_flags(options), seed, env=folder, require_runnable=True
    )
    _check(loaded)
    generation = population.newest(log)
    if generation is None:
        raise StorageError(
            "there is nothing to resume from", where=population.path, why="it has no intact generation"
        )
    plan = PopulationPlan(
        options=options, loaded=loaded, genes=Genes(loaded), run=run, generation=generation, resumed=True
    )
    _check_unchanged(facts, plan)
    _refuse_if_done(plan)
    return plan


def _check_unchanged(facts: Mapping[str, Any], plan: PopulationPlan) -> None:
    """Raise UsageError where a population would go on as another one; ``facts``: of its beginning."""
    cluster, members = plan.options.cluster, plan.generation.population.members
    size, before, now = len(members), list(members[0].genes), list(plan.genes.distributions)
    mode, actors = facts["mode"], facts["num_actors"]
    refusals = (
        (
            size != cluster.num_learners,
            f"the population has {size} members, not {cluster.num_learners}",
            "--num_learners",
            "their number cannot change",
            f"--num_learners {size}",
        ),
        (
            bool(actors) != bool(cluster.num_actors),
            f"the population was started with {actors} actors for each member",
            "--num_actors",
            "a member of one process cannot continue as a learner, nor vice versa",
            f"--num_actors {actors}, or another number above 0" if actors else "leave --num_actors out",
        ),
        (
            mode != plan.loaded.config.base_config.evolver_mode,
            f"the population was started with evolver_mode {mode}",
            "base_config.evolver_mode",
            "its members share networks in one mode, and differ in the other",
            f"-o base_config.evolver_mode={mode}, or start another population",
        ),
        (
            set(before) != set(now),
            f"the settings that evolve are {listed(before) or 'none'}, not {listed(now) or 'none'}",
            f"{COMMON_BLOCK}.random_params",
            "every member has values for the former, and none for the latter",
            "leave the keys as they were (their bounds may change), or start another population",
        ),
    )
    _refuse(refusals)


def _refuse_if_done(plan: PopulationPlan) -> None:
    """Raise UsageError if members have come to the limit of their steps, with which a population ends."""
    limit, run = plan.loaded.config.base_config.max_step, plan.run
    steps = [start.step for start in plan.generation.starts.values()]
    if 0 < limit <= max(steps):
        words = ["-n", run.name, f"--num_learners={len(steps)}", "--resume", f"--max_step={2 * limit}"]
        longer = run.command(*words, role="evolver")
        raise UsageError(
            "nothing is left to do",
            where=run.path,
            why=f"base_config.max_step is {limit:,}, and members have reached it",
            fix=f"{longer}    (train longer)",
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
            why="none was started there",
            fix=f"start one: leave --resume out, or train alone: {alone}",
        )
    return begun[-1].parent.name


def _key_flags(options: DistributedOptions) -> dict[str, object]:
    """Return the command line's flags that set keys; without actors, those of ``net_config`` are left out."""
    actors = options.cluster.num_actors
    return {k: v for k, v in options.flags.items() if actors or not k.startswith("net_config")}


def _check(loaded: LoadedConfig) -> None:
    """Raise UsageError for a configuration that no population can be trained with."""
    require_upload(loaded.config.wandb_config)
    base, source = loaded.config.base_config, loaded.source
    refusals = (
        (
            not base.evolver_enabled,
            "evolver_enabled is false",
            f"{source}: base_config.evolver_enabled",
            "the configuration forbids a population",
            as_typed("-o base_config.evolver_enabled=true, or train alone: python main.py"),
        ),
        (
            base.evolver_cem_min_length > base.evolver_cem_length,
            f"a generation ends with {base.evolver_cem_length} evaluations, but needs at least "
            f"{base.evolver_cem_min_length}",
            f"{source}: base_config.evolver_cem_length and evolver_cem_min_length",
            "the first ends a generation, the second is enough after evolver_cem_time",
            f"-o base_config.evolver_cem_min_length={base.evolver_cem_length}, or a longer generation",
        ),
        (
            not loaded.config.evaluates_on_the_way,
            "a population needs evaluations",
            f"{source}: eval_config.per_step and episodes",
            "they are switched off, and members are ranked by them",
            "-o eval_config.per_step=2000 -o eval_config.episodes=10",
        ),
        (
            base.in_editor,
            "the Unity Editor is one player",
            "base_config.unity_args.editor",
            "every member needs its own players",
            "leave --editor out and set base_config.unity_args.build_path",
        ),
    )
    _refuse(refusals)


def _refuse(refusals: Iterable[tuple[bool, str, str, str, str]]) -> None:
    """Raise UsageError for the first that holds: a condition, what, where, why, and the fix."""
    for holds, what, where, why, fix in refusals:
        if holds:
            raise UsageError(what, where=where, why=why, fix=fix)
