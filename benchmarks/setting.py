"""What one update is, for both libraries, and the line a worker answers with.

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
    start_step: int = 1000  # updates are owed from this environment step on
    gamma: float = 0.99
    tau: float = 0.005
    learning_rate: float = 3e-4

    @property
    def parameters(self) -> int:
        """Trainable weights of the critics and the policy, without the targets."""
        return count_weights(self.obs_size, self.action_size, self.hidden, num_critics=self.num_critics)

    def as_json(self) -> dict[str, object]:
        """The setting as plain values, for the result file."""
        return {**asdict(self), "parameters": self.parameters}


def count_weights(obs_size: int, action_size: int, hidden: tuple[int, ...], *, num_critics: int) -> int:
    """Weights of critics (one output) and policy (mean and deviation of each action), fully connected."""
    critic = _mlp(obs_size + action_size, *hidden, 1)
    return num_critics * critic + _mlp(obs_size, *hidden, 2 * action_size)


def _mlp(*sizes: int) -> int:
    """Weights and biases of fully connected layers of these sizes."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def worker_arguments(description: str | None) -> ArgumentParser:
    """The command line that every worker of a speed comparison understands."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def update_arguments(description: str | None) -> ArgumentParser:
    """The command line of the workers of ``updates.py``."""
    parser = worker_arguments(description)
    parser.add_argument("--seconds", type=float, default=6.0, help="time measured, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of updates that do not count")
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


def report(library: str, version: str, **answer: object) -> None:
    """Print a worker's answer: one line of JSON with what was measured and what shows that it is comparable.

    seconds:      time measured.
    updates, steps: gradient updates and environment steps within ``seconds``.
    threads, parameters: torch threads, and trainable weights of critics and policy as built.
    replay_bytes: bytes of replay memory per stored transition.
    time:         where ``seconds`` went, by activity.
    """
    print("\n" + json.dumps({"library": library, "version": version, **answer}), flush=True)
