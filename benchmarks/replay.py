"""How fast and how large the replay is, on a full ring: rows come from memory and not from a cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch

from algorithm.core.data import UpdateResult
from benchmarks.harness import Bench, smoke
from benchmarks.inside import SAMPLERS, fill, make_replay
from benchmarks.samples import make_segment, make_spec

EPISODE = 1000


@smoke(runs=1, capacity=2**11, repeats=2)
def replay(
    bench: Bench, _: Any, *, runs: int = 4, capacity: int = 2**19, repeats: int = 2000
) -> Iterator[Mapping[str, Any]]:
    """Time of the replay's operations, and the bytes of a row."""
    microseconds = []
    for _ in range(runs):
        found = {
            kind: bench.ours("replay:times", kind=kind, capacity=capacity, repeats=repeats)
            for kind in SAMPLERS
        }
        microseconds.append(found)
        print(f"µs a call: {found}", flush=True)
    yield {"microseconds": microseconds}


def times(kind: str, capacity: int, repeats: int, batch_size: int = 256) -> dict[str, float]:
    """Microseconds of each operation and bytes of a row, observation 17 and action 6."""
    torch.set_num_threads(1)
    spec, rng = make_spec(17, action=6), np.random.default_rng(0)
    buffer = make_replay(spec, capacity=capacity, batch_size=batch_size, kind=kind)
    fill(buffer, make_segment(spec, rng, EPISODE), capacity + EPISODE)
    priority = torch.from_numpy(rng.random(batch_size).astype(np.float32))
    first = torch.zeros(batch_size, dtype=torch.int64)
    singles = [make_segment(spec, rng, 1, start=i, last=i == EPISODE - 1) for i in range(EPISODE)]
    added = iter(singles * (repeats // EPISODE + 1))

    def sample() -> torch.Tensor:
        batch = buffer.sample()
        assert batch is not None
        return batch.ids

    def feedback(ids: torch.Tensor) -> None:
        buffer.feedback(UpdateResult(priority=priority, ids=ids, anchor=first))

    for _ in range(capacity // batch_size // 2):  # priorities as mixed as in training
        feedback(sample())
    handed_out = sample()
    return {
        "sample + gather": median_us(sample, repeats),
        "feedback": median_us(lambda: feedback(handed_out), repeats),
        "sample + gather + feedback": median_us(lambda: feedback(sample()), repeats),
        "add, one transition": median_us(lambda: buffer.add(next(added)), repeats),
        "bytes of a row": buffer.nbytes / buffer.capacity,
    }


def median_us(act: Callable[[], object], repeats: int) -> float:
    """Median microseconds of one call."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    return median(taken) * 1e6
