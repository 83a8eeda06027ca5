"""``--list``: all tasks, or the sections and runs of one task."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from algorithm.config.locate import CONFIG_FILE, find_env, known_tasks
from algorithm.config.sections import read_sections
from algorithm.core.errors import StorageError
from algorithm.core.reading import read_bytes
from algorithm.core.wording import plus_minus
from algorithm.store.names import run_names, study_names
from algorithm.store.rundir import RunDir

_SECTION = re.compile(r"^(?P<name>\w+):\s*(?:#\s*(?P<text>.*))?$", re.MULTILINE)


_Table = tuple[str, Sequence[tuple[str, str]]]


def listing(env: str, models: Path, *, width: int = sys.maxsize) -> str:
    """Return a page of text. Raises ConfigError for an unknown task.

    env: the task; empty: all of them · models: folder of all runs · width: of a terminal
    """
    tables = _all_tasks() if not env else _task(env, models)
    return "\n\n".join(_page(title, rows, width) for title, rows in tables)


def _all_tasks() -> list[_Table]:
    """Return a table of tasks, with the first line of each file."""
    rows = []
    for name, file in known_tasks().items():
        first = _text(file).partition("\n")[0]
        rows.append((name, first.removeprefix("#").partition(": python ")[0].strip()))
    return [("tasks", rows)]


def _task(env: str, models: Path) -> list[_Table]:
    """Return a table of a task's sections, with the comments behind their names, and one of its runs."""
    folder, pages = find_env(env), list[_Table]()
    if folder.env_name is None:
        file = folder.path / CONFIG_FILE
        read, headings = read_sections(file, []), _SECTION.finditer(_text(file))
        rows = [
            (each["name"], each["text"] or "")
            for each in headings
            if not read or each["name"] in read.children
        ]
        pages.append(("sections", rows or [("none", "the file is one section")]))
    runs = [RunDir.open(folder.label, name, models=models) for name in run_names(folder.label, models=models)]
    pages.append(("runs", [(run.name, _result(run)) for run in runs] or [("none", "")]))
    studies = study_names(folder.label, models=models)
    if studies:
        pages.append(("studies", [(name, "") for name in studies]))
    return pages


def _result(run: RunDir) -> str:
    """Return the steps of a run and its last and best evaluation, as text."""
    if not run.result.is_file():
        return "not finished"
    try:
        return ", ".join(_scores(run.read_result()))
    except (StorageError, KeyError, TypeError, ValueError):
        return "its result.json cannot be read"


def _scores(result: Any) -> Iterator[str]:  # noqa: ANN401 - what a file holds
    """Yield the steps and evaluations of a run's result, as text."""
    yield f"{result['steps']:,} steps"
    for key, title in (("last_eval", "last"), ("best_eval", "best")):
        if evaluation := result.get(key):
            half = evaluation["ci95"]  # null for a single episode
            yield f"{title} {plus_minus(evaluation['mean'], float('nan') if half is None else half)}"


def _text(file: Path) -> str:
    """Return the content of a file; invalid bytes are replaced."""
    return read_bytes(file).decode("utf-8", "replace")


def _page(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    """Format a table with a title, folded to a width."""
    longest = max((len(name) for name, _ in rows), default=0)
    room, below = max(width - longest - 4, 10), "\n" + " " * (longest + 4)
    folded = [(name, below.join(wrap(text, room))) for name, text in rows]
    return "\n".join([title, *(f"  {name:<{longest}}  {text}".rstrip() for name, text in folded)])
