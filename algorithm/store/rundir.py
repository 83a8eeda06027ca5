"""The folder of a run: ``<models>/<env>/<name>/``. It owns every path below it."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import program
from algorithm.core.reading import read_json, read_lines
from algorithm.env.kinds import OBJECT_RUNS
from algorithm.store.files import finite_or_null, write_bytes, write_json, write_text
from algorithm.store.lock import holder_of
from algorithm.store.names import (
    MODELS,
    POPULATION,
    STUDY,
    candidates,
    check_directory,
    check_name,
    directory_flags,
    env_folder,
    is_run_name,
    is_taken,
    names_beside,
    run_names,
    shown,
)
from algorithm.store.provenance import file_state

_DEEPEST = Path("x" * 200, "x" * 200)
"""Path as long as the longest one below a run: that of a behaviour's file in a checkpoint."""


@dataclass
class _Start:
    """Progress of a start in the folder that it made."""

    began: bool = False  # the folder counts as a run, and nothing is taken back any more
    copied: list[Path] = field(default_factory=list)


class _Below:
    """A file or folder of a run, by its name below the run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, owner: type[RunDir] | None = None) -> Path:
        """Return its path."""
        return run.path / self._name


@dataclass(frozen=True)
class RunDir:
    """Paths of one run, absolute. Build it with ``create``, ``open`` or ``newest``.

    env:      the environment's label, such as ``gym/pendulum``.
    name:     the run's own name, placeholders already replaced.
    path:     the folder.
    argument: what the user types for the environment, for the commands shown to him.
    """

    env: str
    name: str
    path: Path
    argument: str
    _start: _Start = field(default_factory=_Start, compare=False, repr=False)

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
    """The same, one JSON object a line, written at once."""

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

    @classmethod
    def create(cls, env: str, template: str, *, models: Path = MODELS, argument: str = "") -> RunDir:
        """Make the folder of a new run, no two processes the same one. Raises UsageError, StorageError."""
        check_directory(models)
        parent = env_folder(env, models)
        for name in candidates(template):
            run = cls(env, name, parent / name, argument or env)
            if "/" in name and not (run.path.parent / STUDY).exists():
                check_name(name)  # which refuses it
            try:
                parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _not_writable(error, parent) from error
            try:
                if run.path.exists() and not is_taken(run.path):
                    run.overrides.touch(exist_ok=False)  # the first of those that begin there now has it
                else:
                    run.path.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise _not_writable(error, run.path) from error
            run.check_writable()
            return run
        raise _taken(run)

    @classmethod
    def check_free(cls, env: str, template: str, *, models: Path = MODELS, argument: str = "") -> None:
        """Raise UsageError, as :meth:`create` would, if ``template`` gives no free name now."""
        parent = env_folder(env, models)
        for name in candidates(template):
            if not is_taken(parent / name):
                return
        raise _taken(cls(env, name, parent / name, argument or env))

    @classmethod
    def open(
        cls, env: str, name: str, *, models: Path = MODELS, argument: str = "", flag: str = "-n"
    ) -> RunDir:
        """Return the folder of an existing run; ``flag`` has named it.

        Raises StorageError, with the runs there are, without one.
        """
        if not is_run_name(name):
            check_name(name)
        run = cls(env, name, env_folder(env, models) / name, argument or env)
        if name in names_beside(env, name, models=models):
            return run
        if is_taken(run.path) and not run.config.exists():
            raise _taken(run)
        raise _unknown(f"there is no run {name!r} of {env}", env, name, models, argument, flag)

    @classmethod
    def newest(cls, env: str, *, models: Path = MODELS, argument: str = "") -> RunDir:
        """Return the run that was started last. Raises StorageError if there is none."""
        known = run_names(env, models=models)
        if not known:
            raise _unknown(f"there is no run of {env} yet", env, "", models, argument)
        return cls.open(env, known[0], models=models, argument=argument)

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
        """True if its environment was an object of Python code, for which commands have no name."""
        return self.env.startswith(OBJECT_RUNS)

    @property
    def in_python(self) -> str:
        """The run in Python, with an environment that was an object as ``env``."""
        return f"asac.Run({self.shown(self.path)!r}{', env=env' * self.of_object})"

    def beginning(self, name: str, **flags: str) -> str:
        """Return what begins another run of that name: a command, or arguments in Python."""
        if self.of_object:
            return ", ".join(f"{key}={value!r}" for key, value in {"name": name, **flags}.items())
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return self.training_command("-n", name, *words)

    def training_command(self, *flags: str) -> str:
        """Return the same for what trains in this folder, which for some runs is a learner."""
        return self.command(*flags, role="learner" if self.endpoint.exists() else "")

    def take_back(self) -> None:
        """Remove what a start that failed has left in the folder it made, and folders that are empty then.

        Only files that a start writes, by their names, and none after :meth:`write_config`: what was trained
        stays, whatever has become of its configuration since. The logs of a Unity player that did not start
        stay, too, for its error names them.
        """
        if self._start.began:
            return
        made = (self.train_log, self.overrides, self.manifest, self.report, *self._start.copied)
        for file in (*made, *self.workers.glob("worker_*.log")):
            with contextlib.suppress(OSError):
                file.unlink()
        for folder in (self.workers, *(copy.parent for copy in self._start.copied)):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):  # not empty
            named = self.models != MODELS.absolute()  # by the user, and perhaps made by him
            for folder in [self.path, *self.path.parents][: self.env.count("/") + (2 if named else 3)]:
                folder.rmdir()

    def check_writable(self) -> None:
        """Raise StorageError unless files can be made in the folder, however deep."""
        try:
            with tempfile.TemporaryFile(dir=self.path):
                (self.path / _DEEPEST).exists()  # which fails where the path is too long
        except OSError as error:
            raise _not_writable(error, self.path) from error

    def write_config(self, text: str) -> None:
        """Keep the effective configuration; from then on the folder counts as a run."""
        write_text(self.config, text)
        self._start.began = True

    def write_overrides(self, overrides: Sequence[str]) -> None:
        """Keep what the command line changed, one a line."""
        write_text(self.overrides, "".join(f"{line}\n" for line in overrides))

    def write_manifest(
        self,
        begun: Mapping[str, object],
        *,
        seeds: Mapping[str, int],
        render_modes: Sequence[str] = (),
        spaces: Mapping[str, object] | None = None,
        init_from: Mapping[str, object] | None = None,
    ) -> None:
        """Keep what is needed to repeat the run, and to show it.

        begun: of :func:`~algorithm.store.provenance.start_of`; seeds: by what they seed; render_modes: of the
        environment; spaces: of each behaviour, as JSON; init_from: checkpoint whose networks it begins with
        """
        manifest = {
            "env": self.env,
            "name": self.name,
            "seeds": dict(seeds),
            "render_modes": list(render_modes),
            "spaces": dict(spaces or {}),
            **({"init_from": dict(init_from)} if init_from else {}),
            **begun,
        }
        write_json(self.manifest, manifest)

    def note_resumed(self, begun: Mapping[str, object], *, step: int, overrides: Sequence[str]) -> None:
        """Add to the manifest that the run goes on from ``step``, and to the overrides what is new.

        begun: as in :meth:`write_manifest`
        """
        manifest, resumed = self._begun_and_resumed()
        write_json(self.manifest, {**manifest, "resumed": [*resumed, {"step": step, **begun}]})
        if overrides:
            before = read_lines(self.overrides) if self.overrides.exists() else []
            self.write_overrides([*before, *overrides])

    @property
    def free_name(self) -> str:
        """A name like its own, for another run."""
        names = (f"{self.name}_{n}" for n in itertools.count(2))
        return next(name for name in names if not (self.models / self.env / name).exists())

    def has_other(self, env_file: Path) -> bool:
        """Return whether the environment's file has changed since the run was begun, or last resumed."""
        manifest, resumed = self._begun_and_resumed()
        known = (resumed[-1] if resumed else manifest).get("env_file")
        return isinstance(known, Mapping) and known.get("sha256") != file_state(env_file)["sha256"]

    @property
    def device(self) -> str:
        """The device that was named last, when the run was begun or resumed; ``auto`` if none ever was."""
        manifest, resumed = self._begun_and_resumed()
        named = (str(one.get("device", "auto")) for one in (*reversed(resumed), manifest))
        return next((name for name in named if name != "auto"), "auto")

    def _begun_and_resumed(self) -> tuple[dict[str, object], list[dict[str, object]]]:
        """Read the manifest, and its entries for each time the run was resumed. Raises StorageError."""
        manifest = read_json(self.manifest)
        resumed = manifest.get("resumed", [])
        if not isinstance(resumed, list) or not all(isinstance(each, dict) for each in resumed):
            raise StorageError(
                "a JSON file is damaged",
                where=self.manifest,
                why="`resumed` is not a list of objects",
                fix="fix that entry, or remove it",
            )
        return manifest, resumed

    def copy_nn(self, source: Path, name: str) -> None:
        """Keep the user's networks as they are now. name: as in the task's folder, below which they lie."""
        try:
            source_bytes = source.read_bytes()
        except OSError as error:
            raise StorageError.of(error, what="the networks cannot be read", where=source) from error
        copy = self.path / name
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _not_writable(error, copy.parent) from error
        write_bytes(copy, source_bytes)
        self._start.copied.append(copy)

    @property
    def init_from(self) -> object:
        """Checkpoint of another run whose networks it has begun with; None without one."""
        with contextlib.suppress(StorageError):  # a damaged manifest is told where it is needed
            return read_json(self.manifest).get("init_from")
        return None

    def write_result(self, result: Mapping[str, object]) -> None:
        """Write ``result.json``; NaN and infinity become null."""
        write_json(self.result, cast("Mapping[str, object]", finite_or_null(result)))

    def read_result(self) -> dict[str, object]:
        """Read what ``write_result`` wrote. Raises StorageError."""
        return read_json(self.result)


