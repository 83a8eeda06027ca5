"""An environment whose data say where they come from, alone and as a vector class of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


def diary_seed(index: int, episode: int) -> int:
    """The seed from which a Diary reads its copy and its episode."""
    return index * 1000 + episode


def lost(copy: float, episode: float, step: float) -> bool:
    """Whether a Diary that fails ``sometimes`` brings nothing from this step on."""
    return copy == 0 and episode % 4 > 1 and step >= episode % 4 - 1


class Diary(gym.Env):
    """Observes (copy, episode, step, position) in float64; the actions move the position.

    A seed is ``diary_seed(copy, episode)``; without one the next episode of the same copy begins, so it does
    not matter who counts. Truncated after 1 to 6 steps, terminated when the position leaves [−4, 4].

    reuse: hand out the same array every time, changed in place
    fails: which call raises in copy 0, ``reset`` or ``step``; ``first``: the reset of episode 0;
        ``sometimes``: that of ``lost``
    """

    def __init__(self, copy: int = 0, *, reuse: bool = False, fails: str = "") -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = gym.spaces.Box(-2.0, 4.0, (2,), np.float32)
        self._reuse, self._fails = reuse, fails
        self._obs = np.array([copy, -1.0, 0.0, 0.0])
        self.options: dict[str, Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._fail(self._fails == "reset" or (self._fails == "first" and seed == 0))
        copy, episode = divmod(seed, 1000) if seed is not None else (self._obs[0], self._obs[1] + 1)
        self._obs[:] = (copy, episode, 0, 0)
        self.options = options
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self._fail(self._fails == "step" or (self._fails == "sometimes" and lost(*self._obs[:3])))
        self._obs[2:] += (1, float(action[0]) - float(action[1]) + 1.0)
        copy, episode, step, position = self._obs
        terminated = bool(abs(position) > 4)
        truncated = bool(step == 1 + (3 * copy + 5 * episode) % 6)
        return self._seen(), float(step + action[1]), terminated, truncated, {"spare": step}

    def _seen(self) -> np.ndarray:
        return self._obs if self._reuse else self._obs.copy()

    def _fail(self, here: bool) -> None:
        if here and self._obs[0] == 0:
            raise RuntimeError("the pen is dry")


class DiaryVector(VectorEnv):
    """N diaries in the manner of a vector class of an environment's own.

    It hands out the same arrays every time, takes one seed for all (and learns from it only whether to count
    its episodes from 0 again), and with same-step autoreset gives the last observations as one array.

    masks: honour ``options["reset_mask"]``
    """

    def __init__(
        self, num_envs: int, *, mode: Any = AutoresetMode.NEXT_STEP, masks: bool = True,
        max_episode_steps: int | None = None, **diary: Any,
    ) -> None:  # fmt: skip
        self.metadata = {"autoreset_mode": mode}
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.single_action_space = gym.spaces.Box(-2.0, 4.0, (2,), np.float32)
        self._mode, self._masks = mode, masks
        self._diaries = [Diary(i, **diary) for i in range(num_envs)]
        self._obs, self._last = np.zeros((num_envs, 4)), np.zeros((num_envs, 4))
        self._reward = np.zeros(num_envs)
        self._ends = np.zeros((2, num_envs), np.bool_)
        self.calls: list[tuple[Any, dict[str, Any]]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.calls.append((seed, dict(options or {})))
        mask = (options or {}).get("reset_mask") if self._masks else None
        anew = mask is None and seed is not None and seed % 1000 == 0
        self._begin(range(self.num_envs) if mask is None else np.flatnonzero(mask), anew=anew)
        return self._obs, {}

    def step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict]:
        resets = self._ends.any(0)
        assert not (resets.any() and self._mode is AutoresetMode.DISABLED), "an ended copy was not reset"
        infos: dict[str, Any] = {}
        ends = np.zeros((2, self.num_envs), np.bool_)
        for i, diary in enumerate(self._diaries):
            if resets[i]:
                self._reward[i] = 0
            else:
                self._obs[i], self._reward[i], *ends[:, i], _ = diary.step(actions[i])
        self._begin(np.flatnonzero(resets))
        if self._mode is AutoresetMode.SAME_STEP:
            self._last[:] = self._obs
            infos = {"final_obs": self._last}
            self._begin(np.flatnonzero(ends.any(0)))
            return self._obs, self._reward, *ends, infos
        self._ends[:] = ends
        return self._obs, self._reward, *self._ends, infos

    def _begin(self, copies: Iterable[int], anew: bool = False) -> None:
        for i in copies:
            self._obs[i] = self._diaries[i].reset(seed=diary_seed(i, 0) if anew else None)[0]
            self._ends[:, i] = False


gym.register("Diary-v0", entry_point=Diary, max_episode_steps=50)
gym.register("DiaryVector-v0", vector_entry_point=DiaryVector, max_episode_steps=50)
