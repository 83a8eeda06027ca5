"""``--dry_run``: builds everything that a training would build and shows its cost. Writes nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import psutil

from algorithm.agents.base import Agent
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import notices, task_command
from algorithm.app.console.output import open_console
from algorithm.app.preview.cost import Sizes, Speed, disk, measure, planned_steps
from algorithm.app.summaries import start_screen
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.system.memory import free_memory
from algorithm.core.wording import clock_time, format_bytes
from algorithm.env.base import VecEnv
from algorithm.nn.process import own_modes
from algorithm.run.checkpointer import kept_replays
from algorithm.run.context import RunContext, check_eval_spaces
from algorithm.run.experience.faults import Faults
from algorithm.run.experience.non_finite import Stop
from algorithm.run.inputs import set_up
from algorithm.run.runtime import EnvInfo, check_together, local_collector
from algorithm.run.state import TrainState, seed_globally
from algorithm.store.files import json_text
from algorithm.store.names import expand_name
from algorithm.store.rundir import RunDir

_TENSOR, _FILES = 100, 4000  # bytes of a checkpoint besides its numbers: a tensor's name; indices, manifest


@own_modes()
def dry_run(
    options: TrainOptions,
    loaded: LoadedConfig,
    *,
    repeated: Callable[[float, int], tuple[str, str]] | None = None,
) -> int:
    """Show the cost of a training; return 0. Raises what a training would raise before its first step.

    repeated: returns another row, such as that for all runs of a study, from seconds and bytes of one run
    """
    base = loaded.config.base_config
    if base.in_editor:
        raise UsageError(
            "--dry_run and --editor cannot go together",
            where="command line",
            why="it measures training and evaluation, and the Unity Editor is one player only",
            fix="set base_config.unity_args.build_path and leave --editor out",
        )
    RunDir.check_free(loaded.env_label, base.name, models=options.directory, argument=options.env)
    loaded = set_up(loaded)
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        seed_globally(loaded.seed)
        faults = Faults(console)
        context = RunContext(loaded=loaded, device=options.device, faults=faults, stack=stack)
        env = context.env("train", base.n_envs, workers=base.workers)
        context.fit(env.specs)
        loaded, config = context.loaded, context.loaded.config
        agents = _agents(context, env, greedy=options.disable_sample)
        console.start(start_screen(loaded, _folder(options, loaded), EnvInfo.of(env), agents))
        for notice in chain(notices(options, config), *(agent.notices for agent in agents.values())):
            console.warn(notice)
        console.message("measuring 200 steps and 20 updates")
        speed = measure(env, agents, config)
        steps = planned_steps(config, speed.length or env.time_limit)
        sizes = _sizes(env, agents, config, faults)
        rows = _rows(options, config, speed, sizes, steps, console.warn)
        if repeated is not None and steps is not None:
            _, checkpoints, replay = disk(config, sizes, steps)
            rows.append(repeated(sum(run_seconds(speed, steps)), checkpoints + replay))
        console.finish(rows, [("check", task_command(options, "--check")), ("train", task_command(options))])
    return 0


def _rows(
    options: TrainOptions,
    config: Config,
    speed: Speed,
    sizes: Sizes,
    steps: int | None,
    warn: Callable[[str], None],
) -> list[tuple[str, str]]:
    """Return the cost of a run as rows: time, memory and disk; warn if memory or disk may not suffice."""
    rows = [
        ("speed", speed_text(speed, compiled=config.run.compile != "off")),
        ("time", time_text(speed, steps, options.repeat)),
        ("memory", memory_text(sizes, steps, warn)),
    ]
    if steps is not None:
        rows.append(("disk", disk_text(config, sizes, steps, options.directory, warn)))
    return rows


def _agents(context: RunContext, env: VecEnv, *, greedy: bool) -> Mapping[str, Agent]:
    """Make agents without compiling, which may take longer than everything else. Raises as a training."""
    loaded = context.loaded
    context.loaded = loaded.resolved(COMMON_BLOCK, lambda _: {"compile": "off"})
    check_eval_spaces(loaded, env.specs, context.env("evaluate").specs)
    check_together(loaded, env.specs)
    return context.agents(env.specs, loaded.env_dir, greedy=greedy)


def _folder(options: TrainOptions, loaded: LoadedConfig) -> RunDir:
    """Return the folder that a training would make now."""
    parent = options.directory.absolute() / loaded.env_label
    name = expand_name(loaded.config.base_config.name, parent)
    return RunDir(loaded.env_label, name, parent / name, options.env)


def _sizes(env: VecEnv, agents: Mapping[str, Agent], config: Config, faults: Faults) -> Sizes:
    """Return the sizes of the built agents, of a checkpoint and of this process."""
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


def speed_text(speed: Speed, *, compiled: bool) -> str:
    """Format steps and updates a second."""
    text = f"{1 / speed.step:,.0f} steps/s"
    if not math.isnan(speed.update):
        text += f", {1 / speed.update:,.{0 if speed.update < 0.1 else 1}f} updates/s"
    return f"{text}, uncompiled; faster when compiled" if compiled else text


def time_text(speed: Speed, steps: int | None, repeat: int) -> str:
    """Format the time of a training, and its shares."""
    if steps is None:
        return "no limit is set (max_step, max_iter): it runs until it is stopped"
    updates = planned_updates(speed, steps)
    acting, learning = run_seconds(speed, steps)
    parts = f"{steps:,} steps {clock_time(acting)}, {updates:,} updates {clock_time(learning)}"
    again = f"; {repeat} times that with --repeat {repeat}" if repeat > 1 else ""
    return f"{clock_time(acting + learning)}: {parts}; evaluations and saving not counted{again}"


def planned_updates(speed: Speed, steps: int) -> int:
    """Return the number of updates of a run; 0 if none could be measured."""
    return 0 if math.isnan(speed.update) else int(speed.updates_per_step * max(0, steps - speed.warm_up))


def run_seconds(speed: Speed, steps: int) -> tuple[float, float]:
    """Return the seconds of a run for (acting, learning)."""
    updates = planned_updates(speed, steps)
    return steps * speed.step, updates * speed.update if updates else 0.0


def memory_text(sizes: Sizes, steps: int | None, warn: Callable[[str], None]) -> str:
    """Format the largest memory of a training; warn if it may not suffice."""
    rows = sizes.capacity if steps is None else min(steps, sizes.capacity)
    replay = round(max(0, rows - sizes.held) / max(1, sizes.capacity) * sizes.replay)
    saving = 2 * sizes.checkpoint  # a copy of the tensors, and the file made of them
    free = free_memory()
    if replay + saving > free:
        warn(f"memory may run out: {format_bytes(replay + saving)} more is needed")
    now, more, peak = map(format_bytes, (sizes.process, replay, sizes.process + replay + saving))
    return (
        f"at most {peak}: {now} now, {more} more for {rows:,} rows of replay, {format_bytes(saving)} while "
        f"saving; {format_bytes(free)} free"
    )


def _free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's disk; the folder may be missing."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def disk_text(config: Config, sizes: Sizes, steps: int, models: Path, warn: Callable[[str], None]) -> str:
    """Format the largest size of a training's files on disk; warn if the disk may not suffice.

    models: folder of all runs
    """
    number, checkpoints, replay = disk(config, sizes, steps)
    free = _free_bytes(models.absolute())
    if checkpoints + replay > free:
        warn(
            "the disk may fill up: keep fewer checkpoints, or set checkpoint_config.replay to last or "
            f"never ({format_bytes(checkpoints + replay)} of {format_bytes(free)})"
        )
    return (
        f"at most {format_bytes(checkpoints + replay)}: {number} checkpoints of "
        f"{format_bytes(sizes.checkpoint)}, replay {format_bytes(replay)}; logs not counted; "
        f"{format_bytes(free)} free"
    )
