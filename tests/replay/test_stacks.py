"""Stacks of frames: one frame is stored, the whole stack comes back. The property is in test_windows.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithm.core.data import Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.storage import Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from tests.lib.oracles_replay import STACKED, make_segment

FRAMES = AgentSpec(ObsSpec(("obs",), ((3, 2, 2),), ("uint8",), stacks=(3,)), ActionSpec((), 1))


def segment(start: int, numbers: list[int]) -> Segment:
    """Frames filled with these numbers as they come in; 99 stands for frames before them."""
    made = make_segment(FRAMES, stream=0, episode=0, start=start, length=len(numbers) - 1)
    padded = [99, 99, *numbers]
    stacks = np.array([padded[i : i + 3] for i in range(len(numbers))], np.uint8)
    return replace(made, obs={"obs": np.broadcast_to(stacks[:, :, None, None], (len(numbers), 3, 2, 2))})


@pytest.mark.parametrize(
    ("capacity", "segments", "anchor", "expected"),
    [
        (20, [(0, [1, 2, 3, 4, 5])], 0, [[0, 0, 0], [1, 1, 1], [1, 1, 2], [1, 2, 3]]),  # repeated at first
        (20, [(0, [1, 2, 3, 4, 5])], 2, [[1, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]),
        (20, [(0, [1, 2, 3, 4, 5])], 3, [[1, 2, 3], [2, 3, 4], [3, 4, 5], [0, 0, 0]]),  # a missing token
        # rows 2 … 6 are alive: the oldest frame that lives stands for those before
        (5, [(0, [1, 2, 3, 4]), (3, [4, 5, 6, 7])], 3, [[3, 3, 3], [3, 3, 4], [3, 4, 5], [4, 5, 6]]),
        (
            20,
            [(40, [7, 8, 9, 10])],
            1,
            [[7, 7, 7], [7, 7, 8], [7, 8, 9], [8, 9, 10]],
        ),  # without its beginning
    ],
)
def test_what_comes_back_by_hand(capacity, segments, anchor, expected):
    """The number of every frame of every token."""
    storage = Storage(FRAMES, capacity)
    writer = Writer(storage)
    for start, numbers in segments:
        writer.add(segment(start, numbers))
    reader = WindowReader(storage, burn_in=1, learn=1, n_step=2)
    stacks = reader.read(np.array([anchor]), np.ones(1, np.float32)).obs["obs"]
    assert (stacks == stacks[..., :1, :1]).all() and stacks[0, ..., 0, 0].tolist() == expected


def test_each_frame_is_held_once():
    """In the storage the newest one alone; in a batch without padding 2 + 3 frames a window, not 3·3."""
    assert {name: x.shape[1] for name, x in Storage(STACKED, 10).arrays.items() if "obs" in name} == {
        "obs_uint8x3": 4 + 1,
        "obs_uint8": 1,
        "obs_float32x2": 2,
        "obs_uint8x5": 2,
        "obs_float32": 4,
    }
    storage = Storage(FRAMES, 20)
    Writer(storage).add(segment(0, list(range(1, 12))))
    reader = WindowReader(storage, burn_in=0, learn=1, n_step=2)
    stacks = reader.read(np.array([2, 3]), np.ones(2, np.float32)).obs["obs"]
    assert stacks.shape == (2, 3, 3, 2, 2) and stacks.untyped_storage().nbytes() == 2 * 5 * 4
