"""Summaries of a run: at its start, at its end, and ``result.json``."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from importlib.util import find_spec
from statistics import fmean

import gymnasium
import numpy as np
import torch

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.app.report.curves import plot_curve, series_of
from algorithm.app.report.facts import space_rows
from algorithm.app.report.report import write_report
from algorithm.app.report.settings import config_rows
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.config.yaml_io import inline
from algorithm.core.console import Console
from algorithm.core.errors import COMMON_BLOCK, StorageError
from algorithm.core.extras import install_command
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.system.display import has_display
from algorithm.core.timing import shares_text
from algorithm.core.wording import Rows, counted, info_rows
from algorithm.run.counters import Counters
from algorithm.run.evaluation.evaluate import Performance, episode_limit
from algorithm.run.runtime import EnvInfo
from algorithm.run.trainer import Outcome
from algorithm.store.follow_up_commands import playing_commands, resume_command, tensorboard_command
from algorithm.store.logs.metrics import read_metrics
from algorithm.store.rundir import RunDir


def start_screen(
    loaded: LoadedConfig,
    run: RunDir,
    env: EnvInfo,
    agents: Mapping[str, Agent],
    *,
    resumed: Rows = (),
    until: int | None = None,
) -> list[tuple[str, Rows]]:
    """Return the start screen as titled sections.

    resumed: rows about the checkpoint and changes since
    until:   step at which this call of ``learn`` ends
    """
    versions = f"python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    device = next(iter(agents.values())).inputs.device
    left = " (--device cuda uses the GPU)" if device.type == "cpu" and torch.cuda.is_available() else ""
    threads = torch.get_num_threads()
    sections: list[tuple[str, Rows]] = [
        (
            "run",
            [
                ("name", run.name),
                ("folder", run.shown(run.path)),
                ("seed", str(loaded.seed)),
                ("ends", _end(loaded, until)),
                ("device", f"{device}, {counted(threads, 'thread')}{left}"),
                ("versions", f"{versions}, gymnasium {gymnasium.__version__}"),
            ],
        ),
        ("environment", _environment(loaded.config, env)),
    ]
    if resumed:
        sections.insert(1, ("resumed", resumed))
    for name, agent in agents.items():
        title = "agent" if name == DEFAULT_BEHAVIOUR else f"agent {name}"
        sections.append((title, _agent_rows(loaded, name, agent)))
    sections.append(("config", config_rows(loaded)))
    return sections


def _agent_rows(loaded: LoadedConfig, name: str, agent: Agent) -> Rows:
    config = loaded.for_behaviour(name)
    keys = family(config).keys_of(config)
    rows = [*agent.rows(), *[("keys", repr(keys))] * is_dataclass(keys)]
    if loaded.file is None and agent.inputs.nn_file == loaded.env_dir / f"{config.run.nn}.py":
        rows.insert(0, ("networks", f"{config.run.nn}.py of this folder; without: {COMMON_BLOCK}.nn=null"))
    return rows


def show_finish(
    console: Console,
    run: RunDir,
    outcome: Outcome,
    saved: str,
    render_modes: Sequence[str],
    *,
    variable: str = "",
) -> None:
    """Show the result, and commands that the user may run next.

    saved: cost of the checkpoints; render_modes: of the environment
    variable: name of the run in Python, for calls instead of commands
    """
    training = outcome.training
    counters, updates, seconds = training.counters, training.updates, training.watch.total
    speed = f"{counters.step / seconds:.0f} steps/s" if seconds else ""
    rows = [("steps", f"{counters.step:,} with {updates:,} updates in {seconds:.0f} s, {speed}")]
    if not updates:
        rows.insert(0, ("learned", "nothing from these steps: the training ended before the first update"))
    rows.append(("ended", next(iter(outcome.ends.values()))[0]))
    for title, evaluation in (("evaluation", counters.last_eval), ("best", counters.best_eval)):
        if evaluation is None:
            continue
        for behaviour, performance in evaluation.performances.items():
            name = "" if behaviour == DEFAULT_BEHAVIOUR else f" {behaviour}"
            rows.append((f"{title}{name}", _performance(evaluation.step, performance)))
    rows.append(("time", shares_text(training.watch.seconds)))
    rows += [("checkpoints", saved), ("folder", run.shown(run.path))]
    commands = [
        ("resume", _longer(run, outcome, variable)),
        *playing_commands(run, render_modes, display=has_display(), variable=variable).items(),
        ("curves", f"{variable}.metrics" if variable else _curves(run)),
        ("report", run.shown(run.report)),
    ]
    console.finish(rows, commands, doubtful=not updates)


def _curves(run: RunDir) -> str:
    """Return the command that shows the curves; if its package is missing, with how to install it."""
    command = tensorboard_command(run)
    return command if find_spec("tensorboard") else f"{command}  # first {install_command('tensorboard')}"


def _longer(run: RunDir, outcome: Outcome, variable: str) -> str:
    """Return the command, or the agent's call, that continues the run beyond the limits that ended it."""
    if variable == "agent.run":
        return "agent.learn(1_000)"
    return resume_command(
        run, *[flag for _, flags in outcome.ends.values() for flag in flags], variable=variable
    )


