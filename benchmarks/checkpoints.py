"""What a checkpoint costs that holds the replay, and what going on from it does.

Three numbers seen and one action, as Pendulum has, in episodes of 200 steps, prioritised.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from algorithm.replay.buffer import ReplayBuffer
from algorithm.store.checkpoints.checkpoint import Snapshot, load_replay
from algorithm.store.checkpoints.manager import CheckpointManager, find_checkpoint
from benchmarks.harness import Bench, smoke
from benchmarks.inside import make_replay
from benchmarks.samples import make_segment, make_spec
from benchmarks.worker import Answer, WorkerError

CARRIES = {"none": 0, "RNN": 64}
"""Memory → numbers of a stored carry."""

EPISODE = 200
PARAMETERS = {"model": 340_000, "optim": 400_000}  # float32, about those of the default networks on Pendulum
SPEC = make_spec(3, action=1)


@smoke(rounds=1, transitions=[1000], further=50)
def checkpoints(
    bench: Bench,
    _: Any,
    *,
    rounds: int = 3,
    transitions: list[int] = [100_000, 1_000_000],
    further: int = 1000,
) -> Iterator[Mapping[str, Any]]:
    """What saving and loading a replay cost; it is written to TMPDIR, which is emptied again."""
    cases = []
    for name, carry in CARRIES.items():
        for number in transitions:
            answers = [_round(bench, number, carry, further) for _ in range(rounds)]
            cases.append({"memory": name, "transitions": number, **summarise(answers), "answers": answers})
            print(f"{name}, {number:,} transitions: {cases[-1]['seconds']} s", flush=True)
    yield {"cases": cases}


def _round(bench: Bench, transitions: int, carry: int, further: int) -> Answer:
    """Save and load, each in a process that has not allocated anything before."""
    with tempfile.TemporaryDirectory() as made:
        what = {"transitions": transitions, "carry": carry, "folder": made}
        saved = bench.ours("checkpoints:save", further=further, **what)
        for name, value in bench.ours("checkpoints:load", **what)["load"].items():
            saved[name]["load"] = value
    return saved


def summarise(answers: list[Answer]) -> dict[str, Any]:
    """Median seconds of each operation and peak of memory; bytes, which must be the same in all rounds.

    Raises WorkerError if they are not.
    """
    first = answers[0]
    if any(answer["bytes"] != first["bytes"] for answer in answers):
        raise WorkerError(f"the rounds have written different amounts: {[a['bytes'] for a in answers]}")
    medians = {
        what: {name: median(answer[what][name] for answer in answers) for name in first[what]}
        for what in ("seconds", "peak_mb")
    }
    return {"replay_mb": first["replay_mb"], "bytes": first["bytes"], **medians}


def _empty(transitions: int, carry: int) -> ReplayBuffer:
    """With room for what will be added and little more."""
    return make_replay(SPEC, capacity=transitions + transitions // 100 + 2000, carry_shape=(carry,))


def save(transitions: int, carry: int, further: int, folder: str) -> Answer:
    """Fill, save, go on, save."""
    rng, replay = np.random.default_rng(0), _empty(transitions, carry)

    def add(length: int, start: int = 0) -> None:
        last = start + length == EPISODE
        replay.add(make_segment(SPEC, rng, length, start=start, last=last, carry=(carry,)))

    while replay.num_transitions < transitions:
        add(EPISODE)
    root, replays = Path(folder, "checkpoints"), Path(folder, "replay")
    manager = CheckpointManager(root, replays, keep=3, best=True, warn=print)
    tensors = {name: {"all": torch.rand(n)} for name, n in PARAMETERS.items()}
    answer: dict[str, Any] = {"seconds": {}, "bytes": {}, "peak_mb": {}}
    for name, step in (("first", transitions), ("next", transitions + further)):
        snapshot = Snapshot(step=step, tensors=tensors, state={}, replays={"": replay})
        saved, took = _measured(manager.save, snapshot)
        answer["bytes"][name] = saved.bytes_written
        for what, value in took.items():
            answer[what][name] = value
        for t in range(further if name == "first" else 0):
            add(1, t % EPISODE)
    return {**answer, "replay_mb": replay.nbytes * len(replay) / replay.capacity / 1e6}


def load(transitions: int, carry: int, folder: str) -> Answer:
    """Verify the newest checkpoint and go on from it, as resuming does."""
    root, replays, replay = Path(folder, "checkpoints"), Path(folder, "replay"), _empty(transitions, carry)
    found, took = _measured(lambda: load_replay(find_checkpoint(root, warn=print).path, replays, "", replay))
    assert found
    took["peak_mb"] -= replay.nbytes * len(replay) / replay.capacity / 1e6
    return {"load": took}


def _measured(act: Callable[..., Any], *args: object) -> tuple[Any, dict[str, float]]:
    """What ``act`` gives; the seconds it took, and the peak of memory above what it began with."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begin = _memory_mb("VmRSS"), time.perf_counter()
    given = act(*args)
    seconds = time.perf_counter() - begin
    return given, {"seconds": seconds, "peak_mb": _memory_mb("VmHWM") - before}


def _memory_mb(name: str) -> float:
    """A line of /proc/self/status: VmRSS now, VmHWM at most since the peak began anew."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024 / 1e6
