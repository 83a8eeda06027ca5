"""Errors about a run's folder: it is missing, its name is taken, it cannot be written."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from pathlib import Path

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import program
from algorithm.store.lock import holder_of
from algorithm.store.names import (
    MODELS,
    POPULATION,
    STUDY,
    directory_flags,
    env_folder,
    names_beside,
    run_names,
    shown,
)
from algorithm.store.run_paths import RunPaths


def no_run_matches(env: str, pattern: str, *, models: Path = MODELS, argument: str = "") -> UsageError:
    """Return the error for a pattern that matches the name of no run, with the names of existing runs.

    argument: the task as on the command line; empty: ``env``
    """
    known = run_names(env, models=models)
    why, fix = _instead(known, argument or env, models, "--report")
    return UsageError(
        f"no run of {env} matches {pattern!r}", where=shown(env_folder(env, models)), why=why, fix=fix
    )


def not_writable(error: OSError, path: Path) -> StorageError:
    """Return the error for a folder that cannot be written."""
    return StorageError.of(error, what="the run's folder cannot be written", where=shown(path))


def unknown_run(
    what: str, env: str, name: str, models: Path, argument: str, flag: str = "-n"
) -> StorageError:
    """Return the error for a name that no run has, with the names of existing runs.

    argument: as of :func:`no_run_matches`; flag: takes the name in the advice
    """
    known = names_beside(env, name, models=models)
    why, fix = _instead(known, argument or env, models, flag)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        fix = f"did you mean {flag} {shlex.quote(close[0])}?"
    return StorageError(what, where=shown(env_folder(env, models)), why=why, fix=fix)


def _instead(known: Sequence[str], argument: str, models: Path, flag: str) -> tuple[str, str]:
    """Return the names of existing runs as a reason, and advice to choose one of them."""
    if not known:
        train = shlex.join([*program(), argument, *directory_flags(models)])
        return "nothing was saved there", f"train first: {train}"
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    why = f"runs there, newest first: {', '.join(known[:10])}{more}"
    return why, f"choose one: {flag} {shlex.quote(known[0])}"


def taken_name(run: RunPaths) -> UsageError:
    """Return the error for a name that is taken, with commands for the run or study that has it."""
    free = run.free_name
    kind, other = "run", run.new_run_command(free)
    resume = run.training_command("-n", run.name, "--resume")
    fix = [f"{resume}    (continue it)", f"{run.command('-n', run.name, '--run')}    (use what it learned)"]
    if (run.path / POPULATION).exists():
        members = len([*run.path.parent.glob(f"{run.name}_[0-9]*")])
        words = [f"--num_learners={members}", "-n"]
        kind, other = "population", run.command(*words, free, role="evolver")
        fix = [f"{run.command(*words, run.name, '--resume', role='evolver')}    (continue it)"]
    elif (run.path / STUDY).exists():
        kind, other = "study", run.command("--tune", free)
        fix = [f"{run.command('--tune', run.name, '--resume')}    (continue it)"]
    elif not run.config.exists():
        return _no_run(run, free)
    elif run.of_object:
        fix = [f"{run.in_python}.resume()    (continue it)"]
    return UsageError(
        f"a {kind} named {run.name!r} exists already",
        where=shown(run.path),
        why="training again there would mix two of them",
        fix="\n".join([*fix, f"{other}    (train another one)"]),
    )


def _no_run(run: RunPaths, free: str) -> UsageError:
    """Return the error for a folder without a configuration, which is kept: a process may be using it.

    free: a free name, for the command of another run
    """
    what, why = f"there is something else with the name {run.name!r}", "it has no config.yaml"
    fix = f"{run.new_run_command(free)}    (train another one)"
    saved = sorted(run.checkpoints.glob("step_*/manifest.json"))
    if holder := holder_of(run.lock):
        what, why = f"a run named {run.name!r} is already active", str(holder)
    elif saved:
        again = run.new_run_command(free, init_from=shown(saved[-1].parent))
        fix = f"restore a copy of that file, or start from its networks:\n{again}\n{fix}"
    else:
        fix = f"{fix}\nif none is starting, check the folder and move it away"
    return UsageError(what, where=shown(run.path), why=why, fix=fix)
