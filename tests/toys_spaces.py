"""Environments of many kinds of spaces, that check themselves: ``tests.toys:Nested-v0`` and ``Masked-v0``."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np


class Diverse(gym.Env):
    """Episodes of 2 + key mod 5 steps; the key is seed mod 1000, and without a seed one more than the last.

    They end terminated for an even key, truncated for an odd one.
    """

    _key, _step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._key, self._step = (self._key + 1 if seed is None else seed) % 1000, 0
        return self._seen(), self._info(False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        reward = self._take(action)
        self._step += 1
        ended, odd = self._step == 2 + self._key % 5, bool(self._key % 2)
        terminated = ended and not odd
        return self._seen(terminated), reward, terminated, ended and odd, self._info(terminated)

    def _take(self, action: Any) -> float:
        raise NotImplementedError

    def _seen(self, over: bool = False) -> Any:
        raise NotImplementedError

    def _info(self, over: bool) -> dict[str, Any]:
        return {"spare": self._step}


class Nested(Diverse):
    """Three observations that tell key and step; an action of two parts.

    Each entry of the camera is (key + 3 step + its number) mod 256; the speed is (key, sum of all the forces
    so far), the gear the number of the last choice. The reward is the step plus the first force.

    reuse: hand out the same arrays every time, changed in place
    """

    def __init__(self, reuse: bool = True) -> None:
        self._reuse = reuse
        self.observation_space = gym.spaces.Dict(
            camera=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            speed=gym.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            gear=gym.spaces.Discrete(3, start=-1),
        )
        self.action_space = gym.spaces.Tuple(
            [gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 3.0, (2,), np.float32)]
        )
        self._camera, self._speed, self._gear = np.zeros((8, 8, 3), np.uint8), np.zeros(2), 0

    def _take(self, action: Any) -> float:
        self._gear = int(action[0]) - 1
        self._speed[1] += float(action[1].sum())
        return float(self._step + action[1][0])

    def _seen(self, over: bool = False) -> Any:
        if self._step == 0:
            self._speed[:], self._gear = (self._key, 0.0), 0
        self._camera[:] = (np.arange(192).reshape(8, 8, 3) + self._key + 3 * self._step) % 256
        seen = {"camera": self._camera, "speed": self._speed, "gear": self._gear}
        return seen if self._reuse else deepcopy(seen)


MASKED_ACTIONS: dict[str, gym.Space] = {
    "discrete": gym.spaces.Discrete(4, start=2),
    "multi": gym.spaces.MultiDiscrete([2, 4, 3]),
    "nested": gym.spaces.Dict(
        grip=gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(0, 1, (2,), np.float32)]),
        keys=gym.spaces.MultiBinary(2),
        move=gym.spaces.MultiDiscrete([[2, 3], [1, 4]]),
    ),
}


class Masked(Diverse):
    """Allows some choices of each branch: j where j = key, or (key + step + j) mod 3 > 0 (j mod the choices).

    Fails where a choice is taken that is not allowed. It observes (key, step); the reward is the step.
    Nothing is allowed where the task has ended, as many environments have it.

    where:      the mask stands in ``obs`` or in ``info``; there it is left out in every fourth step, where
                everything is allowed
    actions:    a key of MASKED_ACTIONS
    structured: the mask has the structure of the action space, instead of being flat
    """

    def __init__(self, where: str = "info", actions: str = "discrete", structured: bool = False) -> None:
        self.action_space = MASKED_ACTIONS[actions]
        self._where, self._structured = where, structured
        state = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space: gym.Space = state
        if where == "obs":
            mask = _mask_space(self.action_space, structured)
            self.observation_space = gym.spaces.Dict(state=state, action_mask=mask)
        self._allowed: Any = None

    def _take(self, action: Any) -> float:
        for choice, allowed in zip(chosen(self.action_space, action), self._allowed, strict=True):
            assert allowed[choice], (action, self._allowed)
        return float(self._step)

    def _seen(self, over: bool = False) -> Any:
        at = self._key + self._step
        sizes = branch_sizes(self.action_space)
        free = self._where == "info" and self._step % 4 == 3 and not over
        self._allowed = [
            np.array(
                [free or (not over and (j == self._key % n or (at + j) % 3 > 0)) for j in range(n)], np.int8
            )
            for n in sizes
        ]
        state = np.array([self._key, self._step], np.float32)
        return {"state": state, "action_mask": self._mask()} if self._where == "obs" else state

    def _info(self, over: bool) -> dict[str, Any]:
        given = self._where == "info" and (over or self._step % 4 != 3)
        return {"action_mask": self._mask()} if given else {}

    def _mask(self) -> Any:
        if not self._structured:
            return np.concatenate(self._allowed)
        return structured(self.action_space, iter(self._allowed))


class Grants(gym.Env):
    """Hands out the masks of a list, one with each observation; truncated with the last one."""

    def __init__(self, masks: list[Any]) -> None:
        self.observation_space = gym.spaces.Box(0, 9, (1,))
        self.action_space = gym.spaces.Dict(move=gym.spaces.Discrete(3), jump=gym.spaces.Discrete(2))
        self._masks, self._step = masks, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(1, np.float32), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        over = self._step == len(self._masks) - 1
        return np.full(1, self._step, np.float32), 0.0, False, over, self._info()

    def _info(self) -> dict[str, Any]:
        mask = self._masks[self._step]
        return {} if mask is None else {"action_mask": np.array(mask)}


class Film(gym.Env):
    """Frames of one dtype; frame k is full of (seed + k) mod 256."""

    def __init__(self, dtype: str = "uint8", nested: bool = False) -> None:
        frame = gym.spaces.Box(0, 255, (2, 2), np.dtype(dtype))
        self._nested = nested
        self.observation_space = gym.spaces.Dict(frame=frame) if nested else frame
        self.action_space = gym.spaces.Discrete(2)
        self._frame, self._now = np.zeros((2, 2), np.dtype(dtype)), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._now = seed or 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._now += 1
        return self._seen(), float(action), False, False, {}

    def _seen(self) -> Any:
        self._frame = np.full_like(self._frame, self._now % 256)
        return {"frame": self._frame} if self._nested else self._frame


def branch_sizes(space: gym.Space) -> list[int]:
    """Choices of each branch, by a plain walk over the space."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.flat]
    if isinstance(space, gym.spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else getattr(space, "spaces", ())
    return [n for part in parts for n in branch_sizes(part)]


def chosen(space: gym.Space, action: Any) -> list[int]:
    """Number of the choice in each branch."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(action - space.start)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return [int(choice) for choice in (action - space.start).flat]
    if isinstance(space, gym.spaces.MultiBinary):
        return [int(bit) for bit in action.flat]
    if isinstance(space, gym.spaces.Dict):
        return [c for key, part in space.spaces.items() for c in chosen(part, action[key])]
    if isinstance(space, gym.spaces.Tuple):
        return [c for part, one in zip(space.spaces, action, strict=True) for c in chosen(part, one)]
    return []


def structured(space: gym.Space, allowed: Iterator[np.ndarray]) -> Any:
    """As ``space.sample(mask=…)`` takes it."""
    if isinstance(space, gym.spaces.Discrete):
        return next(allowed)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _tuples(space.nvec.shape, allowed)
    if isinstance(space, gym.spaces.MultiBinary):
        pairs = [next(allowed) for _ in branch_sizes(space)]
        bits = [2 if off and on else int(on) for off, on in pairs]
        return np.array(bits, np.int8).reshape(space.shape)
    if isinstance(space, gym.spaces.Dict):
        return {key: structured(part, allowed) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(structured(part, allowed) for part in space.spaces)
    return None


def _tuples(shape: tuple[int, ...], allowed: Iterator[np.ndarray]) -> Any:
    if not shape:
        return next(allowed)
    return tuple(_tuples(shape[1:], allowed) for _ in range(shape[0]))


def _mask_space(space: gym.Space, structured: bool) -> gym.Space:
    """Of a mask that is observed; structured only for a MultiDiscrete with one axis."""
    sizes = branch_sizes(space)
    if not structured:
        return gym.spaces.MultiBinary(sum(sizes))
    return gym.spaces.Tuple([gym.spaces.MultiBinary(n) for n in sizes])
