"""Updates per second of one learner by each way to compute them, beside the peers and products alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from algorithm.nn.process import set_up_process
from benchmarks.harness import Bench, smoke
from benchmarks.inside import fill, make_agent
from benchmarks.samples import make_segment, make_spec
from benchmarks.worker import Answer, stay_on_one_core

OBS, ACTION, UNITS, BATCH = 17, 6, 256, 256
PLAIN = "n_step=1 use_priority=false clip_epsilon=0 init_log_alpha=0 reward_scaling=false"
OURS = {
    "highest": ("highest", "off"),
    "medium": ("medium", "off"),
    "highest, compiled": ("highest", "on"),
    "medium, compiled": ("medium", "on"),
}
"""Side → precision of its products, and ``compile``."""

SB3 = {"target": "sb3:updates"}
PEERS: Mapping[str, Mapping[str, Any]] = {
    "Stable-Baselines3": {**SB3, "library": "stable_baselines3", "a_call": 1},
    "sbx": {**SB3, "library": "sbx", "a_call": 1},
    "sbx, 64 a call": {**SB3, "library": "sbx", "a_call": 64},
    "Tianshou": {"target": "tianshou:updates"},
}


@smoke(rounds=1, updates=2, filled=300, ours=["highest", "medium"])
def engines(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 5,
    updates: int = 320,
    filled: int = 20_000,
    ours: list[str] = list(OURS),
) -> Iterator[Mapping[str, Any]]:
    """Time of sampling and of an update; all take turns, each in a process of its own."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        size = {"updates": updates, "filled": filled, "seed": number}
        for side in ours:
            precision, compile_ = OURS[side]
            said = bench.ours("engines:times", precision=precision, compile_=compile_, **size)
            found.setdefault(side, []).append(said["ms"])
        for side, how in PEERS.items():
            answer = bench.theirs(**{**how, **size, "sizes": [OBS, ACTION, UNITS, BATCH]})
            if answer:
                found.setdefault(side, []).append(answer["ms"])
        for precision in dict.fromkeys(OURS[side][0] for side in ours):
            said = bench.ours("engines:products", precision=precision, updates=updates)
            found.setdefault(f"products alone, {precision}", []).append(said["ms"])
        print({side: round(values[-1], 2) for side, values in found.items()}, flush=True)
        yield {"milliseconds": found}


def times(precision: str, compile_: str, updates: int, filled: int, seed: int) -> Answer:
    """Milliseconds of sampling and an update, behind some that are not counted."""
    stay_on_one_core()
    set_up_process(1)
    torch.set_float32_matmul_precision(precision)
    spec = make_spec(OBS, action=ACTION)
    keys = [
        f"sac_config.{key}"
        for key in (
            *PLAIN.split(),
            "use_normalization=false",
            f"compile={compile_}",
            f"matmul_precision={precision}",
        )
    ]
    agent = make_agent(spec, "Pendulum-v1", None, [*keys, f"replay_config.capacity={filled}"], seed)
    length = min(1000, filled - 1)
    fill(agent.replay, make_segment(spec, np.random.default_rng(seed), length), filled)

    def update() -> None:
        batch = agent.replay.sample()
        assert batch is not None
        agent.learner.update(batch)

    return {"ms": _milliseconds(update, updates)}


def products(precision: str, updates: int) -> Answer:
    """Milliseconds of an update's matrix products in their shapes, each into memory that is there."""
    stay_on_one_core()
    set_up_process(1)
    torch.set_float32_matmul_precision(precision)
    critic, policy = (OBS + ACTION, UNITS, UNITS, 1), (OBS, UNITS, UNITS, 2 * ACTION)
    shapes = []
    for widths, forward, inputs, weights in ((critic, 6, 4, 2), (policy, 2, 1, 1)):
        for layer, (before, after) in enumerate(pairwise(widths)):
            # Critics: targets, learned, climbed. Only the last need the gradient of their inputs.
            backward = inputs if layer else (2 if widths is critic else 0)
            shapes += forward * [(BATCH, before, after)]
            shapes += backward * [(BATCH, after, before)] + weights * [(after, BATCH, before)]
    factors = [(torch.randn(n, k), torch.randn(k, m), torch.empty(n, m)) for n, k, m in shapes]

    def update() -> None:
        for x, y, out in factors:
            torch.mm(x, y, out=out)

    return {"ms": _milliseconds(update, updates)}


def _milliseconds(act: Any, times_: int) -> float:
    for _ in range(max(2, times_ // 10)):
        act()
    begin = time.perf_counter()
    for _ in range(times_):
        act()
    return (time.perf_counter() - begin) / times_ * 1e3
