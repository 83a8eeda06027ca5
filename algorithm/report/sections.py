"""The parts of a run's report beside its curves: headline, videos, settings, origin, commands."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from algorithm.config.cli import TrainOptions
from algorithm.config.yaml_io import inline
from algorithm.report.facts import FINISHED, Facts, Score, lookup
from algorithm.report.html import Content, Markup, commands, join, pairs, section, table, tag
from algorithm.report.settings import differences, options_of, preset_of
from algorithm.run.offers import playing_commands
from algorithm.run.rundir import RunDir
from algorithm.spec import DEFAULT_BEHAVIOUR
from algorithm.wording import counted, duration, plus_minus, short

_PURPOSES = {"evaluate": "Evaluate 100 episodes", "watch": "Watch it", "film": "Film an episode"}

_KEYS = {
    "agents": "base_config.n_envs",
    "max_iter": "base_config.max_iter",
    "max_step": "base_config.max_step",
    "nn": "sac_config.nn",
    "env_args": "base_config.env_args",
}
"""Flags that stand for a key."""

LARGEST_VIDEO = 8 * 2**20
"""Bytes of a video that is put into the page; a larger one is linked."""


def headline(facts: Facts) -> Markup:
    """The numbers one looks for first."""
    tiles: list[Markup] = []
    for behaviour in facts.behaviours:
        name = "" if behaviour == DEFAULT_BEHAVIOUR else f", {behaviour}"
        tiles.append(_score(f"last evaluation{name}", facts.last_evaluation(behaviour)))
        tiles.append(_score(f"best evaluation{name}", facts.best_evaluation(behaviour)))
    steps, updates, seconds = facts.steps, facts.updates, facts.seconds
    about = "" if facts.ended else "as of the last summary"
    tiles.append(_tile("environment steps", "none" if steps is None else f"{steps:,}", about))
    tiles.append(_tile("updates", "unknown" if updates is None else f"{updates:,.0f}", about))
    rate = f"{short(steps / seconds)} steps/s" if steps and seconds else ""
    tiles.append(_tile("training time", duration(seconds) if seconds else "unknown", rate))
    survived = facts.faults
    kinds = ", ".join(f"{kind.replace('_', ' ')} {count:g}" for kind, count in survived.items() if count)
    tiles.append(_tile("faults survived", f"{sum(survived.values()):g}" if survived else "unknown", kinds))
    return tag("div", *tiles, class_="tiles")


def videos(facts: Facts) -> Markup | None:
    """The newest film of the run, and links to the others; None without any."""
    found = [film for film in facts.run.videos.glob("**/*.mp4") if film.is_file() and not film.is_symlink()]
    films = sorted(found, key=lambda film: (film.stat().st_mtime_ns, film.name))
    if not films:
        return None
    *older, newest = films
    shown: Markup = _link(facts.run, newest)
    if newest.stat().st_size <= LARGEST_VIDEO:
        data = base64.b64encode(newest.read_bytes()).decode("ascii")
        film = tag(
            "video",
            "This browser shows no videos.",
            src=f"data:video/mp4;base64,{data}",
            controls=True,
            muted=True,
            loop=True,
            playsinline=True,
            aria_label=f"film of an episode, {newest.name}",
        )
        shown = join([film, tag("p", newest.name, class_="lead")])
    links = [tag("li", _link(facts.run, film)) for film in reversed(older)]
    return section("Video", shown, tag("ul", *links) if links else None)


def settings(facts: Facts) -> Markup | None:
    """What the run was told to do differently from the defaults and from its task's own settings."""
    if facts.config is None:
        return None
    options = options_of(facts.manifest.get("arguments"))
    preset = preset_of(options, facts.config.seed)
    found = differences([facts.config, preset])
    rows: list[list[Content]] = []
    for key, (value, of_preset, default) in ((one.key, one.values) for one in found):
        told = preset is not None and value != of_preset
        rows.append([tag("code", key), tag("b", value) if told else value, of_preset, default])
    text = (
        "Every key that is not at its default. Bold: it is not what the task's files say now."
        if preset
        else "Every key that is not at its default. The task's own files cannot be compared from here."
    )
    drawn = [f"{path} = {inline(value)}" for path, value in facts.config.drawn.items()]
    content = table("configuration", ["key", "this run", "task", "default"], rows) if rows else None
    return section(
        "Configuration",
        tag("p", text if rows else "Every key is at its default."),
        content,
        tag("p", "drawn at the start: ", ", ".join(drawn)) if drawn else None,
    )


