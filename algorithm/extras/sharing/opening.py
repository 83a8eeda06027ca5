"""Opening of an export as the folder of a run, so that it can be played like one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from algorithm.app.cli.train import TrainOptions
from algorithm.app.playable import PlayableRun
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import VERSION, flag_or_argument
from algorithm.core.spec import AgentSpec
from algorithm.extras.sharing.archive import CONFIG, ExportManifest, is_network, refused, unpack
from algorithm.extras.sharing.trust import refuse_code
from algorithm.store.checkpoints.checkpoint import Checkpoint
from algorithm.store.checkpoints.folders import checkpoint_of
from algorithm.store.checkpoints.manifest import MANIFEST, STATE, Entry, Manifest
from algorithm.store.files import json_text
from algorithm.store.names import Ckpt, env_folder
from algorithm.store.rundir import RunDir


class Export:
    """An export, verified and unpacked into a temporary folder, which is removed with this object.

    source:  path of the export
    run:     the folder as a run with a single checkpoint, which is the best and the latest
    loaded:  its configuration
    trusted: whether the user allows its code to run
    """

    def __init__(self, source: str, manifest: ExportManifest, folder: Path, *, trusted: bool) -> None:
        self.source = source
        self.trusted = trusted
        self.manifest = manifest
        self.run = RunDir(manifest.env, source, folder, manifest.env)
        self.loaded = _configuration(source, manifest, folder)
        if self.loaded.drawn:  # a second reading would draw other values than those checked
            why = f"its {CONFIG} draws {', '.join(self.loaded.drawn)}; --export writes values"
            raise refused(source, why)
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def versions(self) -> str:
        """The versions that wrote and read the export, for errors."""
        return f"it was written by version {self.manifest.version}, this is version {VERSION}"


def open_export(source: str, *, trust: bool) -> Export:
    """Verify an export, unpack it into a temporary folder, and return it.

    source: path of a zip
    trust:  allow the code in it, or named by it, to run
    Raises StorageError if it is damaged, UsageError for code without ``trust`` and for a configuration that
    this version cannot read.
    """
    manifest, files = unpack(Path(source), source)
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
class PlayableExport(PlayableRun):
    """An export, opened to be played like a run."""

    export: Export

    kind: ClassVar[str] = "export"

    @property
    @override
    def source(self) -> str:
        return self.export.source

    @property
    @override
    def remedy(self) -> str:
        return f"{super().remedy}, in its version; {self.export.versions}"

    @property
    @override
    def spaces(self) -> Mapping[str, Any]:
        return self.export.manifest.spaces

    @contextmanager
    @override
    def fitting(self, specs: Mapping[str, AgentSpec]) -> Iterator[None]:
        """Build agents in the block as for a run. Raises UsageError if the export does not fit ``specs``."""
        with super().fitting(specs):
            self.agree(specs)
            try:
                yield
            except StorageError as error:
                raise StorageError(
                    "the networks of the export do not fit",
                    where=self.source,
                    why=f"{error.why}; {self.export.versions}",
                    fix="use the version that wrote it, and the environment that it was trained with",
                ) from error

    @override
    def masked(self, saved: Checkpoint, behaviour: str) -> bool:
        return bool(self.spaces.get(behaviour, {}).get("masked"))

    @override
    def task(self, folder: EnvFolder | None) -> EnvFolder:
        """Return the folder of the task, by default the current one; for an untrusted export an empty one.

        Otherwise a module in the task's folder could take the place of a missing library.
        """
        folder = folder or EnvFolder(Path.cwd(), self.run.env)
        return folder if self.export.trusted else EnvFolder(self.run.checkpoints, folder.label)

    @override
    def checkpoint(self, which: Ckpt | None, *, warn: Callable[[str], None]) -> Checkpoint:
        """Read the only checkpoint of the export. Raises StorageError for another step."""
        if not isinstance(which, str | None) and which != self.export.manifest.step:
            raise StorageError(
                f"there is no checkpoint of step {which}",
                where=self.source,
                why=f"an export has one, and this one is of step {self.export.manifest.step}",
                fix=flag_or_argument("leave --ckpt out", "pass checkpoint='best'"),
            )
        try:
            return super().checkpoint(which, warn=warn)
        except StorageError as error:
            raise refused(self.source, f"its networks cannot be read: {error.why}") from error

    @override
    def shown(self, saved: Checkpoint) -> str:
        return f"{self.source}, step {saved.step:,}"

    @override
    def trained_here(self, purpose: str) -> RunDir:
        raise UsageError(
            f"an export has no {purpose}",
            where=self.source,
            why="it holds networks and configuration, but no optimizer, replay or metrics",
            fix=f"use the run's own folder, where it was trained: it is called {self.export.manifest.name}",
        )


def playable_export(source: str, *, trust: bool) -> PlayableExport:
    """Open an export to be played, as :func:`open_export`."""
    export = open_export(source, trust=trust)
    return PlayableExport(export.run, export.run, export)


@contextmanager
def named_export(options: TrainOptions, folder: EnvFolder) -> Iterator[PlayableExport]:
    """Yield the export that ``-n`` names, unpacked for the length of the block."""
    assert options.name is not None
    export = open_export(options.name, trust=options.trust)
    try:
        label = export.manifest.env
        place = env_folder(label, options.directory) / Path(options.name).name
        yield PlayableExport(export.run, RunDir(label, options.name, place, options.env), export)
    finally:
        export.close()


def _configuration(source: str, manifest: ExportManifest, folder: Path) -> LoadedConfig:
    """Return the configuration of an export. Raises UsageError if this version cannot read it."""
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
    """Write the members into ``folder`` as a run with one checkpoint, of the networks. Raises OSError."""
    networks = {name: data for name, data in files.items() if is_network(name)}
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
