"""Graphs of a checkpoint's policies as files, each with its card."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from algorithm.config.loader import LoadedConfig
from algorithm.core.console import Console
from algorithm.core.errors import UserError
from algorithm.core.reading import read_bytes, read_json
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.errors import required
from algorithm.extras.onnx.exporting import Exported, PolicySource, export_policy
from algorithm.extras.onnx.names import refuse_collisions, safe_name
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.store.checkpoints.checkpoint import Checkpoint, load_checkpoint
from algorithm.store.checkpoints.folders import checkpoint_of
from algorithm.store.files import json_text, make_folder, put, replacing
from algorithm.store.rundir import RunDir


def files_in(folder: Path, behaviours: Mapping[str, AgentSpec]) -> dict[str, Path]:
    """Return a file for each behaviour. Raises UsageError where two would have the same name."""
    refuse_collisions(behaviours, "behaviours")
    return {name: folder / f"{safe_name(name)}.onnx" for name in behaviours}


def draw_graphs(
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
            origin = PolicySource(run.env, run.name, name, saved.step, config, _commit(run))
            exported[path] = export_policy(agents[name], loaded.config.export_config, origin)
    return exported


def write_graphs(graphs: Mapping[Path, Exported]) -> None:
    """Write graphs and their cards, all or none. Raises StorageError."""
    with ExitStack() as drafts:  # whose files take their places once all of them are written
        for path, exported in graphs.items():
            make_folder(path.parent)
            put(drafts.enter_context(replacing(path)), exported.data)
            put(drafts.enter_context(replacing(path.with_suffix(".json"))), json_text(exported.card).encode())


def graphs_beside(
    loaded: LoadedConfig, run: RunDir, specs: Mapping[str, AgentSpec], console: Console
) -> Callable[[int], None]:
    """Return a function that writes the graphs of a step's checkpoint into its folder.

    The function changes nothing of the training, and warns if a graph cannot be written. Raises UsageError
    without the packages.
    """
    required("onnx")
    if loaded.config.export_config.check:
        required("onnxruntime")
    files_in(run.checkpoints, specs)

    def write(step: int) -> None:
        folder = checkpoint_of(run.checkpoints, step)
        try:
            with _torch_unchanged():
                saved, files = load_checkpoint(folder), files_in(folder / "onnx", specs)
                faults = Faults(console)
                write_graphs(draw_graphs(loaded, run, specs, saved, files, networks=run.path, faults=faults))
        except UserError as error:
            console.warn(f"{error.line} · training continues, and this checkpoint has no graph")

    return write


@contextmanager
def _torch_unchanged() -> Iterator[None]:
    """Restore torch's random state and precision of float32 matrix products at the end of the block."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)


def _commit(run: RunDir) -> str:
    """Return the commit of the program that started a run; empty if unknown."""
    git = read_json(run.manifest).get("git") if run.manifest.exists() else None
    return str(git.get("commit", "")) if isinstance(git, dict) else ""
