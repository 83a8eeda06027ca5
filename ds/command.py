"""The command ``main_ds.py``, installed as ``asac-ds``: training with a learner and any number of actors."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from algorithm.app.cli.ds import DistributedOptions, parse_distributed
from algorithm.app.command import (
    Command,
    interruptible_imports,
    prepare_process,
    print_line,
    show_error,
)
from algorithm.core.extras import needs
from algorithm.env.pool.process_exit import exit_process


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors meant for a user are shown without traceback."""
    return perform(parse_distributed(argv))


def perform(options: DistributedOptions) -> int:
    """Carry out parsed options; return the exit code."""
    try:
        command = _command(options)
        return command()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return show_error(error, debug=options.train.debug)


def _command(options: DistributedOptions) -> Command:
    with needs("ds", "training with actors"):
        for package in ("cryptography", "grpc", "msgspec"):
            importlib.import_module(package)
    if options.role == "cluster":
        from ds.cluster.command import cluster

        return partial(cluster, options)
    if options.role == "evolver":
        from ds.evolver.evolver import evolve

        return partial(evolve, options)
    from algorithm.config.locate import find_env

    label = find_env(options.train.env).label
    print_line(options.train, f"{label}, {options.role}: loading torch")
    with interruptible_imports():
        if options.role == "actor":
            from ds.actor import act as begin
        else:
            from ds.learner import learn as begin
    return partial(begin, options)


def run() -> NoReturn:
    """Run the program, and end the process."""
    prepare_process()
    exit_process(perform(parse_distributed()))
