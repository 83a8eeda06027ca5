"""A training from its first step to its last."""

from __future__ import annotations

from collections.abc import Callable

from algorithm.core.errors import EnvError, UserError
from algorithm.train.build import RunParts
from algorithm.train.callbacks import CallbackError
from algorithm.train.trainer import Outcome


def run(parts: RunParts, before_end: Callable[[EnvError], None]) -> Outcome:
    """Train to the end. What was learned is saved where an environment or a callback ends the run.

    before_end: called, after that, where an environment hangs in this process, which is about to end
    """

    def save_before_end(error: EnvError) -> None:
        _save_cut_off(parts, error)
        before_end(error)

    parts.faults.attach(save_before_end)
    try:
        parts.runtime.begin()
        outcome = parts.trainer.train()
        stop = parts.stop
        parts.runtime.end(lambda: bool(stop) or not outcome.complete)
    except (EnvError, CallbackError) as error:
        _save_cut_off(parts, error)
        raise
    return outcome


def _save_cut_off(parts: RunParts, error: EnvError | CallbackError) -> None:
    console = parts.faults.console
    what = "an environment" if isinstance(error, EnvError) else "a callback"
    try:
        if step := parts.trainer.save_cut_off():
            console.message(f"{what} ended the run; step {step:,} is saved, --resume goes on from it")
    except UserError as failed:
        console.warn(failed.line)
