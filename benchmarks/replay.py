"""How fast and how large is the prioritised replay?

    python benchmarks/replay.py [--runs N] [--json FILE]

One thread. Every figure is the median over many calls on a full ring, so that rows come from memory and not
from a cache. The memory is set against the formula of Stable-Baselines3's ReplayBuffer: observation, next
observation, action, reward, done and time-out, each float32 here. Stacks of four frames are measured twice:
stored as their newest frame, as the replay does, and stored whole.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from harness import RESULTS, warn_if_busy, write_result

from algorithm.data import Array, Segment, UpdateResult
from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer, Sampler, UniformSampler
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

EPISODE = 1000
SIZES = ((3, 1), (8, 2), (17, 6), (26, 6), (111, 8), (376, 17))
STACK = (4, 84, 84)
FRAME_ROWS, FRAME_BATCH = 30_000, 64


def make_spec(obs: int, action: int) -> AgentSpec:
    """A vector observation and a continuous action."""
    return AgentSpec(ObsSpec(("obs",), ((obs,),), ("float32",)), ActionSpec((), action))


def make_frames_spec(stored: int) -> AgentSpec:
    """Four frames as in Atari and six actions; ``stored`` 4: a stack, 1: one image that is stored whole."""
    return AgentSpec(ObsSpec(("obs",), (STACK,), ("uint8",), stacks=(stored,)), ActionSpec((6,)))


def make_segment(
    spec: AgentSpec, rng: np.random.Generator, start: int, length: int, *, last: bool
) -> Segment:
    """Random transitions of one stream."""
    action, z, logp = spec.action.random(rng, spec.action.all_allowed(length))
    truncated = np.zeros(length, np.bool_)
    truncated[-1] = last
    if spec.obs.dtypes == ("uint8",):
        frames = rng.integers(256, size=(length + 4, *STACK[1:]), dtype=np.uint8)
        obs: Array = np.stack([frames[i : i + 4] for i in range(length + 1)])
    else:
        obs = rng.normal(size=(length + 1, spec.obs.flat_size)).astype(np.float32)
    return Segment(
        stream=0,
        start_step=start,
        obs={"obs": obs},
        action_mask=spec.action.all_allowed(length + 1),
        carry=np.zeros((length + 1, 0), np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=rng.normal(size=length).astype(np.float32),
        terminated=np.zeros(length, np.bool_),
        truncated=truncated,
    )


def median_us(call: Callable[[], object], repeats: int) -> float:
    """Median microseconds of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def measure(sampler: Sampler, capacity: int, batch_size: int, repeats: int) -> dict[str, float]:
    """Microseconds of each operation on a full ring, observation 17 and action 6."""
    spec, rng = make_spec(17, 6), np.random.default_rng(0)
    buffer = ReplayBuffer(spec, capacity=capacity, batch_size=batch_size, sampler=sampler, seed=0)
    episode = make_segment(spec, rng, 0, EPISODE, last=True)
    while len(buffer) < capacity:
        buffer.add(episode)
    td = torch.from_numpy(rng.random(batch_size).astype(np.float32))
    singles = [make_segment(spec, rng, i, 1, last=i == EPISODE - 1) for i in range(EPISODE)]
    step = 0

    def sample() -> torch.Tensor:
        batch = buffer.sample()
        assert batch is not None
        return batch.ids

    def feedback(ids: torch.Tensor) -> None:
        buffer.feedback(UpdateResult(priority=td, ids=ids, anchor=torch.zeros(len(ids), dtype=torch.int64)))

    def add() -> None:
        nonlocal step
        buffer.add(singles[step % EPISODE])
        step += 1

    for _ in range(capacity // batch_size // 2):  # priorities as mixed as in training
        feedback(sample())
    handed_out = sample()
    return {
        "sample + gather": median_us(sample, repeats),
        "feedback": median_us(lambda: feedback(handed_out), repeats),
        "sample + gather + feedback": median_us(lambda: feedback(sample()), repeats),
        "add, one transition": median_us(add, repeats),
    }


def memory(capacity: int) -> list[dict[str, float]]:
    """Bytes per row for a few sizes; nothing is written, so nothing is really allocated."""
    rows: list[dict[str, float]] = []
    for obs, action in SIZES:
        spec = make_spec(obs, action)
        own, with_tree = (
            ReplayBuffer(spec, capacity=capacity, batch_size=1, sampler=sampler).bytes_per_row
            for sampler in (UniformSampler(), PrioritizedSampler())
        )
        peer = 4 * (2 * obs + action + 3)
        rows.append({"obs": obs, "action": action, "rows": own, "with tree": with_tree, "SB3": peer})
    return rows


def measure_frames(stored: int, repeats: int) -> dict[str, float]:
    """Microseconds and bytes of a replay of images, uniform, full, in episodes of 250 steps."""
    spec, rng = make_frames_spec(stored), np.random.default_rng(0)
    sampler = UniformSampler()
    buffer = ReplayBuffer(spec, capacity=FRAME_ROWS, batch_size=FRAME_BATCH, sampler=sampler, seed=0)
    episode = make_segment(spec, rng, 0, 250, last=True)
    while len(buffer) < FRAME_ROWS:
        buffer.add(episode)
    singles = iter([make_segment(spec, rng, i, 1, last=False) for i in range(repeats)])

    def sample(convert: bool) -> None:
        batch = buffer.sample()
        assert batch is not None
        if convert:
            batch.obs["obs"].to(torch.float32)

    return {
        "sample + gather": median_us(lambda: sample(False), repeats),
        "the same, as float32": median_us(lambda: sample(True), repeats),
        "add, one transition": median_us(lambda: buffer.add(next(singles)), repeats),
        "bytes per row": buffer.bytes_per_row,
    }


def print_times(figures: dict[str, dict[str, float]]) -> None:
    """A line per operation."""
    print(f"{'median µs per call':28}" + "".join(f"{kind:>12}" for kind in figures))
    for operation in figures["prioritised"]:
        print(f"{operation:28}" + "".join(f"{times[operation]:12.1f}" for times in figures.values()))


def print_memory(sizes: list[dict[str, float]]) -> None:
    """A line per size of observation and action."""
    print("\nbytes per row (an episode of L transitions takes L + 1 rows)")
    print(f"{'obs':>6}{'action':>8}{'SB3':>8}{'ours':>8}{'ratio':>8}{'+ tree':>9}{'ratio':>8}")
    for row in sizes:
        print(
            f"{row['obs']:6.0f}{row['action']:8.0f}{row['SB3']:8.0f}{row['rows']:8.0f}"
            f"{row['rows'] / row['SB3']:8.2f}{row['with tree']:9.1f}{row['with tree'] / row['SB3']:8.2f}"
        )


def print_frames(figures: dict[str, dict[str, float]]) -> None:
    """A line per operation."""
    print(f"\n{FRAME_ROWS} rows of {'×'.join(map(str, STACK))} uint8, batch {FRAME_BATCH}")
    print(f"{'median µs per call':28}" + "".join(f"{kind:>14}" for kind in figures))
    for operation in figures["whole stack"]:
        print(f"{operation:28}" + "".join(f"{times[operation]:14.1f}" for times in figures.values()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "replay.json")
    parser.add_argument("--runs", type=int, default=4, help="measurements of everything (default 4)")
    parser.add_argument("--capacity", type=int, default=2**19)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warn_if_busy()
    runs = []
    for _ in range(options.runs):
        samplers: dict[str, Sampler] = {"prioritised": PrioritizedSampler(), "uniform": UniformSampler()}
        runs.append(
            {
                name: measure(sampler, options.capacity, options.batch_size, options.repeats)
                for name, sampler in samplers.items()
            }
        )
        print_times(runs[-1])
    frames = {"newest frame": measure_frames(4, 300), "whole stack": measure_frames(1, 300)}
    print_frames(frames)
    sizes = memory(options.capacity)
    print_memory(sizes)
    setting = {name: getattr(options, name) for name in ("capacity", "batch_size", "repeats")}
    write_result(options.json, {"setting": setting, "microseconds": runs, "frames": frames, "bytes": sizes})


if __name__ == "__main__":
    main()
