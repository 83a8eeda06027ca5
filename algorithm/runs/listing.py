"""``--list``: the tasks and plug-ins there are, or the sections and runs of one task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from algorithm.agents.registry import ALGORITHMS
from algorithm.config.locate import CONFIG_FILE, find_env, known_tasks
from algorithm.config.sections import read_sections
from algorithm.core.errors import StorageError
from algorithm.core.plugins import EXTENSIONS, NETWORKS, SAMPLERS, listed
from algorithm.core.reading import read_bytes
from algorithm.core.wording import plus_minus
from algorithm.env.kinds import ENVS
from algorithm.runs.names import run_names, study_names
from algorithm.runs.rundir import RunDir

_SECTION = re.compile(r"^(?P<name>\w+):\s*(?:#\s*(?P<text>.*))?$", re.MULTILINE)


def listing(env: str, models: Path) -> str:
    """Return a page for a person. Raises ConfigError for an unknown task.

    env: the task; empty: all of them · models: folder of all runs
    """
    return _all_tasks() if not env else _task(env, models)


def _all_tasks() -> str:
    """Return each task with what its file begins with, and the plug-ins of installed packages."""
    rows = []
    for name, file in known_tasks().items():
        first = _text(file).partition("\n")[0]
        rows.append((name, first.removeprefix("#").partition(": python ")[0].strip()))
    plugins = list(listed(ALGORITHMS, ENVS, EXTENSIONS, NETWORKS, SAMPLERS))
    return "\n\n".join([_page("tasks", rows), *([_page("plug-ins", plugins)] if plugins else [])])


def _task(env: str, models: Path) -> str:
    """Return a task's sections, with what stands behind their names, and its runs with their results."""
    folder, pages = find_env(env), list[str]()
    if folder.env_name is None:
        file = folder.path / CONFIG_FILE
        read, found = read_sections(file, []), _SECTION.finditer(_text(file))
        rows = [
            (each["name"], each["text"] or "") for each in found if not read or each["name"] in read.children
        ]
        pages.append(_page("sections", rows or [("none", "the file is one section")]))
    names = run_names(folder.label, models=models)
    runs = [RunDir.open(folder.label, name, models=models) for name in names]
    pages.append(_page("runs", [(run.name, _result(run)) for run in runs] or [("none", "")]))
    studies = study_names(folder.label, models=models)
    if studies:
        pages.append(_page("studies", [(name, "") for name in studies]))
    return "\n\n".join(pages)


def _result(run: RunDir) -> str:
    """Return how far a run has come, and its evaluations."""
    if not run.result.is_file():
        return "not finished"
    try:
        return ", ".join(_scores(run.read_result()))
    except (StorageError, KeyError, TypeError, ValueError):
        return "its result.json cannot be read"


def _scores(said: Any) -> Iterator[str]:  # noqa: ANN401 - what a file holds
    yield f"{said['steps']:,} steps"
    for key, title in (("last_eval", "last"), ("best_eval", "best")):
        if found := said.get(key):
            half = found["ci95"]  # null for a single episode
            yield f"{title} {plus_minus(found['mean'], float('nan') if half is None else half)}"


def _text(file: Path) -> str:
    return read_bytes(file).decode("utf-8", "replace")


def _page(title: str, rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {text}".rstrip() for name, text in rows)])
