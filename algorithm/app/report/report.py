"""``report.html``, the page about a run. Loads no torch; matplotlib when a page is written."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from algorithm.agents.registry import misplaced
from algorithm.app.cli.train import TrainOptions
from algorithm.app.report.facts import FINISHED, Facts, Score, lookup, number
from algorithm.app.report.page import render
from algorithm.app.report.panels import diagnostics, learning_curve
from algorithm.app.report.settings import differences, options_of, preset_of
from algorithm.config.yaml_io import inline
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.wording import counted, duration, plus_minus, short
from algorithm.evaluation.statistics import INTERVAL
from algorithm.runs.files import write_text
from algorithm.runs.offers import PAST_SUCCESS, playing_commands
from algorithm.runs.rundir import RunDir

PURPOSES = {"evaluate": "Evaluate 100 episodes", "watch": "Watch it", "film": "Film an episode"}
"""What a page says above a command; see :func:`playing_commands`."""

_KEYS = {
    "agents": "base_config.n_envs",
    "max_iter": "base_config.max_iter",
    "max_step": "base_config.max_step",
    "nn": f"{RUN_BLOCK}.nn",
    "env_args": "base_config.env_args",
}
"""Flags that set a key."""

LARGEST_VIDEO = 8 * 2**20
"""Bytes of a video that is put into the page; a larger one is linked."""


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page."""

    label: str
    value: str
    note: str = ""


def write_report(run: RunDir) -> Path:
    """Write the page about ``run`` into its folder; returns its path.

    A run that still trains, was killed, was never evaluated or has damaged files gets a page that says so.
    Raises StorageError where the page cannot be written.
    """
    facts = Facts.gather(run)
    page = render(
        "report.html",
        title=f"{run.env}, {run.name}",
        subtitle=_subtitle(facts),
        problems=facts.problems,
        tiles=_tiles(facts),
        behaviours=[_behaviour(facts, name) for name in facts.behaviours],
        settings=_settings(facts),
        origin=_origin(facts),
        commands=command_list(facts),
        **_videos(run),
    )
    write_text(run.report, page)
    return run.report


def _subtitle(facts: Facts) -> str:
    parts = [facts.state, f"seed {facts.seed}"]
    if facts.config and facts.config.config.base_config.env_name:  # a file that was emptied has none
        parts.insert(0, facts.config.config.base_config.env_name)
    if isinstance(started := facts.manifest.get("started"), str):
        utc = " UTC" if started.endswith("+00:00") else ""
        parts.append(f"begun {started[:16].replace('T', ' ')}{utc}")
    return " · ".join(parts)


def _tiles(facts: Facts) -> list[Tile]:
    tiles = []
    for behaviour in facts.behaviours:
        name = "" if behaviour == DEFAULT_BEHAVIOUR else f", {behaviour}"
        tiles.append(_score(f"last evaluation{name}", facts.last_evaluation(behaviour)))
        tiles.append(_score(f"best evaluation{name}", facts.best_evaluation(behaviour)))
    steps, updates, seconds = facts.steps, facts.updates, facts.seconds
    about = "" if facts.ended else "as of the last summary"
    rate = f"{short(steps / seconds)} steps/s" if steps and seconds else ""
    survived = facts.faults
    kinds = ", ".join(f"{kind.replace('_', ' ')} {count:g}" for kind, count in survived.items() if count)
    return [
        *tiles,
        Tile("environment steps", "none" if steps is None else f"{steps:,}", about),
        Tile("updates", "unknown" if updates is None else f"{updates:,.0f}", about),
        Tile("training time", duration(seconds) if seconds else "unknown", rate),
        Tile("faults survived", f"{sum(survived.values()):g}" if survived else "unknown", kinds),
    ]


def _score(label: str, score: Score | None) -> Tile:
    if score is None:
        return Tile(label, "none", "not evaluated yet")
    mean, _, half_width = plus_minus(score.mean, score.half_width).partition(" ± ")
    episodes = None if score.episodes is None else counted(score.episodes, "episode")
    notes = [f"± {half_width} ({INTERVAL})" if half_width else None, episodes, f"step {score.step:,}"]
    return Tile(label, mean, ", ".join(filter(None, notes)))


def _behaviour(facts: Facts, behaviour: str) -> dict[str, object]:
    """Return the charts of one behaviour; its name is shown only where there are several."""
    columns = facts.metrics.get(behaviour)
    ratio = None
    if facts.config is not None:
        config = facts.config.for_behaviour(behaviour)
        sac, owes = config.sac_config, misplaced(config.algorithm, RUN_BLOCK, "replay_ratio") is None
        ratio = number(sac.replay_ratio) if owes and sac.use_replay_buffer else None
    return {
        "suffix": "" if behaviour == DEFAULT_BEHAVIOUR else f": {behaviour}",
        "measured": columns is not None,
        "evaluated": bool(facts.evaluations(behaviour)),
        "curve": learning_curve(columns) if columns else None,
        "diagnostics": diagnostics(columns, replay_ratio=ratio) if columns else [],
    }


