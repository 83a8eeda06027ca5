"""Command lines for the task of a check or a dry run."""

from __future__ import annotations

import shlex

from algorithm.app.cli.given import task_flags
from algorithm.app.cli.train import TrainOptions
from algorithm.core.program import program
from algorithm.runs.names import directory_flags


def command(options: TrainOptions, *flags: str) -> str:
    """Return ``python main.py`` with the environment and settings of ``options``, and with ``flags``."""
    given = {**task_flags(options), "max_iter": options.max_iter, "max_step": options.max_step}
    words = [f"--{flag}={value}" for flag, value in given.items() if value is not None]
    words += [word for text in options.overrides for word in ("-o", text)]
    words += directory_flags(options.directory)
    return shlex.join([*program(), options.env, *words, *flags])
