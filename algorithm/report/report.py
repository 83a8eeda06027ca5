"""``report.html``, the page about a run. Loads neither torch nor matplotlib.

Everything the page shows stands in it: no script, no network, and every text from a file is escaped.
"""

from __future__ import annotations

from pathlib import Path

from algorithm.report.facts import Facts, number
from algorithm.report.html import Markup, join, notice, page, section, tag
from algorithm.report.panels import diagnostics, learning_curve
from algorithm.report.sections import command_list, headline, origin, settings, videos
from algorithm.run.files import write_text
from algorithm.run.rundir import RunDir
from algorithm.spec import DEFAULT_BEHAVIOUR


def write_report(run: RunDir) -> Path:
    """Write the page about ``run`` into its folder; returns its path.

    A run that is still going on, was killed, was never evaluated or has damaged files gets a page that says
    so. Raises StorageError where the page cannot be written.
    """
    path = run.report
    write_text(path, render(Facts.gather(run)))
    return path


def render(facts: Facts) -> Markup:
    """The page about a run."""
    title = f"{facts.run.env}, {facts.run.name}"
    return page(
        title,
        tag("h1", title),
        tag("p", _subtitle(facts), class_="lead"),
        join(notice(problem) for problem in facts.problems),
        headline(facts),
        join(_behaviour(facts, name) for name in facts.behaviours),
        videos(facts),
        settings(facts),
        origin(facts),
        command_list(facts),
    )


def _subtitle(facts: Facts) -> str:
    started = facts.manifest.get("started")
    parts = [facts.state, f"seed {facts.seed}"]
    if facts.config and facts.config.config.base_config.env_name:  # a file that was emptied has none
        parts.insert(0, facts.config.config.base_config.env_name)
    return " · ".join([*parts, *([f"begun {_minute(started)}"] if isinstance(started, str) else [])])


def _minute(time: str) -> str:
    """Of an ISO 8601 time that a file holds, date, hour and minute, in the file's zone."""
    return time[:16].replace("T", " ") + (" UTC" if time.endswith("+00:00") else "")


def _behaviour(facts: Facts, behaviour: str) -> Markup:
    """Curves of one behaviour; its name is shown only where there are several."""
    columns = facts.metrics.get(behaviour)
    suffix = "" if behaviour == DEFAULT_BEHAVIOUR else f": {behaviour}"
    if columns is None:
        return section("Learning curve", tag("p", "Nothing was measured yet."))
    never = tag("p", "The run was not evaluated yet.") if not facts.evaluations(behaviour) else None
    charts = diagnostics(columns, replay_ratio=_replay_ratio(facts, behaviour))
    return join(
        [
            section(f"Learning curve{suffix}", never, learning_curve(columns)),
            section(f"Diagnostics{suffix}", charts) if charts else None,
        ]
    )


def _replay_ratio(facts: Facts, behaviour: str) -> float | None:
    if facts.config is None:
        return None
    sac = facts.config.for_behaviour(behaviour).sac_config
    return number(sac.replay_ratio) if sac.use_replay_buffer else None
