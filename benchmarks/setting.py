"""What both libraries are asked to do, and the line a worker answers with.

Imports the standard library only: the workers run in two environments that share nothing else.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import perf_counter


@dataclass(frozen=True)
class Setting:
    """One SAC update: critics, policy, temperature and target networks once each, its sampling included."""

    obs_size: int = 17
    action_size: int = 6
    hidden: tuple[int, int] = (256, 256)
    num_critics: int = 2
    batch_size: int = 256
    transitions: int = 50_000  # in the replay, random numbers
    episode_length: int = 1000
    start_step: int = 1000  # end to end: random steps before learning
    gamma: float = 0.99
    tau: float = 0.005
    learning_rate: float = 3e-4

    @classmethod
    def pendulum(cls) -> Setting:
        """The same agent on Pendulum-v1, for the comparison end to end."""
        return cls(obs_size=3, action_size=1, episode_length=200)

    @property
    def parameters(self) -> int:
        """Trainable weights of the critics and the policy (mean and deviation), without the targets."""
        critic = _mlp(self.obs_size + self.action_size, *self.hidden, 1)
        policy = _mlp(self.obs_size, *self.hidden, 2 * self.action_size)
        return self.num_critics * critic + policy

    def as_json(self) -> dict[str, object]:
        """The setting as plain values, for the result file."""
        return {**asdict(self), "parameters": self.parameters}


def _mlp(*sizes: int) -> int:
    """Weights and biases of fully connected layers of these sizes."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def worker_arguments(description: str) -> ArgumentParser:
    """The command line that every worker understands."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--task", choices=("updates", "end-to-end"), default="updates")
    parser.add_argument("--seconds", type=float, default=6.0, help="time measured, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of updates that do not count")
    parser.add_argument("--steps", type=int, default=4000, help="end to end: environment steps")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def measure(update: Callable[[], object], seconds: float, warm_up: float) -> tuple[int, float]:
    """Call ``update`` for ``warm_up``, then for ``seconds``; returns (updates counted, seconds taken)."""
    _run_for(update, warm_up)
    return _run_for(update, seconds)


def _run_for(update: Callable[[], object], seconds: float) -> tuple[int, float]:
    count, begin = 0, perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        update()
        count += 1
    return count, elapsed


def report(
    library: str,
    version: str,
    *,
    threads: int,
    parameters: int,
    updates: int,
    steps: int,
    seconds: float,
    replay_bytes: float | None = None,
) -> None:
    """Print a worker's answer: one line of JSON, the last line of its standard output.

    parameters:   trainable weights of critics and policy as built; unequal networks are not compared.
    updates:      gradient updates within ``seconds``.
    steps:        environment steps within ``seconds``; 0 where no environment was stepped.
    replay_bytes: bytes of replay memory per stored transition, where the worker knows them.
    """
    answer = {
        "library": library,
        "version": version,
        "threads": threads,
        "parameters": parameters,
        "updates": updates,
        "steps": steps,
        "seconds": seconds,
        "replay_bytes": replay_bytes,
    }
    print(json.dumps(answer), flush=True)
