"""Training and acting from Python: what ``import asac`` offers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from algorithm.app.given import EnvLike, is_name, played_in, with_keys
from algorithm.app.policy import TrainedPolicy, make_gym_env
from algorithm.app.run import Run, Which
from algorithm.app.start import TrainingPlan
from algorithm.config.resolve import Overrides
from algorithm.core.extras import extra
from algorithm.runs.names import MODELS
from algorithm.train.callbacks import CallbackLike, Training
from algorithm.train.signals import OnSignal


def train(  # noqa: PLR0913 - flags of the command, by keyword
    task: EnvLike,
    *,
    algorithm: str | None = None,
    eval_env: EnvLike | None = None,
    config: str | None = None,
    overrides: Overrides | None = None,
    preset: str | None = None,
    name: str | None = None,
    max_step: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    directory: str | Path = MODELS,
    callbacks: CallbackLike = (),
    on_step: Callable[[Training], object] | None = None,
    on_signal: OnSignal = "raise",
    quiet: bool = False,
    **keys: object,
) -> Run:
    """Train like ``asac TASK``, and return the run.

    task:      a folder, a Gymnasium id, ``module:Id`` or ``file.py:Id``; or an environment, its class, a
               function that returns one, or a vector environment
    algorithm: ``SAC``, ``TD3``, ``PPO`` and so on
    eval_env:  evaluation environment for an object; default: a new one of its class, or of an instance
               another one of its ``spec`` or a deep copy
    config:    section or file; default: the section ``default``
    overrides: key → value, such as ``{"base_config.n_envs": 4}``, or ``["base_config.n_envs=4"]``
    directory: folder of all runs
    callbacks: one or several, called after those of the configuration
    on_step:   a function to call after each step, instead of a callback class
    on_signal: after a signal such as Ctrl-C the run is saved. Then ``"raise"`` does what your program does at
               that signal, by default KeyboardInterrupt or SystemExit, and ``"return"`` returns the run
    quiet:     print only warnings
    keys:      configuration keys without their block, such as ``n_envs=4``; they win over ``overrides``

    Raises ConfigError, UsageError, EnvError, StorageError and NumericalError like the command, and
    CallbackError if a callback raises.
    """
    label, given = TrainingPlan.named(task, eval_env)
    plan = TrainingPlan(
        task=label,
        given=given,
        config=config,
        overrides=with_keys(overrides, keys),
        flags={"algorithm": algorithm, "base_config.preset": preset, "base_config.name": name},
        seed=seed,
        device=device,
        directory=directory,
        quiet=quiet,
    )
    return plan.begin(max_step, callbacks, on_step, on_signal=on_signal)


def load(
    run: Run | str | Path,
    checkpoint: Which = "best",
    *,
    env: EnvLike | None = None,
    device: str = "cpu",
    trust: bool = False,
    behavior: str | None = None,
) -> TrainedPolicy:
    """Load the policy of a run: ``load("models/CartPole-v1/NAME").act(obs)``.

    run:        a run, its folder, or an export
    env, trust: see :class:`Run`
    behavior:   of a Unity run, needed if it has several

    The checkpoint is verified. The environment is built once to read its spaces, but for Unity: its policies
    act on dictionaries of sensors and start no player. Raises UsageError if the folder is not a run,
    StorageError if there is no such checkpoint.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    return run.policy(checkpoint, env=env, device=device, behavior=behavior)


def make_env(task: EnvLike, *, config: str | None = None, overrides: Overrides | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
    """Return the wrapped environment that a training steps."""
    label, given = (os.fspath(task), None) if is_name(task) else ((one := played_in(task)).label, one)
    plan = TrainingPlan(task=label, given=given, config=config, overrides=with_keys(overrides, {}), seed=0)
    return make_gym_env(plan.load(), "train", given=given)


def check(task: EnvLike, *, config: str | None = None, quiet: bool = False) -> bool:
    """Check an environment for problems, like ``--check``; return whether there are no errors.

    task: a name or an object; an instance is copied first

    The check runs in a new process and prints what it finds.
    """
    if not is_name(task):
        plan = TrainingPlan(task=(given := played_in(task)).label, given=given, config=config, seed=0)
        return not extra("check_object")(plan.load(), given.train, quiet=quiet)
    words = [sys.executable, "-m", "asac", os.fspath(task), "--check"]
    words += [] if config is None else ["-c", config]
    words += ["--quiet"] * quiet
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}).returncode == 0