def no_run_matches(env: str, pattern: str, *, models: Path = MODELS, argument: str = "") -> UsageError:
    """Return the error for a pattern of names that fits none of the runs there are."""
    known = run_names(env, models=models)
    why, fix = _instead(known, argument or env, models, "--report")
    return UsageError(
        f"no run of {env} matches {pattern!r}", where=shown(env_folder(env, models)), why=why, fix=fix
    )


def _not_writable(error: OSError, path: Path) -> StorageError:
    return StorageError.of(error, what="the run's folder cannot be written", where=shown(path))


def _unknown(what: str, env: str, name: str, models: Path, argument: str, flag: str = "-n") -> StorageError:
    known = names_beside(env, name, models=models)
    why, fix = _instead(known, argument or env, models, flag)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        fix = f"did you mean {flag} {shlex.quote(close[0])}?"
    return StorageError(what, where=shown(env_folder(env, models)), why=why, fix=fix)


def _instead(known: Sequence[str], argument: str, models: Path, flag: str) -> tuple[str, str]:
    """Return the runs there are, and advice where another one was asked for."""
    if not known:
        train = shlex.join([*program(), argument, *directory_flags(models)])
        return "nothing was saved there", f"train first: {train}"
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    why = f"runs there, newest first: {', '.join(known[:10])}{more}"
    return why, f"choose one: {flag} {shlex.quote(known[0])}"


