"""The context of checks: environment instances that are built, reset and stepped as in a training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from algorithm.core.data import Array, Bool, Float
from algorithm.core.errors import UsageError, UserError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.env.config import INTERVENTION_KEYS, InterventionKeys
from algorithm.env.gym import GymEnv
from algorithm.env.observations import check_shape
from algorithm.env.outputs import SpaceMismatchError, TimeStep
from algorithm.env.parameters.apply import with_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.extras.check.finding import (
    Finding,
    FindingError,
    call_failed,
    error,
    format_trace,
    format_values,
    note,
    refusal,
)

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class CheckLimits:
    """Limits of the checks; whichever comes first.

    steps:   of the random episodes for statistics
    compared: steps of episodes that are played twice
    seconds: of the random episodes; each other experiment gets a quarter
    total:   seconds after which no further instance is built, for slow environments
    """

    steps: int = 2000
    compared: int = 200
    seconds: float = 4.0
    total: float = 30.0


class LearningKeys(NamedTuple):
    """Keys of the learner that decide how large numbers may be; see ``sac_config``."""

    use_normalization: bool = False
    reward_scaling: bool | Literal["auto"] = False


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """The part of the configuration that checks need.

    seed:         of the run
    options:      passed to every reset
    interventions: ``base_config.interventions``
    parameters:   of each episode
    length_limit: ``base_config.max_step_each_iter``
    learning:     (spaces) -> keys of the learner; presets may depend on the spaces
    reward_scale: ``base_config.reward_scale``
    """

    seed: int = 0
    options: Mapping[str, Any] | None = None
    interventions: InterventionKeys = INTERVENTION_KEYS
    parameters: ParameterSource = field(default_factory=ParameterSource)
    length_limit: int = -1
    learning: Callable[[AgentSpec], LearningKeys] = lambda spec: LearningKeys()
    reward_scale: float = 1.0

    def seed_of(self, episode: int) -> int:
        """Return the seed of an episode's reset, as in a training."""
        return episode_seeds(self.seed, "train")(0, episode)


class CheckStep(NamedTuple):
    """Result of a reset or a step; ``number`` counts the steps of the episode, 0 for the reset."""

    number: int
    obs: Mapping[str, Array]
    mask: Bool  # [ΣN]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Whether the environment itself ended the episode."""
        return self.terminated or self.truncated


class EnvInstance:
    """One instance of the environment. A call that fails raises FindingError with all details.

    bare: the environment in its wrappers, without our adapter
    """

    def __init__(self, env: gym.Env[Any, Any], config: CheckConfig) -> None:
        self.bare = env
        self.env = GymEnv(env, options=config.options, interventions=config.interventions)
        self.spec = self.env.spec
        self._seed, self._step = 0, 0

    def reset(self, seed: int) -> CheckStep:
        """Start the episode of ``seed``."""
        self._seed, self._step = seed, 0
        return self._call("reset", lambda: self._check_step(self.env.reset(seed)))

    def step(self, flat: Float) -> CheckStep:
        """Take a flat action [A]."""
        self._step += 1
        return self._call("step", lambda: self._check_step(*self.env.step(flat)), flat)

    @property
    def place(self) -> str:
        """Current seed and step, for messages."""
        return f"seed {self._seed}, step {self._step}"

    def _check_step(self, seen: TimeStep, *outcome: Any) -> CheckStep:  # noqa: ANN401 - reward and ends
        """Check the shapes of observations; return the step. outcome: reward and ends, none at a reset."""
        for name, shape, _ in self.spec.obs.items():
            check_shape(name, np.shape(seen.obs[name]), shape)
        mask = self.spec.action.all_allowed() if seen.action_mask is None else seen.action_mask
        return CheckStep(self._step, seen.obs, mask, *outcome)

    def _call(self, call: str, run: Callable[[], CheckStep], action: Float | None = None) -> CheckStep:
        """Call the environment. Raises FindingError for any failure."""
        where = self.place + ("" if action is None else f", action {format_values(action)}")
        try:
            with exits_as_errors():
                return run()
        except SpaceMismatchError as failure:
            raise FindingError(spaces_mismatch(where, failure)) from failure
        except UsageError as refused:  # of parameters that it does not have
            raise FindingError(refusal(refused)) from refused
        except Exception as failure:
            raise FindingError(call_failed(call, where, failure)) from failure