def origin(facts: Facts) -> Markup:
    """With what, where and when the run was made."""
    manifest = facts.manifest
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    rows: list[tuple[str, Content]] = [("folder", str(facts.run.path)), ("this page", f"written {now}")]
    if isinstance(host := manifest.get("host"), Mapping):
        parts = (host.get("name"), host.get("system"), f"{host.get('cpus')} processors")
        rows.append(("machine", ", ".join(str(part) for part in parts if part is not None)))
    versions = lookup(manifest, "versions")
    if isinstance(versions, Mapping):
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
    return section("Where it comes from", pairs(rows))


def command_list(facts: Facts) -> Markup:
    """What one wants to do next, ready to be copied."""
    run, name = facts.run, ("-n", facts.run.name)
    playing = playing_commands(run, facts.render_modes, episodes=100)
    rows = [
        ("Train it again with the same seed, under a new name", _reproduce(facts)),
        ("Go on with it", run.training_command(*name, "--resume", *_further(facts))),
        *((_PURPOSES[purpose], command) for purpose, command in playing.items()),
        ("All curves", shlex.join(["tensorboard", "--logdir", run.shown(run.log)])),
        ("Write this page anew", run.command("--report", run.name)),
    ]
    return section("Commands", commands(rows))


def _score(label: str, score: Score | None) -> Markup:
    if score is None:
        return _tile(label, "none", "not evaluated yet")
    mean, _, half_width = plus_minus(score.mean, score.half_width).partition(" ± ")
    episodes = None if score.episodes is None else counted(score.episodes, "episode")
    notes = [f"± {half_width} (95 %)" if half_width else None, episodes, f"step {score.step:,}"]
    return _tile(label, mean, ", ".join(filter(None, notes)))


def _tile(label: str, value: str, note: str = "") -> Markup:
    parts = [tag("div", label, class_="label"), tag("div", value, class_="value")]
    return tag("div", *parts, tag("div", note, class_="note") if note else None, class_="tile")


def _link(run: RunDir, film: Path) -> Markup:
    relative = film.relative_to(run.path).as_posix()
    return tag("a", relative, href=quote(relative))


def _shares(parts: Mapping[object, object]) -> str:
    seconds = {str(part): value for part, value in parts.items() if isinstance(value, int | float)}
    total = sum(seconds.values())
    largest = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{part} {value / total:.0%}" for part, value in largest) if total > 0 else "unknown"


def _further(facts: Facts) -> list[str]:
    """What a finished run needs to go on: limits twice as far."""
    if facts.config is None or facts.state != FINISHED:
        return []
    base = facts.config.config.base_config
    limits = {"max_step": base.max_step, "max_iter": base.max_iter}
    return [f"--{key}={2 * limit}" for key, limit in limits.items() if limit > 0]


def _reproduce(facts: Facts) -> str:
    """The command line of the run, less its name, with the seed that it had."""
    options = options_of(facts.manifest.get("arguments"))
    seed = () if facts.seed == "unknown" else (f"--seed={facts.seed}",)
    if options is None:
        return facts.run.training_command(*(word for text in facts.overrides for word in ("-o", text)), *seed)
    return facts.run.training_command(*_flags(options, facts.overrides or options.overrides), *seed)


def _flags(options: TrainOptions, overrides: Sequence[str]) -> list[str]:
    """The flags that change what is trained; of several values that a key was given the last one counts."""
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
