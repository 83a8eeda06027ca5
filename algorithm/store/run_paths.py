"""Paths of a run, the commands for it, and errors about its folder."""

from __future__ import annotations

import difflib
import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import program
from algorithm.env.kinds import OBJECT_RUNS
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


class _Below:
    """A file or folder of a run, by its name below the run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunPaths, owner: type[RunPaths] | None = None) -> Path:
        """Return the path of the file or folder of a run."""
        return run.path / self._name


@dataclass(frozen=True)
class RunPaths:
    """Paths of one run, absolute.

    env:      the environment's label, such as ``gym/pendulum``.
    name:     the run's own name, placeholders already replaced.
    path:     the folder.
    argument: the environment as the user types it, for commands in messages.
    """

    env: str
    name: str
    path: Path
    argument: str

    config = _Below("config.yaml")
    """The effective configuration."""

    overrides = _Below("overrides.txt")
    """Overrides of the command line."""

    manifest = _Below("manifest.json")
    """Versions, commit, arguments, seeds and host, with which the run can be repeated."""

    checkpoints = _Below("checkpoints")
    """Folder of ``step_…`` folders."""

    lock = _Below("run.lock")
    """JSON that names the process that trains here now."""

    replay = _Below("replay")
    """Folder of the replays' segments, which checkpoints share."""

    videos = _Below("videos")
    """Folder of filmed episodes."""

    metrics_csv = _Below("metrics.csv")
    """All metrics as a table, one row a summary; written with every checkpoint and at the end."""

    metrics_jsonl = _Below("metrics.jsonl")
    """All metrics, one JSON object a line, each written at once."""

    log = _Below("log")
    """Folder of TensorBoard's event files."""

    wandb = _Below("wandb")
    """Folder of W&B's own files; absent without W&B."""

    train_log = _Below("train.log")
    """Everything printed on the console, and more with ``--logger_in_file``."""

    workers = _Below("workers")
    """Folder of the output of environments' worker processes; absent without such processes."""

    players = _Below("players")
    """Folder of the output and logs of Unity's players; absent without such players."""

    result = _Below("result.json")
    """The outcome, for programs."""

    report = _Below("report.html")
    """The page about the run."""

    plots = _Below("plots")
    """Folder of pictures."""

    endpoint = _Below("endpoint.json")
    """File with the address of the run's learner; absent in a run of one process."""

    def shown(self, path: Path) -> str:
        """Format ``path`` for reading and pasting: relative to the current directory if below it."""
        return shown(path)

    @property
    def models(self) -> Path:
        """Folder of all runs, absolute."""
        return self.path.parents[self.env.count("/") + self.name.count("/") + 1]

    def command(self, *flags: str, role: str = "") -> str:
        """Return a shell command for this environment, quoted: ``python main.py ENV flags…``.

        role: of ``main_ds.py``; empty: the command is one of ``main.py``
        """
        words = [*program("main_ds.py" if role else "main.py"), self.argument, *([role] if role else [])]
        return shlex.join([*words, *directory_flags(self.models), *flags])

    @property
    def of_object(self) -> bool:
        """Whether the environment was passed as a Python object, which has no name for a command."""
        return self.env.startswith(OBJECT_RUNS)

    @property
    def in_python(self) -> str:
        """Python expression for the run; ``env`` stands for an environment that was passed as an object."""
        return f"asac.Run({self.shown(self.path)!r}{', env=env' * self.of_object})"

    def new_run_command(self, name: str, **flags: str) -> str:
        """Return the command, or the Python arguments, for a new run of that name in the same environment."""
        if self.of_object:
            return ", ".join(f"{key}={value!r}" for key, value in {"name": name, **flags}.items())
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return self.training_command("-n", name, *words)

    def training_command(self, *flags: str) -> str:
        """Return a command as :meth:`command`, for the program that trains here: for some runs a learner."""
        return self.command(*flags, role="learner" if self.endpoint.exists() else "")

    @property
    def free_name(self) -> str:
        """A free name for another run, similar to this run's."""
        names = (f"{self.name}_{n}" for n in itertools.count(2))
        return next(name for name in names if not (self.models / self.env / name).exists())


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
