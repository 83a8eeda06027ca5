"""A sound environment, and one for each fault that ``--check`` finds; each breaks exactly one thing.

Use them by id: ``tests.extras.check.toys:Blind-v0``.
"""

from __future__ import annotations

import ctypes
import os
import random
import time
from typing import Any

import gymnasium as gym
import numpy as np

LIMIT = 30


class Sound(gym.Env):
    """A drunkard on a line: terminated beyond ±1.5, truncated after 30 steps. Nothing is wrong with it."""

    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012
    observation_space: gym.Space = gym.spaces.Box(-5.0, 5.0, (3,), np.float32)
    action_space: gym.Space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        self._state = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        self._state[2] += self._moved()
        return self._seen(), self._info()

    def step(self, action: Any) -> Any:
        self._steps += 1
        drift = self.np_random.normal(0.0, 0.2, 3)
        self._state = (self._state * 0.97 + drift + 0.2 * self._pushed(action)).astype(np.float32)
        return self._seen(), self._reward(), *self._ends(self._is_over()), self._info()

    def _moved(self) -> Any:
        """Return how far from its seed an episode begins."""
        return np.float32(0.0)

    def _pushed(self, action: Any) -> float:
        return float(action[0])

    def _is_over(self) -> bool:
        return bool(abs(self._state[0]) > 1.2)

    def _ends(self, over: bool) -> tuple[Any, Any]:
        """Return terminated and truncated."""
        return over, self._steps >= LIMIT and not over

    def _info(self) -> dict[str, Any]:
        return {}

    def _seen(self) -> Any:
        return np.clip(self._state, -5.0, 5.0)

    def _reward(self) -> Any:
        return -float(abs(self._state[1]))


class Picture(Sound):
    """Shows where it is as an image."""

    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)

    def _seen(self) -> Any:
        image = np.zeros((12, 12, 1), np.uint8)
        image[int(np.clip(self._state[0] * 3 + 6, 0, 11)), int(np.clip(self._state[1] * 3 + 6, 0, 11))] = 255
        return image


class Choosy(Sound):
    """Three choices, of which one is closed."""

    action_space = gym.spaces.Discrete(3)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()}

    def _pushed(self, action: Any) -> float:
        return float(action) - 1.0

    def _mask(self) -> Any:
        mask = np.ones(3, np.int8)
        mask[self._steps % 3] = 0
        return mask


def broken(name: str, base: type[Sound] = Sound, **parts: Any) -> type[Sound]:
    """Return a kind of ``base`` with other methods or spaces."""
    return type(name, (base,), {"__module__": __name__, **parts})


# --- the environment

Unbounded = broken("Unbounded", action_space=gym.spaces.Box(-np.inf, np.inf, (1,), np.float32))
Unserved = broken("Unserved", observation_space=gym.spaces.Text(5))


class Unmakeable(Sound):
    def __init__(self) -> None:
        raise FileNotFoundError("no such map")


