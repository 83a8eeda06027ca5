"""Training with a learner and any number of actors: ``python main_ds.py gym/pendulum learner``."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Sequence
from pathlib import Path

from algorithm.config.cli import TrainOptions
from algorithm.config.cli_ds import DistributedOptions, parse_distributed
from algorithm.config.locate import find_env
from algorithm.env.pool.process_exit import exit_process
from algorithm.runs.names import check_directory
from algorithm.streams import mend_streams
from main import guarded, interruptible_imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors meant for a user are shown without traceback."""
    options = parse_distributed(argv)
    sys.path.append(str(Path.cwd()))  # module:Id finds a module beside the user, who may be anywhere
    return guarded(lambda: _command(options), debug=options.train.debug)


def _command(options: DistributedOptions) -> int:
    check_directory(options.train.directory)
    if options.role == "cluster":
        from ds.cluster.command import cluster

        return cluster(options, sys.argv)
    if options.role == "evolver":
        from ds.evolver.command import evolve

        return evolve(options)
    label = find_env(options.train.env).label
    _say(options.train, f"{label}, {options.role}: loading torch")
    with interruptible_imports():
        if options.role == "actor":
            from ds.actor import act as begin
        else:
            from ds.learner import learn as begin
    return begin(options, sys.argv)


def _say(options: TrainOptions, text: str) -> None:
    if not options.quiet:
        print(text, flush=True)


if __name__ == "__main__":
    mend_streams()
    faulthandler.enable()  # a simulator that crashes in this process takes it along, but prints where
    exit_process(main())
