"""``--dry_run``: builds everything that a training would build and shows its cost. Writes nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psutil

from algorithm.agents.networks import pick_device
from algorithm.agents.roles import Agent
from algorithm.app.check.commands import command
from algorithm.app.check.cost import Plan, Sizes, Speed, measure
from algorithm.app.cli.train import TrainOptions, notices
from algorithm.app.console.live import clock_time
from algorithm.app.console.output import open_console
from algorithm.app.summaries import start_screen
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import UsageError
from algorithm.core.system.memory import free_memory
from algorithm.core.wording import Rows
from algorithm.env.base import VecEnv
from algorithm.experience.faults import Faults
from algorithm.experience.non_finite import Stop
from algorithm.replay.budget import format_bytes
from algorithm.runs.files import json_text
from algorithm.runs.names import MODELS, expand_name
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import Assembly, check_eval_spaces, decided, set_up
from algorithm.train.checkpointer import kept_replays
from algorithm.train.runtime import EnvInfo, local_collector
from algorithm.train.state import TrainState, seed_globally

SECONDS = 1.0
"""Time for measuring each part."""

_TENSOR, _FILES = (
    100,
    4000,
)  # bytes of a checkpoint besides its numbers: a tensor's name, indices and manifest


def dry_run(options: TrainOptions, loaded: LoadedConfig, *, seconds: float = SECONDS) -> int:
    """Show the cost of a training; return 0. Raises what a training would raise before its first step.

    seconds: see :func:`~algorithm.app.check.cost.measure`
    """
    config = loaded.config
    base = config.base_config
    if base.env_type == "UNITY" and base.unity_args.editor:
        raise UsageError(
            "--dry_run and --editor cannot go together",
            where="command line",
            why="it measures training and evaluation, and the Unity Editor is one player only",
            fix="set base_config.unity_args.build_path and leave --editor out",
        )
    RunDir.check_free(loaded.env_label, base.name, models=options.directory, argument=options.env)
    loaded, measured = set_up(loaded)
    device = pick_device(options.device)
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        for line in measured:
            console.message(line)
        seed_globally(loaded.seed)
        # Compiling may take longer than all else.
        as_written = decided(loaded, "sac_config", lambda _: {"compile": "off"})
        faults = Faults(console)
        assembly = Assembly(loaded=as_written, device=device, faults=faults, stack=stack)
        env = assembly.env("train", base.n_envs, workers=base.workers)
        eval_env = assembly.env("evaluate")
        check_eval_spaces(loaded, env.specs, eval_env.specs)
        agents = assembly.agents(env.specs, loaded.env_dir, greedy=options.disable_sample)
        console.start(start_screen(loaded, _folder(options, loaded), EnvInfo.of(env), agents, device))
        for notice in (
            *notices(options, config),
            *(text for agent in agents.values() for text in agent.notices),
        ):
            console.warn(notice)
        console.message(f"measuring steps, updates and an evaluation, about {seconds:g} s each")
        speed = measure(env, eval_env, agents, config, seconds)
        sizes = _sizes(env, agents, config, faults)
        plan = Plan.of(config, speed, env.time_limit)
        rows = cost_rows(
            speed,
            plan,
            sizes,
            config,
            models=options.directory,
            repeat=options.repeat,
            warn=console.warn,
        )
        console.finish(rows, [("check", command(options, "--check")), ("train", command(options))])
    return 0


def _folder(options: TrainOptions, loaded: LoadedConfig) -> RunDir:
    """Return the folder that a training started now would make."""
    parent = options.directory.absolute() / loaded.env_label
    name = expand_name(loaded.config.base_config.name, parent)
    return RunDir(loaded.env_label, name, parent / name, options.env)


def _sizes(env: VecEnv, agents: Mapping[str, Agent], config: Config, faults: Faults) -> Sizes:
    collector = partial(local_collector, env, config.base_config, Stop())
    snapshot = TrainState(collector, agents, faults).snapshot({})
    tensors = [tensor for named in snapshot.tensors.values() for tensor in named.values()]
    process = psutil.Process()
    replays = [store for agent in agents.values() for store in agent.stores().values()]
    return Sizes(
        checkpoint=sum(tensor.nbytes + _TENSOR for tensor in tensors)
        + len(json_text(snapshot.state))
        + _FILES,
        row=sum(replay.record_type.itemsize for replay in replays),
        row_each=sum(
            array.dtype.itemsize * math.prod(array.shape) / max(1, len(replay))
            for replay in replays
            for array in replay.state().arrays.values()
        ),
        replay=sum(replay.nbytes for replay in replays),
        capacity=max((replay.capacity for replay in replays), default=0),
        held=max((len(replay) for replay in replays), default=0),
        process=sum(each.memory_info().rss for each in (process, *process.children(recursive=True))),
        kept=kept_replays(agents, config.checkpoint_config.replay),
    )


def cost_rows(
    speed: Speed,
    plan: Plan | None,
    sizes: Sizes,
    config: Config,
    *,
    models: Path = MODELS,
    repeat: int,
    warn: Callable[[str], None],
) -> Rows:
    """Format time, memory and disk of a training; warn where memory or disk may not suffice.

    models: folder of all runs
    """
    compiled = config.sac_config.compile != "off"
    rows = [("speed", _speed_text(speed) + ", uncompiled; compiled it takes less" * compiled)]
    if plan is None:
        rows.append(("time", "no limit is set (max_step, max_iter): it goes on until it is stopped"))
    else:
        rows += time_rows(plan, speed, config.eval_config.episodes)
        if repeat > 1:
            rows.append(("", f"and {repeat} times that with --repeat {repeat}"))
    rows.append(("memory", _memory_text(plan, sizes, warn)))
    if plan is not None:
        rows.append(("disk", _disk_text(plan, config, sizes, models, warn)))
    return rows


def time_rows(plan: Plan, speed: Speed, episodes: int, now: datetime | None = None) -> Rows:
    """Format the duration, its parts, and the end of a training that starts ``now``.

    episodes: of each evaluation
    """
    acting, updating, (low, high) = plan.seconds(speed)
    parts = [
        f"{plan.steps:,} steps {clock_time(acting)}",
        f"{plan.updates:,} updates {clock_time(updating)}",
        f"{plan.evaluations:,} evaluations of {episodes} episodes {_span(low, high)}",
    ]
    total = acting + updating + high
    end = (now or datetime.now()) + timedelta(seconds=total)
    day = "%H:%M" if total < 12 * 3600 else "%a %d %b, %H:%M"
    return [
        ("time", f"{_span(acting + updating + low, total)}: {', '.join(parts)}; saving not counted"),
        ("finished", f"about {end:{day}} if it starts now"),
    ]


def _speed_text(speed: Speed) -> str:
    parts = [f"{1 / speed.step:,.0f} steps/s"]
    if not math.isnan(speed.update):
        parts.append(f"{1 / speed.update:,.{0 if speed.update < 0.1 else 1}f} updates/s")
    return ", ".join([*parts, f"{1 / speed.evaluation_step:,.0f} steps/s in evaluations"])


def _memory_text(plan: Plan | None, sizes: Sizes, warn: Callable[[str], None]) -> str:
    rows = sizes.capacity if plan is None else min(plan.rows, sizes.capacity)
    replay = round(max(0, rows - sizes.held) / max(1, sizes.capacity) * sizes.replay)
    saving = 2 * sizes.checkpoint  # a copy of the tensors, and the file made of them
    free = free_memory()
    if replay + saving > free:
        warn(f"memory may not suffice: {format_bytes(replay + saving)} more are needed")
    peak = sizes.process + replay + saving
    return (
        f"at most {_bytes(peak)}: {_bytes(sizes.process)} now, {_bytes(replay)} more for {rows:,} rows of "
        f"replay, {_bytes(saving)} while saving; {_bytes(free)} free"
    )


def _disk_text(plan: Plan, config: Config, sizes: Sizes, models: Path, warn: Callable[[str], None]) -> str:
    number, checkpoints, replay = plan.disk(config, sizes)
    free = shutil.disk_usage(_existing(models.absolute())).free
    if checkpoints + replay > free:
        warn(
            "the disk may not suffice: keep fewer checkpoints, or set checkpoint_config.replay to last or "
            f"never ({format_bytes(checkpoints + replay)} of {format_bytes(free)})"
        )
    return (
        f"at most {_bytes(checkpoints + replay)}: {number} checkpoints of {_bytes(sizes.checkpoint)}, "
        f"replay {_bytes(replay)}; logs not counted; {_bytes(free)} free"
    )


def _span(low: float, high: float) -> str:
    """Format ``4:10``, or ``4:10 to 5:30`` where they differ by more than a twentieth."""
    return clock_time(low) if high <= 1.05 * low else f"{clock_time(low)} to {clock_time(high)}"


def _bytes(n: int) -> str:
    if n >= 10 * 2**20:
        return format_bytes(n)
    return f"{n / 2**20:.1f} MB" if n >= 2**20 else f"{n / 2**10:.0f} KB"


def _existing(folder: Path) -> Path:
    """Return the innermost existing folder of a path."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())
