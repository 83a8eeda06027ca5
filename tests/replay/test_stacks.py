"""Stacks of frames: one frame is stored, the whole stack comes back. The property is in test_windows.py."""

import numpy as np

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.storage import Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from tests.lib.oracles_replay import STACKED, make_segment

FRAMES = AgentSpec(ObsSpec(("obs",), ((3, 2, 2),), ("uint8",), stacks=(3,)), ActionSpec((), 1))


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
    Writer(storage).add_steps(make_segment(FRAMES, stream=0, episode=0, start=0, length=10).steps())
    reader = WindowReader(storage, burn_in=0, learn=1, n_step=2)
    stacks = reader.read(np.array([2, 3]), np.ones(2, np.float32)).obs["obs"]
    assert stacks.shape == (2, 3, 3, 2, 2) and stacks.untyped_storage().nbytes() == 2 * 5 * 4
