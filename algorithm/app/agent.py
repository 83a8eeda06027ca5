"""An agent to hold: it learns again and again, acts, is evaluated and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from typing_extensions import Self, override

from algorithm.agents.registry import FAMILIES
from algorithm.app.cli.flag_types import is_export, is_graph
from algorithm.app.given import EnvLike, as_object, with_keys
from algorithm.app.policy import PolicyState, TrainedPolicy
from algorithm.app.run import Run, Which
from algorithm.app.start import TrainingPlan
from algorithm.config.resolve import Overrides
from algorithm.core.errors import UsageError
from algorithm.evaluation.evaluate import Performance
from algorithm.runs.checkpoints.checkpoint import checkpoint_steps
from algorithm.runs.names import MODELS
from algorithm.train.callbacks import CallbackLike, Training, Until, all_callbacks
from algorithm.train.signals import OnSignal

_NEVER = {"base_config.stop_at_return": None}
"""``learn`` says how many steps there are; success alone does not end them."""


class HeldAgent:
    """An agent and its environment. Each call of ``learn`` continues the training.

    algorithm: ``SAC``, ``TD3``, ``PPO`` and so on; None: as in the configuration
    env:       a name or an object; for this and the rest see :func:`train`

    What needs the networks first, ``learn`` or ``predict``, creates the folder of the run, ``agent.run``.
    Raises ConfigError and UsageError.
    """

    def __init__(
        self,
        algorithm: str | None,
        env: EnvLike,
        *,
        eval_env: EnvLike | None = None,
        config: str | None = None,
        overrides: Overrides | None = None,
        preset: str | None = None,
        name: str | None = None,
        seed: int | None = None,
        device: str = "auto",
        directory: str | Path = MODELS,
        quiet: bool = False,
        **keys: object,
    ) -> None:
        _check_order(algorithm, env)
        task, given = TrainingPlan.named(env, eval_env)
        flags = {"algorithm": algorithm, "base_config.preset": preset, "base_config.name": name}
        plan = TrainingPlan(
            task=task,
            given=given,
            config=config,
            overrides=with_keys(overrides, keys),
            flags=flags,
            defaults=_NEVER,
            seed=seed,
            device=device,
            directory=directory,
            quiet=quiet,
        )
        loaded = plan.load()
        self._plan: TrainingPlan | None = replace(plan, seed=loaded.seed)
        self._given = given
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
        device: str = "auto",
        quiet: bool = False,
        trust: bool = False,
        overrides: Overrides | None = None,
        **keys: object,
    ) -> Self:
        """Load the agent of a run, or what :meth:`save` has written.

        path:  folder of a run, which can learn on; or an export, which can only act and be evaluated
        env:   as in the constructor; needed if it was an object
        trust: see :class:`Run`
        overrides, keys: of the configuration, to learn on with; as in the constructor

        Raises UsageError if the environment has other observations or actions, ConfigError.
        """
        agent = cls.__new__(cls)
        agent._plan = agent._policy = None
        agent._device = device
        agent._quiet = quiet
        agent._given = as_object(env, eval_env)
        agent._run = Run(path, env=agent._given, trust=trust)
        agent._run.check_spaces(agent._given)
        agent._changes = with_keys(overrides, keys)
        agent._run.configured(agent._changes)
        return agent

    @override
    def __repr__(self) -> str:
        return f"Agent({self._run!r}, step={self.step:,})" if self._run else "Agent(has not learned)"

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
        """A copy of all current networks, with ``state_dict()``. Changing it does not change the agent."""
        return self.policy.networks

    def learn(
        self,
        steps: int,
        *,
        callbacks: CallbackLike = (),
        on_step: Callable[[Training], object] | None = None,
        on_signal: OnSignal = "raise",
        **keys: object,
    ) -> Self:
        """Train for this many more steps; return this agent. on_signal: as in :func:`train`.

        keys: of the configuration, from now on

        Each call ends with a checkpoint, and the next one resumes exactly from it: calls of 1,000 and 2,000
        steps learn the same as one of 3,000. Schedules run until ``base_config.max_step``: a call beyond it
        moves their end to its own. Raises like :func:`train`; what was learned is kept.
        """
        if steps < 1:
            raise UsageError(
                "there is nothing to learn", where=f"learn({steps})", fix="give a number of steps"
            )
        until = self.step + steps
        changes = with_keys(self._changes, keys)
        if self._run is None:
            assert self._plan is not None, "what was loaded has a run"
            self._plan = replace(self._plan, overrides={**self._plan.overrides, **changes})
            self._begin(until, callbacks, on_step, on_signal=on_signal, quiet=self._quiet)
            return self
        end = self._run.config.base_config.max_step
        self._run.resume(
            self._given,
            max_step=until if 0 < end < until else None,
            overrides=changes,
            callbacks=[*all_callbacks(callbacks), Until(until)],
            on_step=on_step,
            on_signal=on_signal,
            device=self._device,
            quiet=self._quiet,
        )
        self._changes = {}
        return self

    def _begin(
        self,
        until: int,
        callbacks: CallbackLike = (),
        on_step: Callable[[Training], object] | None = None,
        *,
        on_signal: OnSignal = "raise",
        quiet: bool,
    ) -> None:
        """Train a new run until a step, 0 for its first checkpoint alone."""
        assert self._plan is not None, "what was loaded has a run"
        end = self._plan.load().config.base_config.max_step
        made: list[Path] = []
        plan = replace(self._plan, quiet=quiet)
        try:
            plan.begin(
                until if 0 < end < until else None,
                [*all_callbacks(callbacks), Until(until)],
                on_step,
                on_signal=on_signal,
                on_folder=made.append,
            )
        finally:
            if made and checkpoint_steps(made[0] / "checkpoints"):
                self._run = Run(made[0], env=self._given)

    def predict(
        self,
        obs: Any,  # noqa: ANN401 - a space may hold anything
        state: PolicyState | None = None,
        episode_start: Sequence[bool] | NDArray[np.bool_] | None = None,
        deterministic: bool = True,
        info: Mapping[str, Any] | None = None,
    ) -> tuple[Any, PolicyState]:
        """Return the action for an observation, and the state to pass with the next one.

        For the arguments, see :meth:`Policy.act`.
        """
        return self.policy.act(obs, state, deterministic, info, episode_start)

    def evaluate(
        self, env: EnvLike | None = None, episodes: int = 10, checkpoint: Which = "latest"
    ) -> Performance:
        """Play episodes with the deterministic policy; return their returns and lengths.

        env: any environment with the same spaces; default: the evaluation environment
        """
        return self.run.evaluate(episodes, checkpoint, env=env)

    def set_env(self, env: EnvLike, *, eval_env: EnvLike | None = None) -> None:
        """Continue in another environment. Open episodes are truncated.

        Raises UsageError if it has other observations or actions.
        """
        if self._run is None:
            assert self._plan is not None, "what was loaded has a run"
            task, given = TrainingPlan.named(env, eval_env)
            self._plan = replace(self._plan, task=task, given=given)
            self._given = given
            return
        given = as_object(env, eval_env)
        self._run.check_spaces(given)
        self._run = Run(self._run.folder, env=given)
        self._given = given

    def save(self, path: str | Path, *, replace: bool = False) -> Path:
        """Save the current agent, and return the path.

        path: ``FILE.zip`` for networks and configuration, ``FILE.onnx`` for the policy, or a folder for a
              copy of the whole run, which can learn on after :meth:`load`

        Raises UsageError if the path exists, unless ``replace``; StorageError if it cannot be written.
        """
        run, target = self.run, Path(path)
        if is_export(str(path)) or is_graph(str(path)):
            return run.export(target, "latest", replace=replace)
        run.copy(target, replace=replace)
        return target


def _check_order(algorithm: object, env: object) -> None:
    """Raise UsageError for an environment in the place of the algorithm."""
    if not isinstance(algorithm, str | None) or (isinstance(env, str) and env in FAMILIES):
        raise UsageError(
            "the algorithm comes first, and then the environment",
            where=f"Agent({algorithm!r:.60}, {env!r:.60})",
            fix='write asac.Agent("SAC", env)',
        )
