"""``--report``: the page of one run, or the comparison of several."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.app.report.report import write_report
from algorithm.config.locate import EnvFolder
from algorithm.core.extras import extra
from algorithm.store.names import MODELS, POPULATION, STUDY, env_folder, is_name, names_beside
from algorithm.store.run_paths import no_run_matches
from algorithm.store.rundir import RunDir

_WILD = frozenset("*?[")


def report(options: TrainOptions, folder: EnvFolder) -> int:
    """Write the pages of ``--report NAME [NAME …]`` and print their paths; return the exit code.

    One name: the page of that run. Several, a name with ``*``, ``?`` or ``[…]``, or that of a study or
    population: a page that compares those runs. Raises UsageError for a pattern without runs,
    StorageError for a run that does not exist and a page that cannot be written.
    """
    names, models, argument = options.report, options.directory, options.env
    if len(names) == 1 and is_name(names[0]):
        path = env_folder(folder.label, models) / names[0]
        if (path / STUDY).is_file():
            names = (f"{names[0]}/*",)
        elif (path / POPULATION).is_file():
            names = _members(folder.label, names[0], models=models, argument=argument)
    matched = matching_names(folder.label, names, models=models, argument=argument)
    runs = [
        RunDir.open(folder.label, name, models=models, argument=argument, flag="--report") for name in matched
    ]
    if len(names) == 1 and not _WILD & set(names[0]):
        page = write_report(runs[0])
    else:
        page = extra("write_comparison")(runs)
    print(runs[0].shown(page))
    return 0


def _members(env: str, population: str, *, models: Path, argument: str) -> tuple[str, ...]:
    """Return the names of a population's members, the oldest first. Raises UsageError if none has begun."""
    form = re.compile(rf"{re.escape(population)}_[0-9]+")
    members = tuple(filter(form.fullmatch, names_beside(env, population, models=models)[::-1]))
    if not members:
        raise no_run_matches(env, f"{population}_*", models=models, argument=argument)
    return members


def matching_names(
    env: str, patterns: tuple[str, ...], *, models: Path = MODELS, argument: str = ""
) -> list[str]:
    """Return the names of runs of ``env`` that match, each once, by order of patterns, the oldest first.

    A name without a wildcard is returned unchecked. Raises UsageError for a pattern that matches none.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        known = names_beside(env, pattern, models=models)[::-1]
        if pattern in known or not _WILD & set(pattern):
            names[pattern] = None
            continue
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            raise no_run_matches(env, pattern, models=models, argument=argument)
        names |= dict.fromkeys(matched)
    return list(names)
