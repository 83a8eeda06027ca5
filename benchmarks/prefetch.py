"""Batches drawn ahead of a learner's updates by threads, beside batches drawn on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer
from algorithm.sac.agent import SacAgent
from benchmarks.harness import HERE, Bench, smoke
from benchmarks.inside import fill, make_agent, make_replay
from benchmarks.samples import make_segment, make_spec
from benchmarks.worker import Answer
from ds.prefetch import PrefetchedReplay

AHEAD, EPISODE = 5, 1000
CASES: dict[str, tuple[str, list[str]]] = {
    "vectors": ("default", ["sac_config.batch_size=256"]),
    "images": ("default", ["replay_config.capacity=5100"]),
    "windows": ("gru", []),
}
"""Name → section of ``memory/config.yaml`` and what is changed there."""


@smoke(rounds=1, seconds=0.01, cases=["vectors", "windows"], prefetchers=[0, 1])
def prefetch(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 5,
    seconds: float = 5.0,
    cases: list[str] = list(CASES),
    prefetchers: list[int] = [0, 1, 5],
) -> Iterator[Mapping[str, Any]]:
    """Updates per second with batches drawn ahead by threads; ``prefetchers`` begins with 0, none."""
    answers: dict[str, dict[int, list[Answer]]] = {case: {n: [] for n in prefetchers} for case in cases}
    for seed in range(rounds):  # the numbers of threads take turns
        for case, numbers in answers.items():
            for number, found in numbers.items():
                arguments = {"case": case, "threads": number, "seed": seed, "seconds": seconds}
                found.append(bench.ours("prefetch:learner", **arguments))
                print(f"{case:8} {number} threads {speed(found[-1]):8.1f} updates/s", flush=True)
    yield {"cases": {case: summarise(numbers) for case, numbers in answers.items()}}


def summarise(numbers: Mapping[int, Sequence[Answer]]) -> list[dict[str, Any]]:
    """For each number of threads the medians over the rounds, and how it does beside none in each round."""
    rows = []
    for number, answers in numbers.items():
        ratios = [speed(one) / speed(none) for one, none in zip(answers, numbers[0], strict=True)]
        medians = {"updates_per_second": median(map(speed, answers)), "ratio": median(ratios)}
        for name in ("sample", "cpu"):
            medians[f"{name}_ms"] = median(1000 * one[f"{name}_seconds"] / one["updates"] for one in answers)
        rows.append({"prefetchers": number, **medians, "ratios": ratios, "answers": list(answers)})
    return rows


def speed(answer: Answer) -> float:
    """Updates per second of wall time."""
    return float(answer["updates"] / answer["seconds"])


def build(case: str, seed: int, threads: int) -> tuple[SacAgent, ReplayBuffer]:
    """An agent of which the learner is used, and a full replay beside it. threads: 0 draws when asked."""
    section, changes = CASES[case]
    spec = make_spec(64, 64, 3, action=1) if case == "images" else make_spec(3, action=1)
    agent = make_agent(spec, str(HERE / "memory"), section, changes, seed)
    sac, carry = agent.config.sac_config, agent.policy.stored_carry_shape
    size: dict[str, Any] = {"capacity": agent.config.replay_config.capacity, "batch_size": sac.batch_size}
    size |= {"burn_in": sac.burn_in_step, "learn": sac.learn_step, "n_step": sac.n_step, "carry_shape": carry}
    if threads:
        ahead: dict[str, Any] = {"threads": threads, "ahead": AHEAD, "seed": 0}
        made: ReplayBuffer = PrefetchedReplay(spec, sampler=PrioritizedSampler(), **ahead, **size)
    else:
        made = make_replay(spec, **size)
    fill(made, make_segment(spec, np.random.default_rng(seed), EPISODE, carry=carry), made.capacity)
    return agent, made


def learner(case: str, threads: int, *, seed: int, seconds: float) -> dict[str, Any]:
    """Make updates for ``seconds``, after a fifth of them that does not count, with a transition before each.

    cpu_seconds: of the process, all threads together · sample_seconds: that it spent on getting batches
    """
    torch.set_num_threads(1)
    agent, made = build(case, seed, threads)
    rng, carry, waited = np.random.default_rng(seed + 1000), agent.policy.stored_carry_shape, 0.0
    ends = [t == EPISODE - 1 for t in range(EPISODE)]
    singles = cycle(
        [make_segment(agent.spec, rng, 1, start=t, last=x, carry=carry) for t, x in enumerate(ends)]
    )

    def update() -> None:
        nonlocal waited
        made.add(next(singles))
        begin = perf_counter()
        batch = made.sample()
        waited += perf_counter() - begin
        assert batch is not None, "the replay is full"
        result = agent.sac.update(batch)
        made.feedback(result)
        if result.carry is not None:
            made.refresh_carry(result)

    run_for(update, seconds / 5)
    waited, begin = 0.0, process_time()
    updates, taken = run_for(update, seconds)
    used = process_time() - begin
    if isinstance(made, PrefetchedReplay):
        made.stop()
    return {"updates": updates, "seconds": taken, "cpu_seconds": used, "sample_seconds": waited}


def run_for(act: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call ``act`` until so many seconds are over; (calls, seconds taken)."""
    count, begin = 0, perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        act()
        count += 1
    return count, elapsed
