"""``report.html``, the page about a run. Loads no torch; matplotlib when a page is written."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from algorithm.agents.registry import misplaced
from algorithm.app.report.charts import Chart
from algorithm.app.report.curves import diagnostics, run_lines, series_of
from algorithm.app.report.facts import FINISHED, Facts, Score, lookup, number, space_rows
from algorithm.app.report.page import Page, Section, Tile, code, heading, link
from algorithm.app.report.settings import differences
from algorithm.config.yaml_io import inline
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import shares_text
from algorithm.core.wording import clock_time, counted, info_rows, plus_minus, short
from algorithm.run.evaluation.statistics import INTERVAL
from algorithm.store.files import write_text
from algorithm.store.follow_up_commands import (
    playing_commands,
    resume_command,
    tensorboard_command,
)
from algorithm.store.rundir import RunDir

PURPOSES = {"evaluate": "Evaluate 100 episodes", "watch": "Watch it", "film": "Film an episode"}
"""Purpose of a command in :func:`playing_commands` -> its title on a page."""

LARGEST_VIDEO = 8 * 2**20
"""Bytes of a video that is put into the page; a larger one is linked."""


def write_report(run: RunDir) -> Path:
    """Write the page about a run into its folder; return its path.

    The page also reports that the run still trains, was killed, was never evaluated, or has damaged files.
    Raises StorageError if the page cannot be written.
    """
    facts = Facts.gather(run)
    sections = [section for name in facts.behaviours for section in _behaviour(facts, name)]
    page = Page(
        title=f"{run.env}, {run.name}",
        subtitle=_subtitle(facts),
        sections=[*sections, *_videos(run), *_settings(facts), Section(title="Origin", facts=_origin(facts))],
        problems=facts.problems,
        commands=command_list(facts),
        tiles=_tiles(facts),
    )
    write_text(run.report, page.html)
    return run.report


def _subtitle(facts: Facts) -> str:
    """Return environment, state, seed and start of the run on one line."""
    env_name = facts.config.config.base_config.env_name if facts.config else None
    parts = [*([env_name] if env_name else []), facts.state, f"seed {facts.seed}"]  # an emptied file has none
    if isinstance(started := facts.manifest.get("started"), str):
        utc = " UTC" if started.endswith("+00:00") else ""
        parts.append(f"started {started[:16].replace('T', ' ')}{utc}")
    return " · ".join(parts)


def _tiles(facts: Facts) -> list[Tile]:
    """Return the numbers at the top of the page."""
    tiles = []
    for behaviour in facts.behaviours:
        name = "" if behaviour == DEFAULT_BEHAVIOUR else f", {behaviour}"
        infos = info_rows(facts.infos(behaviour))
        tiles += [
            _score(f"last evaluation{name}", facts.last_evaluation(behaviour)),
            _score(f"best evaluation{name}", facts.best_evaluation(behaviour)),
            *(Tile(f"{title}{name}", text, "last evaluation") for title, text in infos),
        ]
    steps, updates, seconds = facts.steps, facts.updates, facts.seconds
    about = "" if facts.ended else "as of the last summary"
    rate = f"{short(steps / seconds)} steps/s" if steps and seconds else ""
    survived = facts.faults
    kinds = ", ".join(f"{kind.replace('_', ' ')} {count:g}" for kind, count in survived.items() if count)
    return [
        *tiles,
        Tile("environment steps", "none" if steps is None else f"{steps:,}", about),
        Tile("updates", "unknown" if updates is None else f"{updates:,.0f}", about),
        Tile("training time", clock_time(seconds) if seconds else "unknown", rate),
        Tile("faults survived", f"{sum(survived.values()):g}" if survived else "unknown", kinds),
    ]


def _score(label: str, score: Score | None) -> Tile:
    """Return the tile of an evaluation."""
    if score is None:
        return Tile(label, "none", "not evaluated yet")
    mean, _, half_width = plus_minus(score.mean, score.half_width).partition(" ± ")
    interval = f"± {half_width} ({INTERVAL}), " if half_width else ""
    return Tile(label, mean, f"{interval}step {score.step:,}")


def _behaviour(facts: Facts, behaviour: str) -> Iterator[Section]:
    """Yield the charts of one behaviour."""
    columns, ratio = facts.metrics.get(behaviour), None
    if columns is None:
        yield Section(title=heading("Learning curve", behaviour), text=["Nothing was measured yet."])
        return
    if facts.config is not None:
        config = facts.config.for_behaviour(behaviour)
        sac, owes = config.sac_config, misplaced(config.algorithm, COMMON_BLOCK, "replay_ratio") is None
        ratio = number(sac.replay_ratio) if owes and sac.use_replay_buffer else None
    text = [] if facts.evaluations(behaviour) else ["The run was not evaluated yet."]
    lines = run_lines(series_of(columns, "evaluation"))
    chart = Chart("Return over environment steps", lines, large=True)
    yield Section(title=heading("Learning curve", behaviour), text=text, chart=chart)
    if charts := diagnostics(columns, replay_ratio=ratio):
        yield Section(title=heading("Diagnostics", behaviour), charts=charts)


def _videos(run: RunDir) -> Iterator[Section]:
    """Yield the section with videos, the newest first and embedded if it is small; nothing without any."""
    files = [file for file in run.videos.glob("**/*.mp4") if file.is_file() and not file.is_symlink()]
    files.sort(key=lambda file: (file.stat().st_mtime_ns, file.name), reverse=True)
    films = [
        (file.name, base64.b64encode(file.read_bytes()).decode("ascii"))
        for file in files[:1]
        if file.stat().st_size <= LARGEST_VIDEO
    ]
    paths = [file.relative_to(run.path).as_posix() for file in files[len(films) :]]
    if files:
        yield Section(title="Video", films=films, links=[link(path, path) for path in paths])


def _settings(facts: Facts) -> Iterator[Section]:
    """Yield the section with keys unlike their defaults; nothing without a configuration."""
    if facts.config is None:
        return
    rows = [[code(key), *values] for key, values in differences([facts.config]).items()]
    drawn = ", ".join(f"{path} = {inline(value)}" for path, value in facts.config.drawn.items())
    yield Section(
        title="Configuration",
        text=["Every key that is not at its default." if rows else "Every key is at its default."],
        head=["key", "this run", "default"],
        rows=rows,
        notes=[f"drawn at the start: {drawn}"] if drawn else [],
    )


def _origin(facts: Facts) -> list[tuple[str, str]]:
    """Return rows on spaces, program, machine and time of the run, and on the page itself."""
    manifest = facts.manifest
    rows = space_rows(facts.specs)
    if isinstance(host := manifest.get("host"), Mapping):
        parts = (host.get("name"), host.get("system"), f"{host.get('cpus')} processors")
        rows.append(("machine", ", ".join(str(part) for part in parts if part is not None)))
    if isinstance(versions := lookup(manifest, "versions"), Mapping):
        known = {"python": manifest.get("python"), **versions}.items()
        rows.append(("versions", ", ".join(f"{name} {version}" for name, version in known if version)))
    if isinstance(git := manifest.get("git"), Mapping):
        changed = ", with changes that were not committed" * bool(git.get("changed"))
        rows.append(("program", f"commit {git.get('commit')}{changed}"))
    if isinstance(resumed := manifest.get("resumed"), list) and resumed:
        at = ", ".join(f"{step:,}" for entry in resumed if isinstance(step := lookup(entry, "step"), int))
        rows.append(("resumed", f"{counted(len(resumed), 'time')}, at step {at}"))
    if isinstance(seconds := facts.result.get("time"), Mapping) and facts.ended:
        known_seconds = {part: value for part, value in seconds.items() if isinstance(value, int | float)}
        rows.append(("time spent on", shares_text(known_seconds)))
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return [*rows, ("folder", str(facts.run.path)), ("this page", f"written {now}")]


def command_list(facts: Facts) -> list[tuple[str, str]]:
    """Return (purpose, command) of each command that the user may run next."""
    run = facts.run
    playing = playing_commands(run, facts.render_modes, episodes=100)
    return [
        ("Continue it", resume_command(run, *_further(facts))),
        *((PURPOSES[purpose], command) for purpose, command in playing.items()),
        ("All curves", tensorboard_command(run)),
        ("Write this page again", run.command("--report", run.name)),
    ]


def _further(facts: Facts) -> list[str]:
    """Return flags with which a finished run can be resumed beyond its end."""
    flags = facts.result.get("further")
    if facts.state != FINISHED or not isinstance(flags, list):
        return []
    return [flag for flag in flags if isinstance(flag, str)]
