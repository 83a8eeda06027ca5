"""Paths of a run, and the commands for it."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass
from pathlib import Path

from algorithm.core.program import program
from algorithm.env.kinds import OBJECT_RUNS
from algorithm.store.names import directory_flags, shown


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
