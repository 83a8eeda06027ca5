"""Worker: fills a replay, saves it twice, and loads it in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from replay import make_segment, make_spec

from algorithm.data import Segment
from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer
from algorithm.run.checkpoints.checkpoint import Snapshot, load_replay
from algorithm.run.checkpoints.keeper import Keeper, find_checkpoint

EPISODE = 200
PARAMETERS = {"model": 340_000, "optim": 400_000}  # float32, about those of the default networks on Pendulum
SPEC = make_spec(3, 1)


def make_replay(transitions: int, carry: int) -> ReplayBuffer:
    """Empty, with room for what will be added and little more."""
    return ReplayBuffer(
        SPEC,
        capacity=transitions + transitions // 100 + 2000,
        batch_size=256,
        carry_shape=(carry,),
        sampler=PrioritizedSampler(),
    )


def episode(rng: np.random.Generator, carry: int, start: int, length: int) -> Segment:
    """Random steps of one stream that end an episode or do not."""
    last = start + length == EPISODE
    return replace(
        make_segment(SPEC, rng, start, length, last=last),
        carry=rng.random((length + 1, carry), np.float32),
        priority=rng.random(length, np.float32),
    )


def memory_mb(name: str) -> float:
    """A line of /proc/self/status in megabytes: VmRSS now, VmHWM at most since ``peak_of`` began."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024 / 1e6


def measured(act: Callable[[], Any]) -> dict[str, Any]:
    """Seconds that ``act`` took, and the peak of memory above what it began with."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begin = memory_mb("VmRSS"), time.perf_counter()
    result = act()
    seconds = time.perf_counter() - begin
    return {"result": result, "seconds": seconds, "peak_mb": memory_mb("VmHWM") - before}


def run(transitions: int, carry: int, further: int, folder: Path) -> dict[str, Any]:
    """Fill, save, go on, save, load."""
    rng = np.random.default_rng(0)
    replay = make_replay(transitions, carry)
    while replay.num_transitions < transitions:
        replay.add(episode(rng, carry, 0, EPISODE))
    keeper = Keeper(folder / "checkpoints", folder / "replay", keep=3, best=True, warn=print)
    tensors = {name: {"all": torch.rand(n)} for name, n in PARAMETERS.items()}
    answer: dict[str, Any] = {"seconds": {}, "bytes": {}, "peak_mb": {}}

    def save(step: int) -> int:
        return keeper.save(Snapshot(step=step, tensors=tensors, state={}, replays={"": replay})).bytes_written

    for name, step in (("first", transitions), ("next", transitions + further)):
        found = measured(lambda step=step: save(step))
        answer["bytes"][name] = found["result"]
        for what in ("seconds", "peak_mb"):
            answer[what][name] = found[what]
        if name == "first":
            for t in range(further):
                replay.add(episode(rng, carry, t % EPISODE, 1))
    for what, value in in_a_process(load, transitions, carry, folder).items():
        answer[what]["load"] = value
    used = replay.nbytes * len(replay) / replay.capacity
    return {**answer, "replay_mb": used / 1e6}


def in_a_process(act: Callable[..., Any], *arguments: object) -> Any:
    """What ``act`` returns in a process that has not allocated anything before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(act, arguments)


def load(transitions: int, carry: int, folder: Path) -> dict[str, float]:
    """Verify the newest checkpoint and go on from it, as resuming does."""
    torch.set_num_threads(1)
    replay = make_replay(transitions, carry)

    def resume() -> None:
        path = find_checkpoint(folder / "checkpoints", warn=print, replays=folder / "replay")
        assert load_replay(path, folder / "replay", "", replay)

    found = measured(resume)
    found["peak_mb"] -= replay.nbytes * len(replay) / replay.capacity / 1e6
    return {what: found[what] for what in ("seconds", "peak_mb")}


def main() -> None:
    """Answer with one line of JSON."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transitions", type=int, required=True)
    parser.add_argument("--carry", type=int, required=True)
    parser.add_argument("--further", type=int, required=True)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(json.dumps(run(options.transitions, options.carry, options.further, Path(folder))))


if __name__ == "__main__":
    main()
