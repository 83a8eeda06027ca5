"""``--export FILE.zip``: writes a run as one file, which others can play."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from algorithm.app.cli.flag_types import ARCHIVE, GRAPH
from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.app.playable import find_run
from algorithm.config.loader import LoadedConfig, dump_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import BaseConfig, Config, NetConfig
from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import program
from algorithm.core.reading import read_bytes, read_json
from algorithm.core.wording import format_bytes
from algorithm.extras.sharing.archive import (
    CODE,
    CONFIG,
    LARGEST,
    MANIFEST,
    RESULT,
    ExportManifest,
    is_network,
    pack,
)
from algorithm.extras.sharing.trust import LEFT_OUT, unlisted
from algorithm.keys.checkpoints import WandbConfig
from algorithm.run.inputs import nn_file, use_modules
from algorithm.run.state import masked_in
from algorithm.store.checkpoints.manager import find_checkpoint
from algorithm.store.checkpoints.manifest import read_listed, read_manifest
from algorithm.store.files import json_text, refuse_taken, write_bytes
from algorithm.store.names import Ckpt
from algorithm.store.rundir import RunDir


@dataclass(frozen=True)
class ExportData:
    """An export in memory.

    data:   the zip
    step:   of the checkpoint in it
    trusts: whether it has code, or texts that may name some
    """

    data: bytes
    step: int
    trusts: bool


def share(options: TrainOptions, folder: EnvFolder) -> int:
    """Write an export to a file by the options of the command; return the exit code.

    The run is that of ``--name``, else the newest; the checkpoint is that of ``--ckpt``, else the best.
    """
    run, target = find_run(options, folder), Path(options.export or "")
    _check_target(target, replace=options.replace)
    with open_console(quiet=options.quiet) as console:
        built = build(run, options.ckpt or "best", warn=console.warn)
        write_bytes(target, built.data)
        rows = [
            ("checkpoint", f"step {built.step:,}"),
            ("file", f"{target}, {format_bytes(len(built.data))}"),
        ]
        trust = ["--trust"] if built.trusts else []
        command = shlex.join([*program(), run.argument, "-n", str(target), *trust, "--eval=10"])
        console.finish(rows, [("play", command)])
    return 0


def write_export(
    run: RunDir, which: Ckpt, target: Path, *, replace: bool, warn: Callable[[str], None]
) -> None:
    """Write an export of a run to ``target``. Raises UsageError and StorageError."""
    _check_target(target, replace=replace)
    write_bytes(target, build(run, which, warn=warn).data)


def _check_target(target: Path, *, replace: bool) -> None:
    """Raise UsageError for a name without ``.zip``, and for a file that exists, unless ``replace``."""
    if target.suffix.lower() != ARCHIVE:
        what, why = "an export is a zip file or an ONNX graph", "the ending of its name chooses the format"
        fix = f"name it {target}{ARCHIVE} for the run, or {target}{GRAPH} for its policy"
        raise UsageError(what, where=target, why=why, fix=fix)
    refuse_taken(target, replace=replace)


def build(run: RunDir, which: Ckpt, *, warn: Callable[[str], None]) -> ExportData:
    """Return an export of a run.

    which: checkpoint to export
    warn:  called with a line for each damaged checkpoint
    Paths and addresses of this machine are left out: ``paths`` of the result, ``net_config``,
    ``wandb_config``, ``callbacks`` and the paths of demonstrations. Raises StorageError and ConfigError for
    files that cannot be read, and StorageError for an export beyond :data:`~.archive.LARGEST`.
    """
    stored = load_config_file(run.config, env=EnvFolder(run.path, run.env), require_runnable=True)
    loaded = _without_machine_data(stored)
    saved = find_checkpoint(run.checkpoints, which, warn=warn)
    code = _code(loaded, run)
    files = {
        **_networks(saved.path),
        **code,
        CONFIG: dump_config(loaded).encode(),
    }
    if run.result.exists():
        files[RESULT] = json_text(_result(run)).encode()
    stored_spaces = read_json(run.manifest).get("spaces") if run.manifest.exists() else None
    spaces = stored_spaces.items() if isinstance(stored_spaces, dict) else ()
    manifest = ExportManifest(
        env=run.env,
        name=run.name,
        step=saved.step,
        spaces={name: {**space, "masked": masked_in(saved, name)} for name, space in spaces},
    )
    files[MANIFEST] = manifest.text.encode()
    data = pack(files)
    if len(data) > LARGEST:
        raise StorageError(
            "the networks are too large for an export",
            where=saved.path,
            why=f"it would have {format_bytes(len(data))}, and at most {format_bytes(LARGEST)} are read",
            fix=f"share the run's folder: {run.shown(run.path)}",
        )
    return ExportData(data, saved.step, trusts=bool(code or unlisted(loaded)))


def _result(run: RunDir) -> dict[str, object]:
    """Return the result of a run without paths of this machine."""
    return {key: value for key, value in run.read_result().items() if key not in ("paths", "init_from")}


def _without_machine_data(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration without names, addresses, paths and callbacks, which playing does not need."""
    blank = BaseConfig()
    names = ("callbacks", "name", "init_from", "init_parts")
    base = loaded.config.base_config.model_copy(update={name: getattr(blank, name) for name in names})
    update = {"base_config": base, "net_config": NetConfig(), "wandb_config": WandbConfig()}
    config = _without_demonstrations(loaded.config.model_copy(update=update))
    behaviours = {name: _without_demonstrations(each) for name, each in loaded.behaviours.items()}
    return replace(loaded, config=config, behaviours=behaviours)


def _without_demonstrations(config: Config) -> Config:
    """Return a configuration without the paths of demonstrations, which only a training uses."""
    path = None if config.demonstrations.path is None else LEFT_OUT
    demonstrations = config.demonstrations.model_copy(update={"path": path})
    return config.model_copy(update={"demonstrations": demonstrations})


def _networks(checkpoint: Path) -> dict[str, bytes]:
    """Return the files of networks in a checkpoint, by name. Raises StorageError if it has none."""
    listed = read_manifest(checkpoint).files
    networks = {
        name: read_listed(checkpoint, name, entry) for name, entry in listed.items() if is_network(name)
    }
    if not networks:
        raise StorageError("there are no networks to share", where=checkpoint, why="the agent has none")
    return networks


def _code(loaded: LoadedConfig, run: RunDir) -> dict[str, bytes]:
    """Return the files of networks in the run's folder, under the names that the configuration uses."""
    use_modules(loaded)
    code = {}
    for config in (loaded.config, *loaded.behaviours.values()):
        file = nn_file(config, run.path)
        if file:
            try:
                code[f"{config.run.nn}{CODE}"] = read_bytes(file)
            except (OSError, ValueError) as error:
                raise StorageError("the run's networks cannot be read", where=file, why=str(error)) from error
    return code
