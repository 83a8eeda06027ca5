"""The tasks on which both libraries train, and the line a learning worker answers with.

Imports the standard library only: the workers run in two environments that share nothing else.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict, dataclass

from setting import count_weights, worker_arguments


@dataclass(frozen=True, kw_only=True)
class Task:
    """SAC with uniform replay, one-step targets, one update per step, temperature learned from 1.

    The same values stand in ``equal/config.yaml``, which our side reads; a test keeps them equal.
    """

    env_id: str
    obs_size: int
    action_size: int
    steps: int
    eval_every: int  # environment steps between two evaluations
    learning_rate: float
    seeds: int  # runs of each library, unless the command line says otherwise
    start_step: int = 1000  # uniformly random steps before learning
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 256
    hidden: tuple[int, int] = (256, 256)
    eval_episodes: int = 10

    @property
    def parameters(self) -> int:
        """Trainable weights of the two critics and the policy, without the targets."""
        return count_weights(self.obs_size, self.action_size, self.hidden, num_critics=2)


TASKS = {
    "pendulum": Task(
        env_id="Pendulum-v1",
        obs_size=3,
        action_size=1,
        steps=8000,
        eval_every=1000,
        learning_rate=1e-3,
        seeds=5,
    ),
    # Learning rate, gamma and tau are those of RL Baselines3 Zoo for this task.
    "half_cheetah": Task(
        env_id="pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0",
        obs_size=26,
        action_size=6,
        steps=50_000,
        eval_every=5000,
        learning_rate=7.3e-4,
        seeds=3,
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
        """One line of JSON; libraries print around it."""
        print("\n" + json.dumps(asdict(self)), flush=True)


def step_arguments(description: str | None) -> ArgumentParser:
    """The command line of the workers of ``steps.py``."""
    parser = worker_arguments(description)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--steps", type=int, required=True, help="environment steps")
    parser.add_argument("--start-step", type=int, required=True, help="random steps before learning")
    return parser
