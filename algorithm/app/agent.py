"""The agent of ``import asac``, an object that learns, acts, is evaluated and saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from typing_extensions import Self, override

from algorithm.app.cli.flag_types import is_export, is_graph
from algorithm.app.env_arguments import AlgorithmName, Device, EnvLike, check_order, env_for_run, with_keys
from algorithm.app.policy import PolicyState, TrainedPolicy
from algorithm.app.run import Run
from algorithm.app.start import TrainingPlan
from algorithm.config.resolve import Overrides
from algorithm.config.schema import Preset
from algorithm.core.errors import UsageError
from algorithm.run.callbacks import CallbackLike, Until, all_callbacks
from algorithm.run.evaluation.evaluate import Performance
from algorithm.store.checkpoints.folders import checkpoint_steps
from algorithm.store.names import MODELS, Ckpt

_NEVER = {"base_config.stop_at_return": None}  # the argument of learn decides the steps, not success


class LearningAgent:
    """An agent and its environment. Each call of learn continues the training.

    algorithm: "SAC", "TD3", "PPO", "A2C", "A3C", "ACKTR", "ACER" or module:NAME; None: of the configuration
    env:       a task by name, an environment, its class, or a function that returns one, as for asac.train
    eval_env:  environment of evaluations, beside an object; default: another one like env
    config:    section or file of a configuration; default: the task's section "default"
    overrides: key → value, such as {"base_config.n_envs": 4}, or ["base_config.n_envs=4"]
    preset:    named settings; default: "auto", those that fit the spaces; "plain" is plain SAC
    name:      name of the run; default: the time
    seed:      of all random numbers, at least 0; default: a new one
    device:    "auto", "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where it is faster
    directory: folder of all runs; default: models, in the current folder
    quiet:     print only warnings; default: progress and result, too
    keys:      configuration keys without their block, such as learning_rate=1e-4

    >>> import asac
    >>> agent = asac.Agent("SAC", "Pendulum-v1", seed=1)
    >>> agent.learn(5_000).evaluate(episodes=10).mean

    The first learn or predict creates the folder of the run, agent.run. Raises ConfigError and UsageError.
    """

    def __init__(
        self,
        algorithm: AlgorithmName | str | None,
        env: EnvLike,
        *,
        eval_env: EnvLike | None = None,
        config: str | None = None,
        overrides: Overrides | None = None,
        preset: Preset | None = None,
        name: str | None = None,
        seed: int | None = None,
        device: Device | str = "auto",
        directory: str | Path = str(MODELS),
        quiet: bool = False,
        **keys: object,
    ) -> None:
        check_order(algorithm, env)
        task, env_object = TrainingPlan.named(env, eval_env)
        flags = {"algorithm": algorithm, "base_config.preset": preset, "base_config.name": name}
        plan = TrainingPlan(
            task=task,
            env_object=env_object,
            config=config,
            overrides=with_keys(overrides, keys),
            flags=flags,
            defaults=_NEVER,
            seed=seed,
            device=device,
            directory=directory,
            quiet=quiet,
        )
        self._plan: TrainingPlan | None = replace(plan, seed=plan.load().seed)
        self._env_object = env_object
        self._device = device
        self._quiet = quiet
        self._run: Run | None = None
        self._policy: TrainedPolicy | None = None
        self._changes: dict[str, object] = {}

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvLike | None = None,
        *,
        eval_env: EnvLike | None = None,
        device: Device | str = "auto",
        quiet: bool = False,
        trust: bool = False,
        overrides: Overrides | None = None,
        **keys: object,
    ) -> Self:
        """Load the agent of a run, or one that agent.save has written.

        path:      folder of a run, which can learn on; or an export, which can only act and be evaluated
        env:       environment to learn in; needed if it was an object; default: the run's own
        eval_env:  environment of evaluations, beside an object; default: another one like env
        device:    "auto", "cpu", "cuda" or "cuda:1"; default: as before
        quiet:     print only warnings; default: progress and result, too
        trust:     run the code that comes with an export; default: refuse it
        overrides: key → value to learn on with, such as {"sac_config.learning_rate": 1e-4}
        keys:      the same without their block, such as learning_rate=1e-4

        >>> import asac
        >>> asac.Agent("SAC", "Pendulum-v1", quiet=True).learn(1_000).save("mine", replace=True)
        >>> agent = asac.Agent.load("mine", quiet=True).learn(1_000)

        Raises UsageError if the environment has other observations or actions, ConfigError.
        """
        agent = cls.__new__(cls)
        agent._plan = agent._policy = None
        agent._device = device
        agent._quiet = quiet
        agent._env_object = env_for_run(env, eval_env)
        agent._run = Run(path, env=agent._env_object, trust=trust)
        agent._run.check_spaces(agent._env_object)
        agent._changes = with_keys(overrides, keys)
        agent._run.configured(agent._changes)
        return agent

    @override
    def __repr__(self) -> str:
        config = (self._run.configured() if self._run else self._fresh.load()).config
        return f"Agent({config.algorithm}, {config.base_config.env_name}, {self.step:,} steps)"

    @property
    def _fresh(self) -> TrainingPlan:
        """The training plan of an agent without a run."""
        assert self._plan is not None, "what was loaded has a run"
        return self._plan

    @property
    def run(self) -> Run:
        """The run on disk; created here, with a checkpoint of step 0, if the agent has not learned yet."""
        if self._run is None:
            self._begin(0, quiet=True)
        assert self._run is not None, "it has begun"
        return self._run

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return 0 if self._run is None else max(checkpoint_steps(self._run.folder / "checkpoints"), default=0)

    @property
    def policy(self) -> TrainedPolicy:
        """The current policy."""
        if self._policy is None or self._policy.step != self.step:
            self._policy = self.run.policy("latest")
        return self._policy

    @property
    def networks(self) -> nn.Module:
        """A copy of all current networks, with state_dict(). Changing it does not change the agent."""
        return self.policy.networks

    def learn(
        self,
        steps: int,
        *,
        callbacks: CallbackLike = (),
        **keys: object,
    ) -> Self:
        """Train for this many more steps; return this agent.

        steps:     environment steps, at least 1
        callbacks: one or several, called after those of the configuration
        keys:      configuration keys from now on, such as learning_rate=1e-4

        Calls of 1,000 and 2,000 steps learn the same as one of 3,000. Schedules run until
        base_config.max_step, or the end of a call beyond it. Raises like asac.train; all learned is kept.
        """
        if steps < 1:
            raise UsageError(
                "there is nothing to learn", where=f"learn({steps})", fix="give a number of steps"
            )
        until = self.step + steps
        changes = with_keys(self._changes, keys)
        if self._run is None:
            self._plan = replace(self._fresh, overrides={**self._fresh.overrides, **changes})
            self._begin(until, callbacks, quiet=self._quiet)
            return self
        end = self._run.config.base_config.max_step
        self._run.resume(
            self._env_object,
            max_step=until if 0 < end < until else None,
            overrides=changes,
            callbacks=[*all_callbacks(callbacks), Until(until)],
            device=self._device,
            quiet=self._quiet,
        )
        self._changes = {}
        return self

    def _begin(self, until: int, callbacks: CallbackLike = (), *, quiet: bool) -> None:
        """Train a new run until a step, 0 for a first checkpoint only; keep a saved run also on an error."""
        end = self._fresh.load().config.base_config.max_step
        made: list[Path] = []
        plan = replace(self._fresh, quiet=quiet)
        try:
            plan.begin(
                until if 0 < end < until else None,
                [*all_callbacks(callbacks), Until(until)],
                on_folder=made.append,
            )
        finally:
            if made and checkpoint_steps(made[0] / "checkpoints"):
                self._run = Run(made[0], env=self._env_object)

    def predict(
        self,
        obs: Any,  # noqa: ANN401 - a space may hold anything
        state: PolicyState | None = None,
        episode_start: Sequence[bool] | NDArray[np.bool_] | None = None,
        deterministic: bool = True,
        info: Mapping[str, Any] | None = None,
    ) -> tuple[Any, PolicyState]:
        """Return the action for an observation, and the state to pass with the next one.

        obs:           as the environment returns it, or a batch of N, each leaf [N, ...]
        state:         returned by the step before; None at the start of an episode
        episode_start: [N], true where an episode begins with this observation
        deterministic: take the mode of the policy; false: sample
        info:          the environment's info, if it holds an action_mask
        """
        return self.policy.act(obs, state, deterministic, info, episode_start)

    def evaluate(
        self, env: EnvLike | None = None, episodes: int = 10, checkpoint: Ckpt = "latest"
    ) -> Performance:
        """Play episodes with the deterministic policy; return their returns and lengths.

        env:        any environment with the same spaces; default: the evaluation environment
        episodes:   number of episodes
        checkpoint: "latest", "best" by evaluation, or the step of one
        """
        return self.run.evaluate(episodes, checkpoint, env=env)

    def set_env(self, env: EnvLike, *, eval_env: EnvLike | None = None) -> None:
        """Continue in another environment. Open episodes are truncated.

        env:      a name or an object, as for asac.train
        eval_env: environment of evaluations, beside an object; default: another one like env

        Raises UsageError if it has other observations or actions.
        """
        if self._run is None:
            task, env_object = TrainingPlan.named(env, eval_env)
            self._plan = replace(self._fresh, task=task, env_object=env_object)
            self._env_object = env_object
            return
        env_object = env_for_run(env, eval_env)
        self._run.check_spaces(env_object)
        self._run = Run(self._run.folder, env=env_object)
        self._env_object = env_object

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Save the current agent, and return the path.

        path:    FILE.zip for networks and configuration, FILE.onnx for the policy, or a folder for a copy of
                 the whole run, which can learn on after Agent.load
        replace: overwrite existing files; default: refuse to

        Raises UsageError if the path exists and is not replaced, StorageError if it cannot be written.
        """
        run, target = self.run, Path(path)
        if is_export(str(path)) or is_graph(str(path)):
            return run.export(target, "latest", replace=replace)
        run.copy(target, replace=replace)
        return target
