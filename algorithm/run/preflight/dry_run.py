"""``--dry_run``: what a training would build, and what it would cost. Nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psutil
import torch

from algorithm.agents.networks import pick_device
from algorithm.config.cli import TrainOptions
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.console.base import Console, Rows, open_console
from algorithm.console.live import clock_time
from algorithm.env.base import VecEnv
from algorithm.experience.faults import Faults
from algorithm.experience.non_finite import Stop
from algorithm.replay.budget import MemoryBudget, format_bytes, free_memory
from algorithm.roles import Agent
from algorithm.run.files import json_text
from algorithm.run.names import expand_name
from algorithm.run.preflight.commands import command
from algorithm.run.preflight.measure import Measurement
from algorithm.run.preflight.plan import (
    FILE_BYTES,
    TENSOR_BYTES,
    Disk,
    Duration,
    Measured,
    Memory,
    Plan,
    Sizes,
    disk,
    duration,
    make_plan,
    memory,
    planned_steps,
)
from algorithm.run.rundir import MODELS, RunDir
from algorithm.train.assembly import close_env, make_agents, make_env
from algorithm.train.randomness import seed_globally
from algorithm.train.runtime import local_feed
from algorithm.train.state import TrainState
from algorithm.train.summaries import start_screen

SECONDS = 2.0
"""How long is measured, about."""


def dry_run(options: TrainOptions, loaded: LoadedConfig, *, seconds: float = SECONDS) -> int:
    """Show the plan; returns 0. Raises what a training would raise before its first step.

    seconds: of measuring
    """
    config = loaded.config
    base = config.base_config
    RunDir.check_free(loaded.env_label, base.name, argument=options.env)
    torch.set_num_threads(config.sac_config.threads)
    device = pick_device(options.device)
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        budget, faults = MemoryBudget(), Faults(console)
        seed_globally(loaded.seed)
        folder = loaded.env_dir
        env = make_env(config, "train", base.n_envs, folder=folder, faults=faults, workers=base.workers)
        stack.callback(close_env, env, console.warn)
        eval_env = make_env(config, "evaluate", 1, folder=folder, faults=faults)
        stack.callback(close_env, eval_env, console.warn)
        agents = make_agents(
            loaded, env.specs, loaded.env_dir, device, memory=budget, greedy=options.disable_sample
        )
        console.start(start_screen(loaded, _folder(options, loaded), env, agents, device))
        for notice in (*options.notices, *(text for agent in agents.values() for text in agent.notices)):
            console.warn(notice)
        console.message(f"measuring for about {seconds:g} s")
        measured = Measurement(env, eval_env, agents, config, seconds).take()
        sizes = _sizes(env, agents, config, faults)
        _show(console, options, config, measured, sizes, env.time_limit)
    return 0


def _folder(options: TrainOptions, loaded: LoadedConfig) -> RunDir:
    """The folder that a training would make now."""
    parent = MODELS.absolute() / loaded.env_label
    name = expand_name(loaded.config.base_config.name, parent)
    return RunDir(loaded.env_label, name, parent / name, options.env)


def _sizes(env: VecEnv, agents: Mapping[str, Agent], config: Config, faults: Faults) -> Sizes:
    """All replays as one: rows of every behaviour are written in step with the others."""
    feed = partial(local_feed, env, config.base_config, Stop())
    snapshot = TrainState(feed, agents, faults).snapshot({})
    tensors = [tensor for named in snapshot.tensors.values() for tensor in named.values()]
    process = psutil.Process()
    everybody = [process, *process.children(recursive=True)]
    replays = [agent.replay for agent in agents.values()]
    return Sizes(
        checkpoint=sum(tensor.nbytes + TENSOR_BYTES for tensor in tensors)
        + len(json_text(snapshot.state))
        + FILE_BYTES,
        row=sum(replay.record_type.itemsize for replay in replays),
        row_each=sum(_rewritten(agent) for agent in agents.values()),
        replay=sum(replay.nbytes for replay in replays),
        capacity=max(replay.capacity for replay in replays),
        process=sum(each.memory_info().rss for each in everybody),
        held=max(len(replay) for replay in replays),
    )


def _rewritten(agent: Agent) -> float:
    """Bytes of a row that every checkpoint writes anew: priorities, and carries that are refreshed."""
    arrays = agent.replay.state().arrays
    rows = max(1, len(agent.replay))
    each = sum(array.dtype.itemsize * _count(array.shape) for array in arrays.values()) / rows
    if agent.config.sac_config.refresh_carry and "carry" not in arrays:
        each += 4 * _count(agent.policy.stored_carry_shape)
    return each


def _count(shape: tuple[int, ...]) -> int:
    number = 1
    for side in shape:
        number *= side
    return number


def _show(
    console: Console,
    options: TrainOptions,
    config: Config,
    measured: Measured,
    sizes: Sizes,
    time_limit: int | None,
) -> None:
    steps = planned_steps(config, measured.length or time_limit)
    plan = make_plan(config, steps, measured, time_limit) if steps else None
    needed, free = memory(plan, sizes), free_memory()
    rows: list[tuple[str, str]] = [("speed", speed_line(measured))]
    if plan is None:
        rows.append(("time", "no limit is set (max_step, max_iter): it goes on until it is stopped"))
    else:
        rows += time_rows(plan, duration(plan, measured, config.sac_config.start_step), config)
        if options.repeat > 1:
            rows.append(("", f"and {options.repeat} times that with --repeat {options.repeat}"))
    rows.append(("memory", memory_line(needed, plan, sizes, free)))
    if needed.more > free:
        console.warn(f"memory may not suffice: {format_bytes(needed.more)} more are needed")
    if plan is not None:
        room, space = disk(plan, config, sizes), shutil.disk_usage(_existing(MODELS.absolute())).free
        rows.append(("disk", disk_line(room, sizes, space)))
        if room.total > space:
            console.warn(
                f"the disk may not suffice: keep fewer checkpoints, or set checkpoint_config.replay to last "
                f"or never ({format_bytes(room.total)} of {format_bytes(space)})"
            )
    console.finish(rows, [("check", command(options, "--check")), ("train", command(options))])


def speed_line(measured: Measured) -> str:
    """Rates."""
    parts = [f"{1 / measured.step:,.0f} steps/s"]
    if measured.update == measured.update:  # there were updates
        parts.append(f"{_rate(measured.update)} updates/s")
    parts.append(f"{1 / measured.evaluation_step:,.0f} steps/s in evaluations")
    return ", ".join(parts)


def time_rows(plan: Plan, needed: Duration, config: Config, now: datetime | None = None) -> Rows:
    """How long, what for, and when it is over if it begins ``now``."""
    low, high = needed.total
    for_what = [
        f"{plan.steps:,} steps {clock_time(needed.acting)}",
        f"{plan.updates:,} updates {clock_time(needed.updating)}",
        f"{plan.evaluations:,} evaluations of {config.eval_config.episodes} episodes "
        f"{_span(*needed.evaluating)}",
    ]
    end = (now or datetime.now()) + timedelta(seconds=high)
    day = "%H:%M" if high < 12 * 3600 else "%a %d %b, %H:%M"
    return [
        ("time", f"{_span(low, high)}: {', '.join(for_what)}; saving not counted"),
        ("finished", f"about {end:{day}} if it starts now"),
    ]


def memory_line(needed: Memory, plan: Plan | None, sizes: Sizes, free: int) -> str:
    """The largest amount, and what it is made of."""
    rows = sizes.capacity if plan is None else min(plan.rows, sizes.capacity)
    return (
        f"at most {_bytes(needed.peak)}: {_bytes(needed.now)} now, {_bytes(needed.replay)} more for "
        f"{rows:,} rows of replay, {_bytes(needed.saving)} while saving; {_bytes(free)} free"
    )


def disk_line(room: Disk, sizes: Sizes, free: int) -> str:
    """The largest amount, and what it is made of."""
    return (
        f"at most {_bytes(room.total)}: {room.kept} checkpoints of {_bytes(sizes.checkpoint)}, "
        f"replay {_bytes(room.replay)}, log and report {_bytes(room.logs)}; {_bytes(free)} free"
    )


def _span(low: float, high: float) -> str:
    """``4:10``, or ``4:10 to 5:30`` where they differ by more than a twentieth."""
    return clock_time(low) if high <= 1.05 * low else f"{clock_time(low)} to {clock_time(high)}"


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}" if seconds < 0.1 else f"{1 / seconds:.2g}"


def _bytes(n: int) -> str:
    if n >= 10 * 2**20:
        return format_bytes(n)
    return f"{n / 2**20:.1f} MB" if n >= 2**20 else f"{n / 2**10:.0f} KB"


def _existing(folder: Path) -> Path:
    """The innermost folder of the path that is there."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())