def _taken(run: RunDir) -> UsageError:
    beside, free = {one.name for one in run.path.parent.iterdir()}, run.free_name
    what, why = f"a run named {run.name!r} exists already", "training again there would mix two runs"
    resume, play = run.training_command("-n", run.name, "--resume"), run.command("-n", run.name, "--run")
    fix = f"{resume}    (continue it)\n{play}    (use what it learned)\n"
    other = run.beginning(free)
    if (run.path / POPULATION).exists():
        members = sum(bool(re.fullmatch(rf"{re.escape(run.name)}_\d+", one)) for one in beside)
        what, why = (
            f"a population named {run.name!r} exists already",
            "a run, a population or a study needs its own name",
        )
        words = [f"--num_learners={members}", "-n"]
        fix = f"{run.command(*words, run.name, '--resume', role='evolver')}    (continue it)\n"
        other = run.command(*words, free, role="evolver")
    elif (run.path / STUDY).exists():
        what, why = (
            f"a study named {run.name!r} exists already",
            "a run, a population or a study needs its own name",
        )
        fix = f"{run.command('--tune', run.name, '--resume')}    (continue it)\n"
        other = run.command("--tune", free)
    elif not run.config.exists():
        return _no_run(run, free)
    elif run.of_object:
        fix = f"{run.in_python}.resume()    (continue it)\n"
    return UsageError(what, where=shown(run.path), why=why, fix=f"{fix}{other}    (train another one)")


def _no_run(run: RunDir, free: str) -> UsageError:
    """Return the error for a folder without a configuration. What may be at work or in use stays there.

    free: a name for another run
    """
    what = f"there is something else with the name {run.name!r}"
    fix = f"{run.beginning(free)}    (train another one)"
    saved = [file.parent for file in sorted(run.checkpoints.glob("step_*/manifest.json"))]
    if holder := holder_of(run.lock):
        what, why = f"a run named {run.name!r} is already active", str(holder)
    elif saved:
        what, why = f"the run {run.name!r} has lost its config.yaml", "its checkpoints are still there"
        newest = shown(saved[-1])
        fix = (
            "restore a copy of that file to continue it, or start from its "
            f"networks:\n{run.beginning(free, init_from=newest)}\n{fix}"
        )
    else:
        why = "it is not a run, since it has no config.yaml: a run is starting, or its start was cut off"
        fix = f"{fix}\nif none is starting, check the folder and move it away"
    return UsageError(what, where=shown(run.path), why=why, fix=fix)
