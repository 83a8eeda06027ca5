"""Messages about hindsight: on the start screen, and where it cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.config import load_config
from algorithm.core.errors import UserError
from algorithm.env.gym import GymEnv
from algorithm.env.registry import find_recipe
from algorithm.env.request import EnvRequest
from algorithm.env.toys.exploration import ToyBits
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from algorithm.run.experience.goals import make_relabel
from tests.lib.oracles_replay import make_segment


def _from_five(*, ends: bool) -> Callable[..., Any]:
    """Sound rewards while there are few; then infinite ones, or none, from the sixth on."""

    def reward(env: Any, achieved: Any, desired: Any, info: Any) -> Any:
        rewards = ToyBits.compute_reward(env, achieved, desired, info)
        if rewards.size <= 5:
            return rewards
        return rewards[:5] if ends else np.where(np.arange(rewards.size) == 5, np.inf, rewards)

    return reward


class Saying(ToyBits):
    """Says something else of goals than it steps."""

    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._now[action] ^= 1
        return -1.0, False


class Bare(Saying):
    """Without a reward for other goals."""

    @property
    def compute_reward(self) -> Any:
        raise AttributeError("compute_reward")


class Wide(ToyBits):
    """The goal is shown as numbers, what is achieved as bits."""

    def __init__(self) -> None:
        super().__init__()
        parts = {**self.observation_space.spaces, "desired_goal": gym.spaces.Box(0, 1, (12,), np.float32)}
        self.observation_space = gym.spaces.Dict(parts)


class Costly(ToyBits):
    """A step costs more than its goal says."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return (obs, reward - 0.5, *rest)


class Undecided(Saying):
    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return True if achieved_goal.ndim > 1 else None


class More(ToyBits):
    """Something else than a goal is seen as well, and what is usually seen has parts."""

    def __init__(self) -> None:
        super().__init__()
        seen = gym.spaces.Dict(bits=self.observation_space["observation"])
        parts = {**self.observation_space.spaces, "observation": seen, "wind": gym.spaces.Box(0, 1, (2,))}
        self.observation_space = gym.spaces.Dict(parts)

    def _observe(self) -> dict[str, Any]:
        seen = super()._observe()
        return {**seen, "observation": {"bits": seen["observation"]}, "wind": np.ones(2, np.float32)}


REWARDS: dict[str, tuple[type, Callable[..., Any]]] = {
    "Long": (Saying, lambda env, achieved, desired, info: -(achieved != desired).astype(float)),
    "Text": (Saying, lambda env, achieved, desired, info: "good"),
    "Nan": (
        Saying,
        lambda env, achieved, desired, info: np.full(len(achieved) if achieved.ndim > 1 else (), np.nan),
    ),
    "Informed": (Saying, lambda env, achieved, desired, info: -1.0 if info["step"] else 0.0),
    "Single": (ToyBits, lambda env, achieved, desired, info: -float((achieved != desired).any())),
    "Later": (ToyBits, _from_five(ends=False)),
    "Fewer": (ToyBits, _from_five(ends=True)),
}
"""Name of an environment -> what it is otherwise, and its reward for other goals."""

TOYS: dict[str, type] = {
    "Bare": Bare,
    "Wide": Wide,
    **{name: type(name, (base,), {"compute_reward": reward}) for name, (base, reward) in REWARDS.items()},
    "Costly": Costly,
    "Undecided": Undecided,
    "More": More,
}

for _name, _toy in TOYS.items():
    gym.register(f"{_name}-v0", _toy, max_episode_steps=12)

BITS = "algorithm.env.toys:ToyBits-v0"
CASES = (
    (BITS, ()),
    (BITS, ("replay_config.her_ratio=0",)),
    (BITS, ("replay_config.her_ratio=0.5",)),
    (BITS, ("algorithm=PPO",)),
    ("CartPole-v1", ()),
    ("CartPole-v1", ("replay_config.her_ratio=0.8",)),
    *((f"tests.messages.goals:{toy}-v0", ()) for toy in TOYS),
    ("tests.messages.goals:Bare-v0", ("replay_config.her_ratio=1",)),
    ("tests.messages.goals:Wide-v0", ("replay_config.her_ratio=1",)),
)
"""Environments and overrides."""


def messages() -> Iterator[tuple[str, str]]:
    for env_name, overrides in CASES:
        yield " ".join((env_name, *overrides)), _said(env_name, overrides)


def _said(env_name: str, overrides: tuple[str, ...]) -> str:
    loaded = load_config(env_name, overrides=overrides, seed=1)
    recipe = find_recipe(EnvRequest("GYM", env_name, seed_of=lambda index, episode: 0))
    spec = GymEnv(recipe.make_gym_env()).spec
    with ExitStack() as stack:
        try:
            relabel = make_relabel(loaded, "default", spec, stack)
            said = f"{relabel.text}\n{relabel.notice}".strip() or "nothing"
            replay = ReplayBuffer(spec, capacity=40, batch_size=16, sampler=UniformSampler(), relabel=relabel)
            replay.add(make_segment(spec, stream=0, episode=0, start=0, length=30))
            replay.sample()
        except UserError as error:
            return f"{type(error).__name__}, exit code {error.exit_code}\n{error}"
    return said
