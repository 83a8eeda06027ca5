"""The start of a training from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.app.given import EnvLike, given_flags, handed_in, is_name
from algorithm.app.run import Run
from algorithm.app.training import Screen, new_run, run_training
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.env.objects import EnvObject
from algorithm.run.callbacks import CallbackLike, Training, all_callbacks
from algorithm.run.inputs import RunInputs
from algorithm.run.signals import OnSignal, StopRequest
from algorithm.store.names import MODELS


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training that is about to begin; for the fields see :func:`~algorithm.app.api.train`.

    task:     by name, or what the runs of an object are filed under
    given:    environments that were handed in as objects
    flags:    dotted path → value that wins over ``overrides``; None: it is not set
    defaults: dotted path → value where nothing else sets one
    """

    task: str
    given: EnvObject | None
    config: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    flags: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    seed: int | None = None
    device: str = "auto"
    directory: str | Path = MODELS
    quiet: bool = False

    @staticmethod
    def named(env: EnvLike, eval_env: EnvLike | None) -> tuple[str, EnvObject | None]:
        """Return ``task`` and ``given`` of what a person hands in. Raises UsageError for no environment."""
        given = handed_in(env, eval_env)
        return (os.fspath(env) if is_name(env) else given.label if given else ""), given

    def load(self, max_step: int | None = None) -> LoadedConfig:
        """Return the configuration. Raises ConfigError with every fault."""
        flags, defaults = {**self.flags, "base_config.max_step": max_step}, dict(self.defaults)
        if self.given is not None:
            flags["base_config.env_name"] = self.given.train.name
            defaults["base_config.n_envs"] = self.given.train.lanes or 1
        return load_config(
            self.task,
            self.config,
            self.overrides,
            given_flags(flags),
            self.seed,
            defaults=defaults,
            require_runnable=True,
        )

    def begin(
        self,
        max_step: int | None,
        callbacks: CallbackLike = (),
        on_step: Callable[[Training], object] | None = None,
        *,
        on_signal: OnSignal = "raise",
        on_folder: Callable[[Path], None] = lambda folder: None,
    ) -> Run:
        """Train a new run to its end. on_folder: called with its folder, before anything can fail there."""
        loaded, stop = self.load(max_step), StopRequest()
        new = new_run(loaded, models=Path(self.directory), argument=self.task)
        with stop.passed_on(on_signal), new as run:
            on_folder(run.path)
            inputs = RunInputs(
                loaded=loaded,
                run=run,
                device=self.device,
                arguments=("python", self.task),
                given=self.given,
                callbacks=all_callbacks(callbacks, on_step),
                stop=stop,
            )
            run_training(inputs, screen=Screen.in_python(inputs.callbacks, quiet=self.quiet))
        return Run(run.path, env=self.given)
