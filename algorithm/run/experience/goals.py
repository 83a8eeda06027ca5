"""Environments with goals: rewards for other goals, checked once, and hindsight with them.

Such an environment observes ``achieved_goal`` and ``desired_goal`` beside other things, and has a method
``compute_reward(achieved_goal, desired_goal, info)``: the interface of Gymnasium-Robotics' GoalEnv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from threading import Lock
from typing import Any

import gymnasium as gym
import numpy as np
from typing_extensions import override

from algorithm.agents.registry import misplaced
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.data import Array, Bool, Float
from algorithm.core.errors import EnvError, UsageError, described
from algorithm.core.spec import AgentSpec
from algorithm.demos.spaces import in_space
from algorithm.env.observations import UNNAMED
from algorithm.env.outputs import SpaceMismatchError, as_bool, as_number, flags_of, numbers_of
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.registry import find_recipe
from algorithm.env.sources import EnvSource
from algorithm.nn.process import others_modes
from algorithm.replay.relabel import ACHIEVED, DESIRED, GoalTask, Hindsight, Relabel
from algorithm.run.experience.requests import env_request

OF_GOALS = frozenset({ACHIEVED, DESIRED})
"""Observations of an environment with goals."""

_REWARD, _END = "compute_reward", "compute_terminated"
_RATIO = 0.8
"""``her_ratio: auto``: four goals in hindsight for one of the agent's own (arXiv 1707.01495, section 4.5)."""

_SAME = 1e-4  # relative and absolute tolerance between two computations of one reward
_OFF = "or set replay_config.her_ratio: 0"


class NoHindsightError(UsageError):
    """An environment for which hindsight is impossible, which need not be a fault."""


class EnvGoals(GoalTask):
    """Rewards and ends of transitions for given goals, by an instance of the environment just for that.

    One call is made for many transitions if the environment returns the same for four at once as for four
    single calls; ``at_once`` is true if it does so for rewards.
    Raises NoHindsightError if ``compute_reward`` raises, or differs from the reward of ``step``; EnvError if
    it returns something else than finite numbers.
    """

    def __init__(self, env: gym.Env[Any, Any], name: str, options: dict[str, Any] | None) -> None:
        assert isinstance(env.observation_space, gym.spaces.Dict), (
            "it has the observations of an environment with goals"
        )
        self._name = name
        self._spaces = env.observation_space.spaces
        self._lock = Lock()
        reached, wanted, reward = _tried(env, options)
        self._reward: Callable[..., Any] = env.get_wrapper_attr(_REWARD)
        self._end = env.get_wrapper_attr(_END) if env.has_wrapper_attr(_END) else None
        self.at_once = self._ends_at_once = False
        each = self._rewards(reached, wanted)
        if not np.isclose(each[0], reward, rtol=_SAME, atol=_SAME):
            raise NoHindsightError(
                f"{_REWARD} of {name} differs from the reward of its steps",
                where="its first step",
                why=f"the step returned {reward:g}, and {_REWARD} returns {each[0]:g}",
                fix=f"give the wrapper that changes rewards its own {_REWARD}, {_OFF}",
            )
        ends = None if self._end is None else self._ends(reached, wanted)
        self.at_once = self._ends_at_once = True
        self.at_once = self._alike(self._rewards, (reached, wanted), each)
        self._ends_at_once = ends is not None and self._alike(self._ends, (reached, wanted), ends)

    @override
    def rewards(self, achieved: Array, desired: Array) -> Float:
        return self._rewards(self._original(ACHIEVED, achieved), self._original(DESIRED, desired))

    @override
    def terminated(self, achieved: Array, desired: Array) -> Bool | None:
        if self._end is None:
            return None
        return self._ends(self._original(ACHIEVED, achieved), self._original(DESIRED, desired))

    def _original(self, name: str, goals: Array) -> Array:
        """Convert goals to the values and the dtype of the environment's own space."""
        original: Array = in_space(self._spaces[name], {UNNAMED: goals})
        return original

    def _rewards(self, reached: Array, wanted: Array) -> Float:
        """Return the rewards [N] of goals in the environment's own values. Raises EnvError for no numbers."""
        try:
            if self.at_once:
                (many,) = self._call(self._reward, [(reached, wanted)])
                rewards = numbers_of(many, len(reached), "the rewards").astype(np.float32)
            else:
                each = self._call(self._reward, zip(reached, wanted, strict=True))
                rewards = np.array([as_number(value, "the reward") for value in each], np.float32)
        except SpaceMismatchError as error:
            raise self._no_number(str(error), _REWARD) from error
        if not np.isfinite(rewards).all():
            raise self._no_number(f"it has returned {rewards[~np.isfinite(rewards)][0]}", _REWARD)
        return rewards

    def _ends(self, reached: Array, wanted: Array) -> Bool:
        """Return whether the task ends for each pair of goals [N]. Raises EnvError for no booleans."""
        assert self._end is not None
        try:
            if self._ends_at_once:
                (many,) = self._call(self._end, [(reached, wanted)])
                return flags_of(many, len(reached), "the ends")
            each = self._call(self._end, zip(reached, wanted, strict=True))
            return np.array([as_bool(value, "the end") for value in each], np.bool_)
        except SpaceMismatchError as error:
            raise self._no_number(str(error), _END) from error

    @others_modes()
    def _call(self, method: Callable[..., Any], calls: Iterable[tuple[Array, Array]]) -> list[Any]:
        """Return the results of a method of the environment for each pair of arguments, unchecked."""
        try:
            with self._lock, exits_as_errors():
                return [method(reached, wanted, {}) for reached, wanted in calls]
        except Exception as error:
            raise NoHindsightError(
                f"{_END if method is self._end else _REWARD} of {self._name} has failed",
                where="called with an achieved goal, a desired goal and an empty info",
                why=described(error),
                fix=f"make it work without info, which the replay does not store, {_OFF}",
            ) from error

    @staticmethod
    def _alike(ask: Callable[[Array, Array], Array], pairs: tuple[Array, Array], each: Array) -> bool:
        """Return whether one call for all pairs returns the same as single calls."""
        try:
            return bool(np.allclose(ask(*pairs), each, rtol=_SAME, atol=_SAME))
        except (NoHindsightError, EnvError):
            return False

    def _no_number(self, why: str, method: str) -> EnvError:
        """Return the error for a result of the wrong type."""
        asked = "true or false" if method == _END else "a finite number"
        return EnvError(
            f"{method} of {self._name} does not return {asked}",
            where="replay_config.her_ratio",
            why=why,
            fix=f"return {asked} for a goal, and [n] of them for n goals, {_OFF}",
        )


