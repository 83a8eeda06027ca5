"""How fast environments are collected from, and what their worker processes change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness import Bench, smoke
from benchmarks.runs import timed
from benchmarks.speed import EQUAL, equal
from benchmarks.worker import Answer, WorkerError

GYMNASIUM = {"sync": gym.vector.SyncVectorEnv, "async": gym.vector.AsyncVectorEnv}
ACTIONS = 512
"""Number of actions drawn beforehand, since drawing is not measured."""


@smoke(task="pendulum", copies=[2], workers=[1], rounds=1, steps=60, learned=270)
def workers(
    bench: Bench,
    _: Any,
    *,
    task: str = "half_cheetah",
    copies: list[int] = [1, 2, 4, 8],
    workers: list[int] = [0, 1, 2],
    rounds: int = 3,
    steps: int = 4000,
    learned: int = 1500,
) -> Iterator[Mapping[str, Any]]:
    """Collecting with worker processes, and whether their number changes what is learned."""
    env_id, speed = equal(task)["base_config"]["env_name"], []
    for n in copies:
        rates: dict[str, list[float]] = {}
        for _ in range(rounds):  # the arrangements take turns
            for number in (number for number in workers if number <= n):
                answer = _train(bench, task, n, number, steps, start_step=steps)
                rates.setdefault(f"workers {number}", []).append(steps / answer["time"]["step"])
            for kind in GYMNASIUM:
                answer = bench.ours("workers:gymnasium", env_id=env_id, n=n, kind=kind, steps=steps)
                rates.setdefault(kind, []).append(answer["steps"] / answer["seconds"])
        speed.append({"copies": n, "medians": {name: median(x) for name, x in rates.items()}, "rates": rates})
        print(f"{n} copies, steps/s: {speed[-1]['medians']}", flush=True)
    yield {"env_id": env_id, "speed": speed}
    networks = {
        str(number): _train(bench, task, 4, number, learned, start_step=min(1000, learned // 2))["sha256"]
        for number in workers
    }
    same = len(set(networks.values())) == 1
    yield {"identity": {"steps": learned, "copies": 4, "sha256": networks, "same": same}}
    if not same:
        raise WorkerError(f"the number of worker processes changed what was learned: {networks}")


def _train(bench: Bench, task: str, n: int, workers: int, steps: int, *, start_step: int) -> Answer:
    """A training of ours with so many copies; with as many random steps as steps it only collects."""
    keys = {"base_config__max_step": steps, "base_config__workers": workers, "eval_config__per_step": steps}
    keys["sac_config__start_step"] = start_step
    return timed(bench, str(EQUAL), "-c", task, f"--agents={n}", seed=1, **keys)


def gymnasium(env_id: str, n: int, kind: str, steps: int) -> Answer:
    """Random steps of Gymnasium's own vector environments, without its checker, which ours leave out too.

    A copy whose episode has ended is reset by the next call instead of being stepped, which does not count.
    """
    make = [lambda: gym.make(env_id, disable_env_checker=True) for _ in range(n)]
    with closing(GYMNASIUM[kind](make)) as env:
        shape = (ACTIONS, *(env.action_space.shape or ()))
        rng = np.random.default_rng(0)
        actions = cycle(rng.uniform(-1, 1, shape).astype(np.float32))
        env.reset(seed=0)
        resetting, count, begin = np.zeros(n, np.bool_), 0, perf_counter()
        while count < steps:
            count += int((~resetting).sum())
            _, _, terminated, truncated, _ = env.step(next(actions))
            resetting = terminated | truncated
        return {"steps": count, "seconds": perf_counter() - begin}
