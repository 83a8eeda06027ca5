"""The folder of a run: ``<models>/<env>/<name>/``."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_json, read_lines
from algorithm.store.files import finite_or_null, write_bytes, write_json, write_text
from algorithm.store.names import (
    MODELS,
    STUDY,
    candidates,
    check_name,
    env_folder,
    is_run_name,
    is_taken,
    names_beside,
    run_names,
)
from algorithm.store.provenance import file_state
from algorithm.store.run_paths import RunPaths, not_writable, taken_name, unknown_run

_DEEPEST = Path("x" * 200, "x" * 200)
"""Path as long as the longest one below a run: that of a behaviour's file in a checkpoint."""


@dataclass
class _Start:
    """Files of a start, so that a failed one can be undone."""

    began: bool = False  # the folder counts as a run, and is not removed any more
    copied: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class RunDir(RunPaths):
    """A run's folder: made, found and written. Build it with ``create``, ``open`` or ``newest``."""

    _start: _Start = field(default_factory=_Start, compare=False, repr=False)

    @classmethod
    def create(cls, env: str, template: str, *, models: Path = MODELS, argument: str = "") -> RunDir:
        """Make the folder of a new run, which no other process can get. Raises UsageError, StorageError."""
        parent = env_folder(env, models)
        for name in candidates(template):
            run = cls(env, name, parent / name, argument or env)
            if "/" in name and not (run.path.parent / STUDY).exists():
                check_name(name)  # which refuses it
            try:
                parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise not_writable(error, parent) from error
            try:
                if run.path.exists() and not is_taken(run.path):
                    run.overrides.touch(exist_ok=False)  # the first of those that begin there now has it
                else:
                    run.path.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise not_writable(error, run.path) from error
            run.check_writable()
            return run
        raise taken_name(run)

    @classmethod
    def check_free(cls, env: str, template: str, *, models: Path = MODELS, argument: str = "") -> None:
        """Raise UsageError, as :meth:`create` would, if ``template`` gives no free name now."""
        parent = env_folder(env, models)
        for name in candidates(template):
            if not is_taken(parent / name):
                return
        raise taken_name(cls(env, name, parent / name, argument or env))

    @classmethod
    def open(
        cls, env: str, name: str, *, models: Path = MODELS, argument: str = "", flag: str = "-n"
    ) -> RunDir:
        """Return the folder of an existing run. flag: option with which the user named it.

        Raises StorageError, with the names of existing runs, if there is none of that name.
        """
        if not is_run_name(name):
            check_name(name)
        run = cls(env, name, env_folder(env, models) / name, argument or env)
        if name in names_beside(env, name, models=models):
            return run
        if is_taken(run.path) and not run.config.exists():
            raise taken_name(run)
        raise unknown_run(f"there is no run {name!r} of {env}", env, name, models, argument, flag)

    @classmethod
    def newest(cls, env: str, *, models: Path = MODELS, argument: str = "") -> RunDir:
        """Return the run that was started last. Raises StorageError if there is none."""
        known = run_names(env, models=models)
        if not known:
            raise unknown_run(f"there is no run of {env} yet", env, "", models, argument)
        return cls.open(env, known[0], models=models, argument=argument)

    def remove_failed_start(self) -> None:
        """Remove the files of a failed start from the folder that it made, and folders that are empty then.

        Only files that a start writes, by their names, and none after :meth:`write_config`: trained runs
        stay, whatever happened to their configuration since. The logs of a Unity player that did not start
        stay, too, since its error names them.
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
        """Raise StorageError unless files can be made in the folder, also those with the longest paths."""
        try:
            with tempfile.TemporaryFile(dir=self.path):
                (self.path / _DEEPEST).exists()  # which fails where the path is too long
        except OSError as error:
            raise not_writable(error, self.path) from error

    def write_config(self, text: str) -> None:
        """Write the effective configuration; from then on the folder counts as a run."""
        write_text(self.config, text)
        self._start.began = True

    def write_overrides(self, overrides: Sequence[str]) -> None:
        """Write the overrides of the command line, one a line."""
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
        """Write the facts with which the run can be repeated and shown.

        begun:     from :func:`~algorithm.store.provenance.describe_start`
        seeds:     purpose -> seed
        render_modes: of the environment
        spaces:    of each behaviour, as JSON
        init_from: checkpoint whose networks the run begins with
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
        """Add a resume from ``step`` to the manifest, and new overrides to theirs.

        begun: as in :meth:`write_manifest`
        """
        manifest, resumed = self._begun_and_resumed()
        write_json(self.manifest, {**manifest, "resumed": [*resumed, {"step": step, **begun}]})
        if overrides:
            before = read_lines(self.overrides) if self.overrides.exists() else []
            self.write_overrides([*before, *overrides])

    def env_file_changed(self, env_file: Path) -> bool:
        """Return whether the environment's file has changed since the run began, or was last resumed."""
        manifest, resumed = self._begun_and_resumed()
        known = (resumed[-1] if resumed else manifest).get("env_file")
        return isinstance(known, Mapping) and known.get("sha256") != file_state(env_file)["sha256"]

    @property
    def device(self) -> str:
        """The last device that the user named when the run began or was resumed; ``auto`` if none."""
        manifest, resumed = self._begun_and_resumed()
        named = (str(begun.get("device", "auto")) for begun in (*reversed(resumed), manifest))
        return next((name for name in named if name != "auto"), "auto")

    def _begun_and_resumed(self) -> tuple[dict[str, object], list[dict[str, object]]]:
        """Read the manifest; return it and its entries for each resume, oldest first. Raises StorageError."""
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
        """Copy the user's file of networks. name: path of the copy, as below the task's folder."""
        try:
            source_bytes = source.read_bytes()
        except OSError as error:
            raise StorageError.of(error, what="the networks cannot be read", where=source) from error
        copy = self.path / name
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_writable(error, copy.parent) from error
        write_bytes(copy, source_bytes)
        self._start.copied.append(copy)

    @property
    def init_from(self) -> object:
        """Checkpoint of another run whose networks this run began with; None without one."""
        with contextlib.suppress(StorageError):  # a damaged manifest is reported where it is needed
            return read_json(self.manifest).get("init_from")
        return None

    def write_result(self, result: Mapping[str, object]) -> None:
        """Write ``result.json``; NaN and infinity become null."""
        write_json(self.result, cast("Mapping[str, object]", finite_or_null(result)))

    def read_result(self) -> dict[str, object]:
        """Read ``result.json``. Raises StorageError."""
        return read_json(self.result)
