"""``--export FILE.onnx``: writes the policies of a run as ONNX graphs, for Unity and other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.app.playable import PlayableRun, playable_run, recorded_specs
from algorithm.config.loader import LoadedConfig, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.core.errors import StorageError
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import format_bytes
from algorithm.extras.onnx.exporting import Exported
from algorithm.extras.onnx.files import export_graphs, files_in, write_graphs
from algorithm.run.experience.faults import Faults
from algorithm.store.files import refuse_taken
from algorithm.store.names import Ckpt


def share_graphs(options: TrainOptions, folder: EnvFolder) -> int:
    """Export the policies of a run by the options of the command; return the exit code."""
    target = Path(options.export or "")
    with ExitStack() as stack:
        console = stack.enter_context(open_console(quiet=options.quiet))
        played = stack.enter_context(playable_run(options, folder))
        loaded = load_config_file(
            played.run.config, options.overrides, env=played.task(folder), require_runnable=True
        )
        networks = folder.path if options.use_env_nn else played.run.path
        graphs = _export(
            played,
            loaded,
            target,
            which=options.ckpt or "best",
            networks=networks,
            replace=options.replace,
            faults=Faults(console),
        )
        step = next(iter(graphs.values())).card["step"]
        rows = [("checkpoint", f"step {step:,}")]
        for path, exported in graphs.items():
            rows.append(("file", f"{path}, {format_bytes(len(exported.data))}, {_outcome(exported)}"))
        console.finish(rows, [])
    return 0


def _outcome(exported: Exported) -> str:
    """Return the result of the comparison as text."""
    difference = exported.card["largest_difference"]
    return "not compared" if difference is None else f"largest difference {difference:.1e}"


def _export(
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

    target:   the file; for several behaviours a folder, with a file for each
    networks: folder of ``nn.py``
    Raises as :func:`~algorithm.extras.onnx.files.export_graphs`.
    """
    specs = _specs(played)
    files = dict.fromkeys(specs, target) if len(specs) == 1 else files_in(target, specs)
    for path in (path for file in files.values() for path in (file, file.with_suffix(".json"))):
        refuse_taken(path, replace=replace)
    saved = played.checkpoint(which, warn=faults.console.warn)
    with played.fitting(specs):
        graphs = export_graphs(loaded, played.run, specs, saved, files, networks=networks, faults=faults)
    write_graphs(graphs)
    return graphs


def _specs(played: PlayableRun) -> dict[str, AgentSpec]:
    """Return the stored spaces of the run's agents, by behaviour. Raises StorageError if it has none."""
    specs = recorded_specs(played.spaces, played.run.manifest)
    if not specs:
        raise StorageError(
            "the run does not store the spaces of its agents",
            where=played.run.manifest,
            why="it was started by an older version",
            fix="train it again, or add its `spaces` from a run of the same task",
        )
    return specs


def write_policy(
    played: PlayableRun, loaded: LoadedConfig, target: Path, which: Ckpt, *, replace: bool
) -> None:
    """Write the graphs of a run for Python, as ``--export`` does."""
    with open_console(quiet=True) as console:
        _export(
            played,
            loaded,
            target,
            which=which,
            networks=played.run.path,
            replace=replace,
            faults=Faults(console),
        )
