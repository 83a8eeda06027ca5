"""``--from_mlagents``: writes a trainer configuration of ML-Agents as a task's ``config.yaml``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.config.locate import CONFIG_FILE
from algorithm.config.yaml_io import shown
from algorithm.core.errors import UsageError, visible
from algorithm.core.program import as_typed
from algorithm.extras.mlagents.translate import Translation, translate
from algorithm.store.files import make_folder, write_bytes


def write_translation(options: TrainOptions) -> int:
    """Print the translation, or write it into a task's folder; return the exit code.

    Raises ConfigError, UsageError if the task has a configuration already, StorageError.
    """
    assert options.from_mlagents is not None, "the flag chooses this command"
    file = Path(options.from_mlagents)
    if not options.env:
        result = translate(file)
        print(visible(result.text), end="")
        print(_counts(result), file=sys.stderr)
        return 0
    target = _task_folder(options.env) / CONFIG_FILE
    result = translate(file, target.parent)
    _write(target, result.text, replace=options.replace)
    if not options.quiet:
        command = as_typed(f"python main.py {shlex.quote(options.env)}")
        print(
            visible(
                f"{shown(target)}: {_counts(result)}; to train it: {command}, in the editor with --editor"
            )
        )
    return 0


def _task_folder(env: str) -> Path:
    """Return the folder of a task, which need not exist: a path as it is, a name below ``envs/``."""
    path = Path(env)
    is_path = path.is_absolute() or env.startswith((".", "envs/")) or path.is_dir()
    return path if is_path else Path("envs", env)


def _write(target: Path, text: str, *, replace: bool) -> None:
    """Write the translation. Raises UsageError if the file exists, unless ``replace``."""
    if target.exists() and not replace:
        raise UsageError(
            f"{shown(target)} already exists",
            where="--from_mlagents",
            why="it would be overwritten",
            fix="name another task, or add --replace",
        )
    make_folder(target.parent)
    write_bytes(target, text.encode())


def _counts(result: Translation) -> str:
    return f"{result.translated} keys of ML-Agents translated, {result.untranslated} have no counterpart"