def play(
    instance: EnvInstance, config: CheckConfig, *, episode: int = 0, limit: int = -1
) -> Iterator[CheckStep]:
    """Yield steps of episodes without end, from number ``episode`` on, each of at most ``limit`` steps.

    Actions are random among those that the masks allow, as in the warm-up.
    """
    rng = np.random.default_rng(episode)
    for number in count(episode):
        now = instance.reset(config.seed_of(number))
        yield now
        while not now.over and now.number != limit:
            action, _, _ = instance.spec.action.random(rng, now.mask[None])
            now = instance.step(action[0])
            yield now


class CheckContext:
    """A factory of instances, and a cache of results that several checks need.

    make:    builds the environment with its wrappers, without the adapter; its errors propagate
    on_call: called before each call that may take long
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        config: CheckConfig,
        limits: CheckLimits,
        *,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        self.make = make
        self.config = config
        self.limits = limits
        self._on_call = on_call
        self._end = time.monotonic() + limits.total
        self._spec: AgentSpec | None = None
        self._cache: dict[Callable[[CheckContext], Any], Any] = {}

    @contextmanager
    def instance(self) -> Iterator[EnvInstance]:
        """Provide a new instance, closed afterwards. Raises FindingError."""
        instance = self._make_instance()
        try:
            yield instance
        except BaseException:
            with suppress(Exception), exits_as_errors():  # the first failure is raised
                instance.bare.close()
            raise
        self._on_call()
        try:
            with exits_as_errors():
                instance.bare.close()
        except Exception as failure:
            raise FindingError(call_failed("close", instance.place, failure)) from failure

    @cached_property
    def learning(self) -> LearningKeys:
        """Keys of the learner for the spaces of the last instance. Raises FindingError if they do not fit."""
        assert self._spec is not None, "an instance comes first"
        try:
            return self.config.learning(self._spec)
        except UserError as refused:
            raise FindingError(refusal(refused)) from refused

    def deadline(self, share: float) -> Callable[[], bool]:
        """Return a function that returns whether ``share`` of the seconds has passed since now."""
        self._on_call()
        end = time.monotonic() + share * self.limits.seconds
        return lambda: time.monotonic() >= end

    def limited(self, items: Iterable[_T], share: float = 1.0) -> Iterator[_T]:
        """Yield items until ``share`` of the number of compared steps, or of their time, is used up."""
        late = self.deadline(0.25 * share)
        for done, item in enumerate(items):
            yield item
            if done >= share * self.limits.compared or late():
                return

    def cached(self, measure: Callable[[CheckContext], _T]) -> _T:
        """Return ``measure(self)``, computed at the first call only."""
        if measure not in self._cache:
            self._cache[measure] = measure(self)
        measured: _T = self._cache[measure]
        return measured

    def _make_instance(self) -> EnvInstance:
        """Make an instance. Raises FindingError if that fails, or no time is left."""
        if time.monotonic() > self._end:
            raise FindingError(
                note(f"not checked: the time limit of {self.limits.total:g} s has passed", why="it is slow")
            )
        self._on_call()
        env = self._make_env()
        try:
            instance = EnvInstance(with_parameters(env, self.config.parameters), self.config)
        except UserError as refused:
            env.close()
            raise FindingError(refusal(refused)) from refused
        self._spec = instance.spec
        return instance

    def _make_env(self) -> gym.Env[Any, Any]:
        """Make the environment of an instance. Raises FindingError if that fails."""
        try:
            return self.make()
        except UserError as refused:
            raise FindingError(refusal(refused, format_trace(refused.__cause__))) from refused
        except Exception as failure:
            raise FindingError(call_failed("make", type(failure).__name__, failure)) from failure


def spaces_mismatch(where: str, failure: SpaceMismatchError) -> Finding:
    """Return the finding of an output that the adapter refuses."""
    return error(
        "the environment returns values that do not fit its spaces",
        where=where,
        why=f"{failure}: training would stop here",
        fix="correct observation_space and action_space, or the values of reset and step",
    )
