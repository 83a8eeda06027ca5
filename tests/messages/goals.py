"""Messages about hindsight: on the start screen, and where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from algorithm.config import load_config
from algorithm.core.errors import UserError
from algorithm.env.gym import GymEnv
from algorithm.env.registry import find_recipe
from algorithm.env.request import EnvRequest
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from algorithm.run.experience.goals import make_relabel
from tests.oracles_replay import make_segment
from tests.toys_goals import TOYS

BITS = "algorithm.env.toys:ToyBits-v0"
CASES = (
    (BITS, ()),
    (BITS, ("replay_config.her_ratio=0",)),
    (BITS, ("replay_config.her_ratio=0.5", "replay_config.her_goal=final")),
    (BITS, ("algorithm=PPO",)),
    ("CartPole-v1", ()),
    ("CartPole-v1", ("replay_config.her_goal=final",)),
    ("CartPole-v1", ("replay_config.her_ratio=0.8",)),
    *((f"tests.toys_goals:{toy.__name__}-v0", ()) for toy in TOYS),
    ("tests.toys_goals:Bare-v0", ("replay_config.her_ratio=1",)),
    ("tests.toys_goals:Wide-v0", ("replay_config.her_ratio=1",)),
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
