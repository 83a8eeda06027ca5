"""Worker: steps copies of an environment with random actions and without learning, and counts."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import closing
from itertools import cycle
from time import perf_counter

import gymnasium as gym
import numpy as np

from algorithm.env.base import Fault, VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.run.seeding import episode_seeds
from algorithm.spec import DEFAULT_BEHAVIOUR

Step = Callable[[np.ndarray], int]
"""Takes an action [N, A]; returns how many of the N copies took a step."""

ACTIONS = 512
"""Actions are drawn beforehand: drawing them is not what is measured."""


def open_ours(env_id: str, n: int, workers: int) -> VecEnv:
    """Our environments as a training makes them; a fault ends the measurement."""

    def stop(fault: Fault) -> None:
        raise RuntimeError(fault.line)

    return make_vec_env("GYM", env_id, n=n, seed_of=episode_seeds(0, "train"), workers=workers, on_fault=stop)


def open_peer(kind: str, env_id: str, n: int) -> gym.vector.VectorEnv:
    """Gymnasium's own vector environments, without its checker, which we leave out too."""
    make = [lambda: gym.make(env_id, disable_env_checker=True) for _ in range(n)]
    return gym.vector.SyncVectorEnv(make) if kind == "sync" else gym.vector.AsyncVectorEnv(make)


def step_ours(env: VecEnv) -> Step:
    """Our environments after their first reset."""
    env.reset(episode=0)

    def step(action: np.ndarray) -> int:
        skipped = env.step({DEFAULT_BEHAVIOUR: action})[DEFAULT_BEHAVIOUR].skipped
        return len(action) - (0 if skipped is None else int(skipped.sum()))

    return step


def step_peer(env: gym.vector.VectorEnv) -> Step:
    """Gymnasium's after their first reset. A copy whose episode has ended is reset by the next call instead
    of being stepped, which does not count.
    """
    env.reset(seed=0)
    resetting = np.zeros(env.num_envs, np.bool_)

    def step(action: np.ndarray) -> int:
        nonlocal resetting
        stepped = int((~resetting).sum())
        _, _, terminated, truncated, _ = env.step(action)
        resetting = terminated | truncated
        return stepped

    return step


def measure(step: Step, n: int, action_size: int, seconds: float) -> tuple[int, float]:
    """Step for a warm-up of a tenth of ``seconds``, then for ``seconds``; (steps, seconds taken)."""
    rng = np.random.default_rng(0)
    actions = cycle(rng.uniform(-1, 1, (ACTIONS, n, action_size)).astype(np.float32))
    _step_for(step, actions, seconds / 10)
    return _step_for(step, actions, seconds)


def _step_for(step: Step, actions: cycle[np.ndarray], seconds: float) -> tuple[int, float]:
    count, begin = 0, perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        count += step(next(actions))
    return count, elapsed


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--env", required=True, help="id of the environment, module:Id")
    parser.add_argument("--kind", choices=("ours", "sync", "async"), required=True)
    parser.add_argument("--n", type=int, required=True, help="copies")
    parser.add_argument("--workers", type=int, default=0, help="ours: worker processes, 0 is none")
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    if arguments.kind == "ours":
        with closing(open_ours(arguments.env, arguments.n, arguments.workers)) as ours:
            size = ours.specs[DEFAULT_BEHAVIOUR].action.continuous
            steps, seconds = measure(step_ours(ours), arguments.n, size, arguments.seconds)
    else:
        with closing(open_peer(arguments.kind, arguments.env, arguments.n)) as peer:
            (size,) = peer.single_action_space.shape or ()
            steps, seconds = measure(step_peer(peer), arguments.n, size, arguments.seconds)
    print("\n" + json.dumps({"steps": steps, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