def result_json(run: RunDir, outcome: Outcome, seed: int) -> dict[str, object]:
    """Return the content of ``result.json``: numbers of each behaviour, and at the top those of all."""
    training = outcome.training
    counters, agents, taken = training.counters, training.agents, training.collector.behaviour_steps
    by, (why, further) = next(iter(outcome.ends.items()))
    result: dict[str, object] = {
        "ended": {"by": by, "why": why},
        "further": [*further],
        "steps": counters.step,
        "episodes": counters.episodes,
        "updates": training.updates,
        "seconds": round(training.watch.total, 3),
        "seed": seed,
        "init_from": run.init_from,
        **_evaluations(counters),
        "replay_ratio": fmean(agent.update_ratio(taken[name]) for name, agent in agents.items()),
        "time": {part: round(seconds, 3) for part, seconds in training.watch.seconds.items()},
        "faults": training.faults.counts,
        "paths": {
            "run": str(run.path),
            "checkpoints": str(run.checkpoints),
            "metrics": str(run.metrics_csv),
            "plot": str(run.plots / "return.png"),
            "report": str(run.report),
        },
    }
    if set(agents) - {DEFAULT_BEHAVIOUR}:
        result["behaviours"] = {
            name: {
                "steps": taken[name],
                "episodes": counters.finished[name],
                "updates": agent.updates,
                **_evaluations(counters, name),
            }
            for name, agent in agents.items()
        }
    return result


def _end(loaded: LoadedConfig, until: int | None = None) -> str:
    """Return the limits of the training, with the key of a default one. until: as for `start_screen`."""
    base, limits = loaded.config.base_config, []
    if base.max_iter > 0:
        limits.append(f"{base.max_iter:,} iterations")
    if until is not None:
        limits.append(f"{until:,} steps (this call of learn)")
    elif base.max_step > 0:
        default = "" if loaded.is_set("base_config.max_step") else " (default; base_config.max_step)"
        limits.append(f"{base.max_step:,} steps{default}")
    if base.stop_at_return is not None:
        limits.append(f"an evaluation of {base.stop_at_return:,g} (base_config.stop_at_return)")
    if base.stop_without_improvement > 0:
        number = counted(base.stop_without_improvement, "evaluation")
        limits.append(f"{number} without improvement (base_config.stop_without_improvement)")
    if not limits:
        return "when it is stopped: base_config.max_step and max_iter set no limit"
    return f"at {' or '.join(limits)}" + ", whichever comes first" * (len(limits) > 1)


def _environment(config: Config, env: EnvInfo) -> list[tuple[str, str]]:
    base, of_evaluations = config.base_config, config.eval_config.wrappers
    rows = [("id", f"{base.env_name}, {env.arrangement}")]
    if base.wrappers:
        rows.append(("wrappers", ", ".join(map(_wrapper, base.wrappers))))
    if of_evaluations is not None and of_evaluations != base.wrappers:
        rows.append(("evaluations", ", ".join(map(_wrapper, of_evaluations)) or "no wrappers"))
    parameters = config.environment_parameters.items()
    rows += [("parameter", f"{name} {inline(value)}") for name, value in parameters]
    rows += space_rows(env.specs)
    limit = f"{env.time_limit} steps" if env.time_limit else "none known"
    length = episode_limit(config, env.time_limit)
    if length > 0:
        limit += f"; {length:,} in an evaluation"
    return [*rows, ("time limit", limit)]


def _wrapper(wrapper: Mapping[str, Mapping[str, object] | None]) -> str:
    ((name, arguments),) = wrapper.items()
    return f"{name}({', '.join(f'{key}={value}' for key, value in (arguments or {}).items())})"


def _performance(step: int, performance: Performance) -> str:
    infos = [f"{name} {text}" for name, text in info_rows(performance.infos)]
    return ", ".join(
        [performance.interval.text, *infos, counted(len(performance.returns), "episode"), f"step {step:,}"]
    )


def _evaluations(counters: Counters, behaviour: str | None = None) -> dict[str, object]:
    """Return the last and the best evaluation for ``result.json``, of one behaviour, or of all if None."""
    outcomes = {"last_eval": counters.last_eval, "best_eval": counters.best_eval}
    return {
        which: result
        and _evaluation(result.step, result.overall if behaviour is None else result.performances[behaviour])
        for which, result in outcomes.items()
    }


def _evaluation(step: int, performance: Performance) -> dict[str, object]:
    interval = performance.interval
    return {
        "mean": interval.mean,
        "ci95": interval.half_width,
        "episodes": len(performance.returns),
        "step": step,
        "infos": performance.infos,
    }


def plot_returns(loaded: LoadedConfig, run: RunDir, outcome: Outcome, console: Console) -> None:
    """Plot the evaluations of a run, if there were any; a full disk causes a warning."""
    if not outcome.training.counters.last_eval:
        return
    label = f"evaluation, mean of {loaded.config.eval_config.episodes} episodes"
    try:
        series = series_of(read_metrics(run.metrics_jsonl), label)
        plot_curve(run.plots / "return.png", series, title=f"{loaded.env_label}, {run.name}")
    except StorageError as error:
        console.warn(error.line)


def write_outcome(run: RunDir, outcome: Outcome, seed: int, console: Console) -> dict[str, object]:
    """Write and return the result, and write the page; a full disk causes warnings only."""
    result = result_json(run, outcome, seed)
    try:
        run.write_result(result)
    except StorageError as error:
        console.warn(error.line)
    write_page(run, console)
    return result


def write_page(run: RunDir, console: Console) -> None:
    """Write the report of a run; a full disk causes a warning."""
    try:
        write_report(run)
    except StorageError as error:
        console.warn(error.line)