def _tried(env: gym.Env[Any, Any], options: dict[str, Any] | None) -> tuple[Array, Array, float]:
    """Play a step, and return four pairs of achieved and desired goals, [4, ...] each, and its reward.

    The first pair is that of the step, the second one a success; in the others the goal achieved is that
    before the step.
    """
    try:
        with exits_as_errors():
            before, _ = env.reset(seed=0, options=options)
            env.action_space.seed(0)
            after, reward, *_ = env.step(env.action_space.sample())
    except Exception as error:
        raise EnvError(
            "an environment with goals has failed", where="its first step", why=described(error)
        ) from error
    reached = np.stack([after[ACHIEVED], after[ACHIEVED], before[ACHIEVED], before[ACHIEVED]])
    wanted = np.stack([after[DESIRED], after[ACHIEVED], after[DESIRED], after[ACHIEVED]])
    return reached, wanted, as_number(reward, "the reward")


def make_relabel(
    loaded: LoadedConfig, name: str, spec: AgentSpec, stack: ExitStack, source: EnvSource | None = None
) -> Relabel:
    """Return hindsight for a behaviour of an environment with goals, else a relabelling that changes nothing.

    stack:  closes the environment that computes rewards
    source: of training environments that were passed as objects
    Raises UsageError if hindsight is required and impossible; EnvError as :class:`EnvGoals`.
    """
    config = loaded.for_behaviour(name)
    keys = config.replay_config
    if keys.her_ratio == 0:
        return Relabel("no hindsight: her_ratio is 0" if {*spec.obs.names} >= OF_GOALS else "")
    try:
        task = _task(loaded, config, spec, stack, source)
    except NoHindsightError as error:
        if keys.her_ratio != "auto":
            raise
        return Relabel("no hindsight", f"no hindsight: {error.line}")
    if task is None:
        return Relabel()
    ratio = _RATIO if keys.her_ratio == "auto" else keys.her_ratio
    one_by_one = (
        f"{_REWARD} takes one goal at a time, so hindsight calls it for every transition: make it take [n, "
        "…] goals and return [n] rewards"
    )
    return Hindsight(
        task,
        ratio=ratio,
        scale=config.base_config.reward_scale,
        text=f"hindsight: {ratio:.0%} of the windows with an achieved goal",
        notice="" if task.at_once else one_by_one,
    )


@others_modes()
def _task(
    loaded: LoadedConfig, config: Config, spec: AgentSpec, stack: ExitStack, source: EnvSource | None
) -> EnvGoals | None:
    """Return the environment's goals; None if nothing requires them. Raises as :func:`make_relabel`."""
    base, automatic = config.base_config, config.replay_config.her_ratio == "auto"
    windows = misplaced(config.algorithm, "replay_config", "her_ratio") is None
    sampled = windows and config.sac_config.use_replay_buffer and not config.demonstrations.offline
    shapes = dict(zip(spec.obs.names, zip(spec.obs.shapes, spec.obs.dtypes, strict=True), strict=True))
    if automatic and not (shapes.keys() >= OF_GOALS and sampled):
        return None
    if not shapes.keys() >= OF_GOALS:
        raise _no_goals(base.env_name, f"its observations are {', '.join(shapes)}")
    if shapes[ACHIEVED] != shapes[DESIRED]:
        raise _no_goals(base.env_name, f"{ACHIEVED} and {DESIRED} differ in shape or dtype")
    try:
        request = env_request(loaded, "train", source=source.another() if source else None)
        env = find_recipe(request).make_gym_env()
    except UsageError as error:
        raise _no_goals(base.env_name, error.what) from error
    stack.callback(_close, env)
    if not env.has_wrapper_attr(_REWARD):
        raise _no_goals(base.env_name, f"it has no method {_REWARD}")
    return EnvGoals(env, base.env_name, dict(config.reset_config or {}) or None)


def _close(env: gym.Env[Any, Any]) -> None:
    """Close an environment, whatever it raises."""
    with suppress(Exception), exits_as_errors():  # nothing was kept in it
        env.close()


def _no_goals(env_name: str, why: str) -> NoHindsightError:
    """Return the error for an environment without goals."""
    return NoHindsightError(
        f"{env_name} is not an environment with goals",
        where="replay_config.her_ratio",
        why=why,
        fix=f"provide {', '.join(sorted(OF_GOALS))} and {_REWARD}({ACHIEVED}, {DESIRED}, info), {_OFF}",
    )
