"""Training and acting from Python: the functions of ``import asac``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from algorithm.app.env_arguments import AlgorithmName, Device, EnvLike, env_to_play, is_name, with_keys
from algorithm.app.policy import TrainedPolicy, make_gym_env
from algorithm.app.run import Run
from algorithm.app.start import TrainingPlan
from algorithm.config.resolve import Overrides
from algorithm.config.schema import Preset
from algorithm.core.extras import extra
from algorithm.run.callbacks import CallbackLike
from algorithm.store.names import MODELS, Ckpt

_CHECK = "from algorithm.app.command import run; run()"


def train(  # noqa: PLR0913 - flags of the command, by keyword
    task: EnvLike,
    *,
    algorithm: AlgorithmName | str | None = None,
    eval_env: EnvLike | None = None,
    config: str | None = None,
    overrides: Overrides | None = None,
    preset: Preset | None = None,
    name: str | None = None,
    max_step: int | None = None,
    seed: int | None = None,
    device: Device | str = "auto",
    directory: str | Path = str(MODELS),
    callbacks: CallbackLike = (),
    quiet: bool = False,
    **keys: object,
) -> Run:
    """Train an agent, and return the run.

    task:      folder of a task, Gymnasium id, module:Id or file.py:Id; or an environment, its class, a
               function that returns one, or a vector environment
    algorithm: "SAC", "TD3", "PPO", "A2C", "A3C", "ACKTR", "ACER" or module:NAME; default: "SAC"
    eval_env:  environment of evaluations, beside an object; default: another one like task
    config:    section or file of a configuration; default: the task's section "default"
    overrides: key → value, such as {"base_config.n_envs": 4}, or ["base_config.n_envs=4"]
    preset:    named settings; default: "auto", those that fit the spaces; "plain" is plain SAC
    name:      name of the run; default: the time
    max_step:  environment steps to train for; default: 100,000, or the task's number
    seed:      of all random numbers, at least 0; default: a new one
    device:    "auto", "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where it is faster
    directory: folder of all runs; default: models, in the current folder
    callbacks: one or several, called after those of the configuration
    quiet:     print only warnings; default: progress and result, too
    keys:      configuration keys without their block, such as n_envs=4; they win over overrides

    >>> import asac
    >>> run = asac.train("Pendulum-v1", algorithm="TD3", max_step=5_000, seed=1)
    >>> run.evaluate(10, "latest").mean

    Raises ConfigError, UsageError, EnvError, StorageError and NumericalError like the command, and
    CallbackError if a callback raises.
    """
    label, env_object = TrainingPlan.named(task, eval_env)
    plan = TrainingPlan(
        task=label,
        env_object=env_object,
        config=config,
        overrides=with_keys(overrides, keys),
        flags={"algorithm": algorithm, "base_config.preset": preset, "base_config.name": name},
        seed=seed,
        device=device,
        directory=directory,
        quiet=quiet,
    )
    return plan.begin(max_step, callbacks)


def load(
    run: Run | str | Path,
    checkpoint: Ckpt = "best",
    *,
    env: EnvLike | None = None,
    device: Device | str = "cpu",
    trust: bool = False,
    behavior: str | None = None,
) -> TrainedPolicy:
    """Load the policy of a run, which acts on observations.

    run:        a run, its folder, or an export
    checkpoint: "best" by evaluation, "latest", or the step of one
    env:        environment to read the spaces from; default: the run's own
    device:     "cpu", "cuda", "cuda:1" or "auto"
    trust:      run the code that comes with an export; default: refuse it
    behavior:   needed if the run has several

    >>> import asac
    >>> run = asac.train("CartPole-v1", max_step=10_000, quiet=True)
    >>> policy, env = asac.load(run.folder, "latest"), asac.make_env("CartPole-v1")
    >>> action, state = policy.act(env.reset(seed=0)[0])

    The checkpoint is verified. The environment is built once to read its spaces, but for Unity: its policies
    act on dictionaries of sensors and start no player. Raises UsageError if the folder is not a run,
    StorageError if there is no such checkpoint.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    return run.policy(checkpoint, env=env, device=device, behavior=behavior)


def make_env(task: EnvLike, *, config: str | None = None, overrides: Overrides | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
    """Return the wrapped environment that a training steps.

    task:      a name or an object, as for asac.train
    config:    section or file of a configuration; default: the task's section "default"
    overrides: key → value, such as {"base_config.wrappers": []}, or a list of KEY=VALUE

    >>> import asac
    >>> env = asac.make_env("CartPole-v1")
    >>> obs, info = env.reset(seed=0)
    """
    label, env_object = (
        (os.fspath(task), None) if is_name(task) else ((source := env_to_play(task)).label, source)
    )
    plan = TrainingPlan(
        task=label, env_object=env_object, config=config, overrides=with_keys(overrides, {}), seed=0
    )
    return make_gym_env(plan.load(), "train", env_object=env_object)


def check(task: EnvLike, *, config: str | None = None, quiet: bool = False) -> bool:
    """Check an environment for problems; return whether there are no errors.

    task:   a name or an object, as for asac.train; an instance is copied first
    config: section or file of a configuration; default: the task's section "default"
    quiet:  print only warnings and errors

    >>> import asac
    >>> if not asac.check("walk.py:Walk"):
    ...     print("fix the errors first")

    The check takes up to a minute, and prints what it finds; a name is checked in a new process.
    """
    if not is_name(task):
        plan = TrainingPlan(
            task=(source := env_to_play(task)).label, env_object=source, config=config, seed=0
        )
        return not extra("check_object")(plan.load(), source.train, quiet=quiet)
    flags = ["--check", *([] if config is None else ["-c", config]), *["--quiet"] * quiet]
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    words, environment = (
        [sys.executable, "-c", _CHECK, os.fspath(task), *flags],
        {"PYTHONPATH": os.pathsep.join(paths)},
    )
    return subprocess.run(words, env=os.environ | environment).returncode == 0


def from_mlagents(file: str | Path) -> str:
    """Translate an ML-Agents trainer configuration (0.18 or later); return the text of a config.yaml.

    file: path of the trainer configuration

    Comments show the ML-Agents key of each line, and settings without an equivalent. Raises ConfigError with
    the lines of all values that cannot be translated.
    """
    text: str = extra("translate")(Path(file))
    return text
