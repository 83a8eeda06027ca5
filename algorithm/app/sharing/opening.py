"""An export as the folder of a run, which everything that plays can read."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from algorithm.app.cli.flag_types import HUB
from algorithm.app.cli.train import TrainOptions
from algorithm.app.resume import find_run
from algorithm.app.sharing.archive import CONFIG, WEIGHTS, ExportManifest, refused, unpack
from algorithm.app.sharing.card import task_of
from algorithm.app.sharing.hub import fetch
from algorithm.app.sharing.trust import refuse_code
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import VERSION, program, said
from algorithm.core.reading import read_json
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.env.pool.repetition import other_limits, spec_as_json, specs_of
from algorithm.runs.checkpoints.checkpoint import Checkpoint, checkpoint_of
from algorithm.runs.checkpoints.manager import find_checkpoint
from algorithm.runs.checkpoints.manifest import MANIFEST, STATE, Entry, Manifest
from algorithm.runs.files import json_text
from algorithm.runs.names import Ckpt, env_folder
from algorithm.runs.rundir import RunDir
from algorithm.train.state import masked_in


class Export:
    """An export, verified and unpacked into a folder that goes with this object.

    source: as it was given
    run:    the folder as a run with a single checkpoint, which is the best and the latest
    loaded: its configuration
    trusted: somebody has said that its code may run
    """

    def __init__(self, source: str, manifest: ExportManifest, folder: Path, *, trusted: bool) -> None:
        self.source = source
        self.trusted = trusted
        self.manifest = manifest
        self.run = RunDir(manifest.env, source, folder, manifest.env)
        self.loaded = _configuration(source, manifest, folder)
        if self.loaded.drawn:  # whoever reads it again would not get what was looked at
            why = f"its {CONFIG} draws {', '.join(self.loaded.drawn)}; --export writes values"
            raise refused(source, why)
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def versions(self) -> str:
        """The versions that wrote and read it, for errors."""
        return f"it was written by version {self.manifest.version}, this is version {VERSION}"


def open_export(source: str, *, trust: bool = False) -> Export:
    """Verify an export and unpack it.

    source: path of a zip, or ``hf://OWNER/NAME``
    trust:  run the code that is in it or that it names
    Raises StorageError if it is not what was written, UsageError for code without ``trust`` and for a
    configuration that this version does not know.
    """
    file = fetch(source) if source.startswith(HUB) else Path(source)
    manifest, files = unpack(file, source)
    folder = Path(tempfile.mkdtemp(prefix="asac-"))
    try:
        (folder / CONFIG).write_bytes(files[CONFIG])
        export = Export(source, manifest, folder, trusted=trust)
        if not trust:
            refuse_code(source, export.loaded, files)
        _write(folder, manifest.step, files)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise StorageError.of(error, what="the export cannot be unpacked", where=folder) from error
    return export


@dataclass(frozen=True)
class PlayableRun:
    """A run that is to be played.

    run:    its files
    output: folder for what playing writes; that of the run itself unless it is an export
    """

    run: RunDir
    output: RunDir
    export: Export | None = None

    @contextmanager
    def fitting(self, specs: Mapping[str, AgentSpec], *, warn: Callable[[str], None]) -> Iterator[None]:
        """Build agents for ``specs`` and load networks. Raises UsageError if an export does not fit them.

        warn: told what else is different in the environment
        """
        for line in other_limits(specs, self.spaces):
            warn(line)
        export = self.export
        if export is None:
            yield
            return
        self.agree(specs)
        try:
            yield
        except StorageError as error:
            raise StorageError(
                "the networks of the export do not fit",
                where=export.source,
                why=f"{error.why}; {export.versions}",
                fix="use the version that wrote it, and the environment that it was trained with",
            ) from error

    def agree(self, specs: Mapping[str, AgentSpec]) -> None:
        """Raise UsageError unless agents see and do in ``specs`` what they were trained with."""
        found = {name: spec_as_json(spec) for name, spec in specs.items()}
        if not self.spaces or _same(found, self.spaces):
            return
        export, fix = self.export, "use the environment that it was trained with"
        raise UsageError(
            "the environment has other observations or actions than "
            f"the {'export' if export else 'run'} was trained with",
            where=export.source if export else self.run.shown(self.run.path),
            why=f"there {_text(specs_of(self.spaces))}\nhere {_text(specs)}",
            fix=f"{fix}, in its version; {export.versions}" if export else fix,
        )

    def masked(self, saved: Checkpoint, behaviour: str) -> bool:
        """Return whether a behaviour learned with masks of its actions."""
        if self.export is None:
            return masked_in(saved, behaviour)
        return bool(self.spaces.get(behaviour, {}).get("masked"))

    def task(self, folder: EnvFolder) -> EnvFolder:
        """Return the folder whose modules may be imported: ``folder``, or none's for an untrusted export.

        It names no module, and one that lies beside it could take the place of a library that is missing.
        """
        if self.export is None or self.export.trusted:
            return folder
        return EnvFolder(self.run.checkpoints, folder.label)

    def checkpoint(self, which: Ckpt | None, *, warn: Callable[[str], None]) -> Checkpoint:
        """Read a checkpoint, as `find_checkpoint`; an export has one."""
        if self.export and isinstance(which, int) and which != self.export.manifest.step:
            raise StorageError(
                f"there is no checkpoint of step {which}",
                where=self.export.source,
                why=f"an export has one, and this one is of step {self.export.manifest.step}",
                fix=said("leave --ckpt out", "say checkpoint='best'"),
            )
        try:
            return find_checkpoint(
                self.run.checkpoints, which, warn=warn, flag=said("--ckpt ", "checkpoint=")
            )
        except StorageError as error:
            if self.export is None:
                raise
            raise refused(self.export.source, f"its networks cannot be read: {error.why}") from error

    @property
    def spaces(self) -> Mapping[str, Any]:
        """What the agents of each behaviour see and do, as JSON; empty where the run has not noted it."""
        if self.export is not None:
            return self.export.manifest.spaces
        spaces = read_json(self.run.manifest).get("spaces")
        return spaces if isinstance(spaces, dict) else {}

    def shown(self, saved: Checkpoint) -> str:
        """Format the checkpoint for a person."""
        return f"{self.export.source}, step {saved.step:,}" if self.export else self.run.shown(saved.path)


@contextmanager
def playable_run(options: TrainOptions, folder: EnvFolder) -> Iterator[PlayableRun]:
    """Yield what ``-n`` names, a run or an export, which is unpacked for the length of the block."""
    if options.name is None or not options.names_export:
        run = find_run(options, folder)
        yield PlayableRun(run, run)
        return
    export = open_export(options.name, trust=options.trust)
    try:
        label = export.manifest.env
        if label.rpartition("/")[2] != folder.label.rpartition("/")[2]:
            raise UsageError(
                f"the export is one of {label}",
                where=options.name,
                why=f"the command names {folder.label}",
                fix=shlex.join([*program(), task_of(export.loaded), "-n", options.name, "--eval=10"]),
            )
        place = env_folder(label, options.directory) / _file_name(options.name)
        yield PlayableRun(export.run, RunDir(label, options.name, place, options.env), export)
    finally:
        export.close()


def _configuration(source: str, manifest: ExportManifest, folder: Path) -> LoadedConfig:
    """Return the configuration of an export. Raises UsageError for one that this version does not know."""
    try:
        task = EnvFolder(folder, manifest.env)
        return load_config_file(folder / CONFIG, env=task, require_runnable=True)
    except ConfigError as error:
        raise UsageError(
            "the configuration of the export cannot be used by this version",
            where=source,
            why=f"it was written by version {manifest.version}, this is version {VERSION}:\n"
            + "\n".join(f"{problem.what}: {problem.why}" for problem in error.problems),
            fix="use the version that wrote it",
        ) from error


def _write(folder: Path, step: int, files: Mapping[str, bytes]) -> None:
    """Write the members as a run: the networks as its only checkpoint. Raises OSError."""
    networks = {name: data for name, data in files.items() if PurePosixPath(name).name == WEIGHTS}
    saved = {**networks, STATE: b"{}"}
    listed = {name: Entry.of(data) for name, data in saved.items()}
    saved[MANIFEST] = Manifest(step=step, files=listed, replay=None, segments={}).text.encode()
    checkpoint = checkpoint_of(folder / "checkpoints", step)
    written = {folder / name: data for name, data in files.items() if name not in networks}
    written |= {checkpoint / name: data for name, data in saved.items()}
    for pointer in ("best", "latest"):
        written[checkpoint.parent / f"{pointer}.json"] = json_text({"step": step}).encode()
    for path, data in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _file_name(source: str) -> str:
    """Return the name of the folder for what is written while an export is played; it ends in ``.zip``."""
    if source.startswith(HUB):
        return f"{source.removeprefix(HUB).replace('/', '_').replace('@', '_')}.zip"
    return Path(source).name


def _same(found: Mapping[str, Any], noted: Mapping[str, Any]) -> bool:
    """Return whether spaces are those that a run has noted, perhaps with more."""
    return found.keys() == noted.keys() and all(
        spec.items() <= noted[name].items() for name, spec in found.items()
    )


def _text(specs: Mapping[str, AgentSpec]) -> str:
    return " · ".join(
        f"{spec}" if name == DEFAULT_BEHAVIOUR else f"{name}: {spec}" for name, spec in specs.items()
    )


def run_in(folder: Path) -> RunDir:
    """Return the run in a folder. Raises UsageError if there is none."""
    path = folder.resolve()
    config = path / "config.yaml"
    if not config.is_file():
        raise UsageError(
            f"{folder} is no run",
            where=path,
            why="it has no config.yaml",
            fix="give the folder of a run, such as models/CartPole-v1/NAME",
        )
    label = config.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]
    return RunDir(label, path.name, path, label)
