"""Wrappers between a policy and a robot: limits of what is executed, and an emergency stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.env.config import INTERVENTION_KEYS
from algorithm.env.executed import reported_action

Limits = float | Sequence[float] | None
"""One number for all elements of an action, one for each, or None for the bounds of the space."""

STOP = "stop"
"""Info of a step or a reset that is true while the emergency stop is pressed."""


class ActionLimits(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that clips actions, and reports the executed ones as ``info["action_taken"]``.

    What is executed is what the agent stores and learns from. A person's action, which the environment
    reports, is not clipped; the next one changes from it, but stays between the limits. All these infos have
    the names of ``base_config.interventions``.

    By configuration: ``wrappers: [{"algorithm.extras.robots.safety:ActionLimits": {low: -0.5, high: 0.5,
    change: 0.1}}]``.

    low, high: least and greatest numbers that are executed, in units of the action space
    change:    greatest difference from the action executed before, per step; in the first step of an
               episode from 0, or from the bound nearest to it
    part:      key of the Box in a Dict of actions
    Raises ValueError for an action without a Box, for limits outside of its bounds or the wrong way round,
    and for a change that is not above 0.
    """

    intervention_keys = INTERVENTION_KEYS

    def __init__(
        self,
        env: gym.Env[Any, Any],
        low: Limits = None,
        high: Limits = None,
        change: Limits = None,
        part: str | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, low=low, high=high, change=change, part=part)
        super().__init__(env)
        space = env.action_space
        box = space.spaces.get(part or "") if isinstance(space, gym.spaces.Dict) else space
        if not isinstance(box, gym.spaces.Box):
            raise ValueError(f"the limits are of a Box, part is {part!r}, and the action is {space}")
        self._part = part if isinstance(space, gym.spaces.Dict) else None
        self._low = _like(box, box.low if low is None else low, "low")
        self._high = _like(box, box.high if high is None else high, "high")
        self._change = _like(box, np.inf if change is None else change, "change")
        if not ((box.low <= self._low) & (self._low <= self._high) & (self._high <= box.high)).all():
            raise ValueError(f"low {low} to high {high} is no part of the action's bounds, {box}")
        if not (self._change > 0).all():
            raise ValueError(f"change is {change}; it has to be above 0")
        self._before = self._rest()

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode, with the change counted from 0 again."""
        self._before = self._rest()
        return self.env.reset(seed=seed, options=options)

    @override
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Execute the action within the limits."""
        wanted = action if self._part is None else action[self._part]
        low = np.maximum(self._low, self._before - self._change)
        high = np.minimum(self._high, self._before + self._change)
        executed = np.clip(wanted, low, high).astype(self._low.dtype)
        taken = executed if self._part is None else {**action, self._part: executed}
        obs, reward, terminated, truncated, info = self.env.step(taken)
        key, by_person = reported_action(info, self.intervention_keys)
        if key is not None:
            executed = np.asarray(info[key] if self._part is None else info[key][self._part])
        elif self.intervention_keys.executed and not by_person:
            info = {**info, self.intervention_keys.executed: taken}
        self._before = executed
        return obs, reward, terminated, truncated, info

    def _rest(self) -> NDArray[Any]:
        rest: NDArray[Any] = np.clip(np.zeros_like(self._low), self._low, self._high)
        return rest


def _like(box: gym.spaces.Box, values: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 - numbers of any kind
    """Return values in the shape and type of a Box. Raises ValueError."""
    try:
        return np.broadcast_to(np.asarray(values, box.dtype), box.shape)
    except ValueError as error:
        raise ValueError(f"{name} is {values}, and the action has the shape {list(box.shape)}") from error


class EmergencyStop(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that truncates the episode at ``info["stop"]``, and begins the next one only when allowed.

    The next episode begins when the environment's method ``is_stopped()`` returns False, which reads the
    button; without that method, when somebody presses Enter in the terminal. Set ``base_config.env_timeout``
    to −1: otherwise the run takes the pause for a failure.

    Raises ValueError where there is neither a method nor a terminal.
    """

    POLL = 0.1
    """Seconds between two questions whether the button is released."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._stopped = False
        self._is_pressed = env.get_wrapper_attr("is_stopped") if env.has_wrapper_attr("is_stopped") else None
        if self._is_pressed is None and not sys.stdin.isatty():
            raise ValueError("nobody could end a stop: there is no method is_stopped() and no terminal")

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode; while the stop is pressed, wait first."""
        while True:
            if self._stopped or (self._is_pressed is not None and self._is_pressed()):
                self._wait()
            obs, info = self.env.reset(seed=seed, options=options)
            self._stopped = bool(info.get(STOP))
            if not self._stopped:
                return obs, info

    @override
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Pass the step on; a stop truncates the episode."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._stopped = bool(info.get(STOP))
        return obs, reward, terminated, truncated or self._stopped, info

    def _wait(self) -> None:
        if self._is_pressed is None:
            input("emergency stop: press Enter to begin the next episode ")
            return
        print("emergency stop: waiting until is_stopped() is False", file=sys.stderr)
        while self._is_pressed():
            time.sleep(self.POLL)
