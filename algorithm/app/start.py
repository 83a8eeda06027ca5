"""The start of a training from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.app.env_arguments import EnvLike, is_name, passed_env, set_flags
from algorithm.app.run import Run
from algorithm.app.training import Screen, new_run, run_training
from algorithm.config.loader import LoadedConfig, load_config
from algorithm.env.objects import EnvObject
from algorithm.run.callbacks import CallbackLike, all_callbacks
from algorithm.run.inputs import RunInputs
from algorithm.run.signals import StopRequest
from algorithm.store.names import MODELS


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of a training from Python; for the other fields see :func:`~algorithm.app.api.train`.

    task:     name of the task, or the label for runs of an object
    env_object: environments that were passed as objects
    flags:    dotted path → value that wins over ``overrides``; None: it is not set
    defaults: dotted path → value of keys that nothing else sets
    """

    task: str
    env_object: EnvObject | None
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
        """Return ``task`` and ``env_object`` for the user's arguments. Raises UsageError for wrong ones."""
        env_object = passed_env(env, eval_env)
        return (os.fspath(env) if is_name(env) else env_object.label if env_object else ""), env_object

    def load(self, max_step: int | None = None) -> LoadedConfig:
        """Return the configuration. Raises ConfigError with every fault."""
        flags, defaults = {**self.flags, "base_config.max_step": max_step}, dict(self.defaults)
        if self.env_object is not None:
            flags["base_config.env_name"] = self.env_object.train.name
            defaults["base_config.n_envs"] = self.env_object.train.lanes or 1
        return load_config(
            self.task,
            self.config,
            self.overrides,
            set_flags(flags),
            self.seed,
            defaults=defaults,
            require_runnable=True,
        )

    def begin(
        self,
        max_step: int | None,
        callbacks: CallbackLike = (),
        *,
        on_folder: Callable[[Path], None] = lambda folder: None,
    ) -> Run:
        """Train a new run to its end. on_folder: called with its folder before the training is built."""
        loaded, stop = self.load(max_step), StopRequest()
        with stop.passed_on(), new_run(loaded, models=Path(self.directory), argument=self.task) as run:
            on_folder(run.path)
            inputs = RunInputs(
                loaded=loaded,
                run=run,
                device=self.device,
                arguments=("python", self.task),
                env_object=self.env_object,
                callbacks=all_callbacks(callbacks),
                stop=stop,
            )
            run_training(inputs, screen=Screen.in_python(inputs.callbacks, quiet=self.quiet))
        return Run(run.path, env=self.env_object)
