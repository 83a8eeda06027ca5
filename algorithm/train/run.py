"""The inputs of a training, and the parts that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from algorithm.config.loader import LoadedConfig
from algorithm.runs.logs.metrics import MetricsLogger
from algorithm.runs.rundir import RunDir
from algorithm.train.callbacks import Callback
from algorithm.train.checkpointer import Checkpointer
from algorithm.train.runtime import Runtime
from algorithm.train.signals import StopRequest
from algorithm.train.state import Start, TrainState
from algorithm.train.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """Everything that decides a training, as values.

    run:         its folder
    device:      of the networks
    arguments:   the command line, for the manifest
    flags:       dotted path → value of the changes to a resumed run that are no overrides
    callbacks:   called behind those of the configuration
    evaluations: of the run in all, after which it ends; None for no such end
    init_from:   networks that a resumed run goes on with, as ``base_config.init_from`` is written
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
    init_from: str | None = None
    task_nn: bool = False
    greedy: bool = False
    render: bool = False
    profile: bool = False
    stop: StopRequest = field(default_factory=StopRequest)


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """A training that is about to begin, and its lines for a person.

    loaded:  the configuration as the run keeps it
    resumed: the checkpoint that it goes on from; None for a new run
    notices: what does not go on exactly; of a new run, what it begins with
    """

    loaded: LoadedConfig
    trainer: Trainer
    training: TrainState
    runtime: Runtime
    saver: Checkpointer
    metrics: MetricsLogger
    render_modes: Sequence[str]
    resumed: Start | None
    notices: Sequence[str]