OldReset = broken("OldReset", reset=lambda self, **kwargs: Sound.reset(self, **kwargs)[0])


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class Seedless(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


Uninformed = broken("Uninformed", step=lambda self, action: (*Sound.step(self, action)[:4], []))


class Raising(Sound):
    def step(self, action: Any) -> Any:
        if self._steps == 9:
            raise RuntimeError("the wheel came off")
        return super().step(action)


class Unclosable(Sound):
    def close(self) -> None:
        raise RuntimeError("the door is stuck")


class Strict(Sound):
    _over = False

    def reset(self, **kwargs: Any) -> Any:
        self._over = False
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self._over:
            raise RuntimeError("it is over")
        taken = super().step(action)
        self._over = taken[2] or taken[3]
        return taken


Closed = broken(
    "Closed", Choosy, _mask=lambda self: np.zeros(3, np.int8) if self._steps == 9 else Choosy._mask(self)
)

# --- observations

Misshapen = broken(
    "Misshapen", _seen=lambda self: Sound._seen(self)[None] if self._steps == 9 else Sound._seen(self)
)


class Partial(Sound):
    observation_space = gym.spaces.Dict(near=Sound.observation_space, far=Sound.observation_space)

    def _seen(self) -> Any:
        seen = {"near": super()._seen(), "far": super()._seen()}
        return {"near": seen["near"]} if self._steps == 9 else seen


Overchosen = broken(
    "Overchosen",
    observation_space=gym.spaces.Discrete(3),
    _seen=lambda self: 3 if self._steps == 9 else int(self._state[0] * 10) % 3,
)


Undefined = broken(
    "Undefined", _seen=lambda self: np.where([0, 0, self._steps == 9], np.float32("nan"), Sound._seen(self))
)
Outside = broken(
    "Outside", _seen=lambda self: np.where([0, self._steps == 9, 0], np.float32(7), Sound._seen(self))
)
Stuck = broken("Stuck", _seen=lambda self: np.where([0, 0, 1], np.float32(0.5), Sound._seen(self)))
Blind = broken("Blind", _seen=lambda self: np.zeros(3, np.float32))
Vast = broken(
    "Vast",
    observation_space=gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
    _seen=lambda self: Sound._seen(self) * np.float32([1, 1, 1000]),
)

# --- actions

Mighty = broken(
    "Mighty",
    action_space=gym.spaces.Box(-1e6, 1e6, (1,), np.float32),
    _pushed=lambda self, action: float(action[0]) / 1e6,
)

# --- rewards

Worthless = broken(
    "Worthless", _reward=lambda self: float("nan") if self._steps == 9 else Sound._reward(self)
)
Rewardless = broken("Rewardless", _reward=lambda self: None if self._steps == 9 else Sound._reward(self))
Boxed = broken("Boxed", _reward=lambda self: np.array([Sound._reward(self)]))
Barren = broken("Barren", _reward=lambda self: 0.0)
Monotonous = broken("Monotonous", _reward=lambda self: 1.0, _is_over=lambda self: False)
Rich = broken("Rich", _reward=lambda self: 1e5 * Sound._reward(self))
Poor = broken("Poor", _reward=lambda self: 1e-6 * Sound._reward(self))

# --- episodes

Ceaseless = broken("Ceaseless", _ends=lambda self, over: (False, False))
Unending = broken("Unending", _is_over=lambda self: False)
Both = broken("Both", _ends=lambda self, over: (self._steps >= LIMIT, self._steps >= LIMIT))
Punctual = broken("Punctual", _ends=lambda self, over: (self._steps >= LIMIT, False))

# --- seeds

Unseeded = broken(  # never begins quite where it began before
    "Unseeded", _moved=lambda self: np.float32(1e-3 * int.from_bytes(os.urandom(4), "little") / 2**32)
)


class Remembering(Sound):
    """What was left of the last episode is there in the next one."""

    _left = np.float32(0.0)

    def _moved(self) -> Any:
        return self._left

    def step(self, action: Any) -> Any:
        taken = super().step(action)
        self._left = self._state[2] / 10
        return taken


class Individual(Sound):
    """Repeats itself, and no other instance does."""

    _made = 0

    def __init__(self) -> None:
        Individual._made += 1
        self._own = np.float32(Individual._made / 1000)

    def _moved(self) -> Any:
        return self._own


class Imprinted(Sound):
    """The first episode of an instance leaves its mark on all that follow."""

    _mark: np.float32 | None = None

    def _moved(self) -> Any:
        if self._mark is None:
            self._mark = self._state[2] / 10
        return self._mark


class Borrowing(Sound):
    """Seeds the random numbers of the whole process, so that each episode repeats as long as it is alone."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        random.seed(seed)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._state = self._state + np.float32(random.gauss(0.0, 0.05))
        return super().step(action)


# --- copies, ends of the process


class Shared(Sound):
    """All copies of a process stand in the same place; alone each repeats its episodes."""

    place = np.zeros(3, np.float32)

    def reset(self, **kwargs: Any) -> Any:
        _, info = super().reset(**kwargs)
        Shared.place = self._state
        return self._seen(), info

    def step(self, action: Any) -> Any:
        self._state = Shared.place
        taken = super().step(action)
        Shared.place = self._state
        return taken


class Hanging(Sound):
    def step(self, action: Any) -> Any:
        while self._steps == 9:
            time.sleep(0.1)
        return super().step(action)


class Crashing(Sound):
    def step(self, action: Any) -> Any:
        if self._steps == 9:
            ctypes.string_at(0)  # a segmentation fault
        return super().step(action)


TOYS = [toy for toy in list(vars().values()) if isinstance(toy, type) and issubclass(toy, Sound)]
for _toy in TOYS:
    gym.register(f"{_toy.__name__}-v0", entry_point=_toy)