def _videos(run: RunDir) -> dict[str, object]:
    """Return the videos, the newest first, and the content of the newest if it is small enough."""
    files = [file for file in run.videos.glob("**/*.mp4") if file.is_file() and not file.is_symlink()]
    files.sort(key=lambda file: (file.stat().st_mtime_ns, file.name), reverse=True)
    data = ""
    if files and files[0].stat().st_size <= LARGEST_VIDEO:
        data = base64.b64encode(files[0].read_bytes()).decode("ascii")
    paths = [file.relative_to(run.path).as_posix() for file in files]
    shown = [
        {"name": file.name, "path": path, "href": quote(path)}
        for file, path in zip(files, paths, strict=True)
    ]
    return {"videos": shown, "video_data": data}


def _settings(facts: Facts) -> dict[str, object] | None:
    """Return the keys that are not at their defaults; None without a configuration."""
    if facts.config is None:
        return None
    preset = preset_of(options_of(facts.manifest.get("arguments")), facts.config.seed)
    rows = []
    for one in differences([facts.config, preset]):
        value, of_preset, default = one.values
        changed = preset is not None and value != of_preset
        rows.append(
            {"key": one.key, "value": value, "changed": changed, "preset": of_preset, "default": default}
        )
    text = "Every key is at its default."
    if rows:
        text = "Every key that is not at its default. " + (
            "Bold: it is not what the task's files say now."
            if preset
            else "The task's own files cannot be compared from here."
        )
    drawn = [f"{path} = {inline(value)}" for path, value in facts.config.drawn.items()]
    return {"text": text, "rows": rows, "drawn": drawn}


def _origin(facts: Facts) -> list[tuple[str, str]]:
    """Return program, machine and time of the run."""
    manifest = facts.manifest
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    rows = [("folder", str(facts.run.path)), ("this page", f"written {now}")]
    if isinstance(host := manifest.get("host"), Mapping):
        parts = (host.get("name"), host.get("system"), f"{host.get('cpus')} processors")
        rows.append(("machine", ", ".join(str(part) for part in parts if part is not None)))
    if isinstance(versions := lookup(manifest, "versions"), Mapping):
        known = {"python": manifest.get("python"), **versions}
        rows.append(
            ("versions", ", ".join(f"{name} {version}" for name, version in known.items() if version))
        )
    if isinstance(git := manifest.get("git"), Mapping):
        changed = ", with changes that were not committed" if git.get("changed") else ""
        rows.append(("program", f"commit {git.get('commit')}{changed}"))
    if isinstance(resumed := manifest.get("resumed"), list) and resumed:
        at = ", ".join(f"{step:,}" for one in resumed if isinstance(step := lookup(one, "step"), int))
        rows.append(("resumed", f"{counted(len(resumed), 'time')}, at step {at}"))
    if isinstance(seconds := facts.result.get("time"), Mapping) and facts.ended:
        rows.append(("time went into", _shares(seconds)))
    return rows


def _shares(parts: Mapping[object, object]) -> str:
    seconds = {str(part): value for part, value in parts.items() if isinstance(value, int | float)}
    total = sum(seconds.values())
    largest = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{part} {value / total:.0%}" for part, value in largest) if total > 0 else "unknown"


def command_list(facts: Facts) -> list[tuple[str, str]]:
    """Return purposes and commands to go on with, ready to be copied."""
    run, name = facts.run, ("-n", facts.run.name)
    playing = playing_commands(run, facts.render_modes, episodes=100)
    return [
        ("Train it again with the same seed, under a new name", _same_training(facts)),
        ("Go on with it", run.training_command(*name, "--resume", *_further(facts))),
        *((PURPOSES[purpose], command) for purpose, command in playing.items()),
        ("All curves", shlex.join(["tensorboard", "--logdir", run.shown(run.log)])),
        ("Write this page anew", run.command("--report", run.name)),
    ]


def _further(facts: Facts) -> list[str]:
    """Return doubled limits, with which a finished run goes on."""
    if facts.config is None or facts.state != FINISHED:
        return []
    base = facts.config.config.base_config
    if lookup(facts.result, "ended", "by") == "stop_at_return":
        return [*PAST_SUCCESS]
    limits = {"max_step": base.max_step, "max_iter": base.max_iter}
    return [f"--{key}={2 * limit}" for key, limit in limits.items() if limit > 0]


def _same_training(facts: Facts) -> str:
    """Return the command line of the run without its name, with its seed."""
    options = options_of(facts.manifest.get("arguments"))
    seed = () if facts.seed == "unknown" else (f"--seed={facts.seed}",)
    if options is None:
        return facts.run.training_command(*(word for text in facts.overrides for word in ("-o", text)), *seed)
    return facts.run.training_command(*_flags(options, facts.overrides or options.overrides), *seed)


def _flags(options: TrainOptions, overrides: Sequence[str]) -> list[str]:
    """Return the flags that change the training; the last of several values of a key counts."""
    last = {text.partition("=")[0]: text for text in overrides}
    given = {
        "config": options.config,
        "agents": options.agents,
        "max_iter": options.max_iter,
        "max_step": options.max_step,
        "nn": options.nn,
        "env_args": None if options.env_args is None else inline(dict(options.env_args)),
        "device": None if options.device == "auto" else options.device,
    }
    replaced = {flag for flag, key in _KEYS.items() if key in last}
    flags = [
        f"--{flag}={value}" for flag, value in given.items() if value is not None and flag not in replaced
    ]
    flags += [word for text in last.values() for word in ("-o", text)]
    return flags + ["--disable_sample"] * options.disable_sample
