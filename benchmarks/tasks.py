"""The tasks on which learning is compared, and the line a learning worker answers with.

Imports the standard library only: the workers run in two environments that share nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Task:
    """SAC with uniform replay, one-step targets, one update per step, temperature learned from 1.

    The same values stand in ``equal/config.yaml``, which our side reads; a test keeps them equal.
    """

    env_id: str
    steps: int
    eval_every: int  # environment steps between two evaluations
    learning_rate: float
    start_step: int = 1000  # uniformly random steps before learning
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 256
    hidden: tuple[int, int] = (256, 256)
    eval_episodes: int = 10


TASKS = {
    "pendulum": Task(env_id="Pendulum-v1", steps=8000, eval_every=1000, learning_rate=1e-3),
    # Learning rate, gamma and tau are those of RL Baselines3 Zoo for this task.
    "half_cheetah": Task(
        env_id="pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0",
        steps=50_000,
        eval_every=5000,
        learning_rate=7.3e-4,
        gamma=0.98,
        tau=0.02,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What one training run came to."""

    library: str
    version: str
    task: str
    seed: int
    seconds: float  # of training, without evaluation
    parameters: int  # trainable weights of critics and policy
    curve: tuple[tuple[int, tuple[float, ...]], ...]  # (environment step, return of each evaluation episode)

    def print(self) -> None:
        """One line of JSON, the last line of a worker's standard output."""
        print(json.dumps(asdict(self)), flush=True)
