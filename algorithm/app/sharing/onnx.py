"""``--export FILE.onnx``: the policies of a run as ONNX graphs, for Unity and whatever else runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from algorithm.app.cli.flag_types import GRAPH
from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.app.resume import noted_specs
from algorithm.app.sharing.archive import refuse_taken
from algorithm.app.sharing.opening import PlayableRun, playable_run
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.errors import StorageError
from algorithm.core.reading import read_bytes, read_json
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import format_bytes
from algorithm.experience.faults import Faults
from algorithm.export.exporting import Exported, PolicySource, export_policy
from algorithm.export.names import cleaned, refuse_collisions
from algorithm.runs.files import json_text, make_folder, put, replacing
from algorithm.runs.names import Ckpt
from algorithm.train.assembly import Assembly


def share_graphs(options: TrainOptions, folder: EnvFolder) -> int:
    """Export the policies of a run as the command line says; return the exit code."""
    target = Path(options.export or "")
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        played = stack.enter_context(playable_run(options, folder))
        loaded = load_config_file(
            played.run.config, options.overrides, env=played.task(folder), require_runnable=True
        )
        networks = folder.path if options.use_env_nn else played.run.path
        found = write_graphs(
            played,
            loaded,
            target,
            which=options.ckpt or "best",
            networks=networks,
            replace=options.replace,
            faults=Faults(console),
        )
        step = next(iter(found.values())).card["step"]
        rows = [("checkpoint", f"step {step:,}")]
        for path, one in found.items():
            rows.append(("file", f"{path}, {format_bytes(len(one.data))}, {_outcome(one)}"))
        console.finish(rows, [])
    return 0


def _outcome(one: Exported) -> str:
    difference = one.card["largest_difference"]
    return "not compared" if difference is None else f"largest difference {difference:.1e}"


def write_graphs(
    played: PlayableRun,
    loaded: LoadedConfig,
    target: Path,
    *,
    which: Ckpt,
    networks: Path,
    replace: bool,
    faults: Faults,
) -> Mapping[Path, Exported]:
    """Write the policy of each behaviour and its card; return what was written, by path.

    target:   the file; of several behaviours the folder, of a file each
    networks: folder of ``nn.py``
    Nothing is written unless all of them can be. Raises UsageError, StorageError, and ExportError for a graph
    that is not what it should be.
    """
    specs = _specs(played)
    files = _files(specs, target)
    for path in (one for file in files.values() for one in (file, file.with_suffix(".json"))):
        refuse_taken(path, replace=replace)
    saved = played.checkpoint(which, warn=faults.console.warn)
    config = hashlib.sha256(read_bytes(played.run.config)).hexdigest()
    commit = _commit(played)
    with ExitStack() as stack:
        assembly = Assembly(loaded=loaded, device="cpu", faults=faults, stack=stack)
        with played.fitting(specs):
            agents = assembly.players(specs, networks, saved)
        exported = {}
        for name, path in files.items():
            origin = PolicySource(played.run.env, played.run.name, name, saved.step, config, commit)
            exported[path] = export_policy(agents[name], loaded.config.export_config, origin)
    with ExitStack() as drafts:  # whose files take their places once all of them are written
        for path, one in exported.items():
            make_folder(path.parent)
            put(drafts.enter_context(replacing(path)), one.data)
            put(drafts.enter_context(replacing(path.with_suffix(".json"))), json_text(one.card).encode())
    return exported


def _specs(played: PlayableRun) -> dict[str, AgentSpec]:
    """Return what agents see and do, as the run has noted. Raises StorageError if it has not."""
    specs = noted_specs(played.spaces, played.run.manifest)
    if not specs:
        raise StorageError(
            "the run does not say what its agents see and do",
            where=played.run.manifest,
            why="it was begun by an older version",
            fix="train it anew, or add its `spaces` from a run of the same task",
        )
    return specs


def _commit(played: PlayableRun) -> str:
    manifest = read_json(played.run.manifest) if played.run.manifest.exists() else {}
    git = manifest.get("git")
    return str(git.get("commit", "")) if isinstance(git, dict) else ""


def _files(specs: Mapping[str, AgentSpec], target: Path) -> dict[str, Path]:
    """Return the file of each behaviour."""
    if len(specs) == 1:
        return dict.fromkeys(specs, target)
    refuse_collisions(specs, "behaviours")
    return {name: target / f"{cleaned(name)}{GRAPH}" for name in specs}


def run_graph(
    played: PlayableRun,
    loaded: LoadedConfig,
    target: Path,
    which: Ckpt,
    *,
    replace: bool,
) -> None:
    """Write the graphs of a run for Python; see :func:`write_graphs`."""
    with open_console(quiet=True) as console:
        write_graphs(
            played,
            loaded,
            target,
            which=which,
            networks=played.run.path,
            replace=replace,
            faults=Faults(console),
        )
