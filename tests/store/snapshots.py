"""Small checkpoints, and replays that grow step by step."""

import shutil
from pathlib import Path

import numpy as np
import torch

from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import PrioritizedSampler, Sampler
from algorithm.store.checkpoints.checkpoint import Snapshot, save_checkpoint
from tests.lib.buffers import result
from tests.lib.oracles_replay import VECTOR, make_segment


def content(value: float = 1.0) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors of a checkpoint by file."""
    return {
        "model": {"w": torch.full((2, 3), value), "n": torch.tensor(7)},
        "optim": {"m": torch.zeros(0)},
    }


def save(root: Path, step: int, value: float = 1.0, replay: ReplayBuffer | None = None) -> Path:
    """Write a checkpoint into ``root/checkpoints``, its replay into ``root/replay``; returns its folder."""
    replays = {} if replay is None else {"": replay}
    snapshot = Snapshot(step=step, tensors=content(value), state={"updates": step}, replays=replays)
    return save_checkpoint(root / "checkpoints", root / "replay", snapshot).path


def make_replay(sampler: Sampler | None = None, *, capacity: int = 40, **kwargs: int) -> ReplayBuffer:
    """An empty one of two streams' data, with carries."""
    sizes = {"batch_size": 4, "n_step": 2, **kwargs}
    return ReplayBuffer(
        VECTOR, capacity=capacity, carry_shape=(2,), sampler=sampler or PrioritizedSampler(), **sizes
    )


def grow(replay: ReplayBuffer, steps: int, *, streams: int = 2, episode: int = 7) -> None:
    """As many steps of each stream, in episodes of so many steps, and a batch drawn and handed back."""
    for _ in range(steps):
        at = {stream: step for stream, _, step in replay.state().meta["streams"]}
        for stream in range(streams):
            step = at.get(stream, 0)
            last = step == episode - 1
            segment = make_segment(
                VECTOR,
                stream=stream,
                episode=0,  # as the head of the stream has it
                start=step,
                length=1,
                terminated=last,
                carry_shape=(2,),
            )
            replay.add(segment)
    if (batch := replay.sample()) is not None:
        replay.feedback(result(batch.ids, np.linspace(0.0, 1.0, len(batch.ids))))


def files_of(root: Path) -> dict[str, bytes]:
    """Everything below ``root`` by name."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def restore(base: Path, root: Path) -> None:
    """Make ``root`` what ``base`` is."""
    shutil.rmtree(root)
    shutil.copytree(base, root)


def never(text: str) -> None:
    """A warning that must not come."""
    raise AssertionError(f"unexpected warning: {text}")
