"""The inputs of a training, its parts, and the way from the first step to the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import EnvError, UserError
from algorithm.runs.rundir import RunDir
from algorithm.train.callbacks import Callback, CallbackError
from algorithm.train.checkpointer import Checkpointer
from algorithm.train.runtime import Runtime
from algorithm.train.signals import StopRequest
from algorithm.train.state import Start, TrainState
from algorithm.train.trainer import Outcome, Trainer


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """Everything that decides a training, as values.

    run:         its folder
    device:      of the networks
    arguments:   the command line, for the manifest
    flags:       dotted path → value of the changes to a resumed run that are no overrides
    callbacks:   called behind those of the configuration
    evaluations: of the run in all, after which it ends; None for no such end
    networks:    folder of a checkpoint with the networks to begin with
    task_nn:     a resumed run takes ``nn.py`` of its task, and not the copy in its folder
    greedy:      agents act without sampling
    render:      show the environment
    profile:     write where the time goes
    stop:        becomes true when the training is to end
    """

    loaded: LoadedConfig
    run: RunDir
    device: torch.device
    arguments: Sequence[str] = ()
    flags: Mapping[str, object] = field(default_factory=dict)
    callbacks: Sequence[Callback] = ()
    evaluations: int | None = None
    networks: Path | None = None
    task_nn: bool = False
    greedy: bool = False
    render: bool = False
    profile: bool = False
    stop: StopRequest = field(default_factory=StopRequest)


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """A training that is about to begin, and its lines for a person.

    resumed: the checkpoint that it goes on from; None for a new run
    notices: what does not go on exactly; of a new run, what it begins with
    """

    trainer: Trainer
    training: TrainState
    runtime: Runtime
    saver: Checkpointer
    stop: StopRequest
    render_modes: Sequence[str]
    resumed: Start | None
    notices: Sequence[str]


def run(parts: RunParts, before_end: Callable[[EnvError], None]) -> Outcome:
    """Train to the end. What was learned is saved where an environment or a callback ends the run.

    before_end: called, after that, where an environment hangs in this process, which is about to end
    """

    def save_before_end(error: EnvError) -> None:
        _save_cut_off(parts, error)
        before_end(error)

    parts.training.faults.attach(save_before_end)
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
    console = parts.training.faults.console
    what = "an environment" if isinstance(error, EnvError) else "a callback"
    try:
        if step := parts.trainer.save_cut_off():
            console.message(f"{what} ended the run; step {step:,} is saved, --resume goes on from it")
    except UserError as failed:
        console.warn(failed.line)
