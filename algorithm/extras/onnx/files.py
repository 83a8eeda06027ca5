"""Graphs of a checkpoint's policies as files, each with its card."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from algorithm.config.loader import LoadedConfig
from algorithm.core.reading import read_bytes, read_json
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.exporting import Exported, export_policy
from algorithm.extras.onnx.names import refuse_collisions, safe_name
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.store.checkpoints.checkpoint import Checkpoint
from algorithm.store.files import json_text, make_folder, put, replacing
from algorithm.store.rundir import RunDir


def files_in(folder: Path, behaviours: Mapping[str, AgentSpec]) -> dict[str, Path]:
    """Return a file for each behaviour. Raises UsageError where two would have the same name."""
    refuse_collisions(behaviours, "behaviours")
    return {name: folder / f"{safe_name(name)}.onnx" for name in behaviours}


def export_graphs(
    loaded: LoadedConfig,
    run: RunDir,
    specs: Mapping[str, AgentSpec],
    saved: Checkpoint,
    files: Mapping[str, Path],
    *,
    networks: Path,
    faults: Faults,
) -> dict[Path, Exported]:
    """Return the checked graph and card of each behaviour's policy, by path. Nothing is written.

    run:      of the checkpoint ``saved``
    files:    behaviour -> path of its graph
    networks: folder of ``nn.py``
    Raises UsageError, StorageError, and ExportError for a graph that fails a check.
    """
    config = hashlib.sha256(read_bytes(run.config)).hexdigest()
    exported = {}
    with ExitStack() as stack:
        agents = RunContext(loaded=loaded, device="cpu", faults=faults, stack=stack).players(
            specs, networks, saved
        )
        for name, path in files.items():
            origin = {
                "environment": run.env,
                "run": run.name,
                "behaviour": name,
                "step": saved.step,
                "config_sha256": config,
                "trained_by_commit": _commit(run),
            }
            exported[path] = export_policy(agents[name], loaded.config.export_config, origin)
    return exported


def write_graphs(graphs: Mapping[Path, Exported]) -> None:
    """Write graphs and their cards, all or none. Raises StorageError."""
    with ExitStack() as drafts:  # whose files take their places once all of them are written
        for path, exported in graphs.items():
            make_folder(path.parent)
            put(drafts.enter_context(replacing(path)), exported.data)
            put(drafts.enter_context(replacing(path.with_suffix(".json"))), json_text(exported.card).encode())


def _commit(run: RunDir) -> str:
    """Return the commit of the program that started a run; empty if unknown."""
    git = read_json(run.manifest).get("git") if run.manifest.exists() else None
    return str(git.get("commit", "")) if isinstance(git, dict) else ""
