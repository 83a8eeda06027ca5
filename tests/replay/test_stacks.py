"""Stacks of frames: one frame is stored, the whole stack comes back. The property is in test_windows.py."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from algorithm.core.data import Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.replay.storage import Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from tests.oracles_replay import STACKED, make_segment

FRAMES = AgentSpec(ObsSpec(("obs",), ((3, 2, 2),), ("uint8",), stacks=(3,)), ActionSpec((), 1))


def segment(stream: int, start: int, numbers: list[int], **ends: bool) -> Segment:
    """Frames filled with these numbers as they come in; 99 stands for frames before them."""
    made = make_segment(FRAMES, stream=stream, episode=0, start=start, length=len(numbers) - 1, **ends)
    padded = [99, 99, *numbers]
    stacks = np.array([padded[i : i + 3] for i in range(len(numbers))], np.uint8)
    obs = np.broadcast_to(stacks[:, :, None, None], (len(numbers), 3, 2, 2))
    return Segment(**{**vars(made), "obs": {"obs": obs}})


def read(storage: Storage, anchors: list[int], **sizes: int) -> list:
    """The number of every frame of every token, [B, W+1, S]."""
    reader = WindowReader(storage, **{"burn_in": 0, "learn": 1, "n_step": 1, **sizes})
    stacks = reader.read(np.array(anchors), np.ones(len(anchors), np.float32)).obs["obs"]
    assert stacks.dtype == torch.uint8 and stacks.shape[2:] == (3, 2, 2)
    assert (stacks == stacks[..., :1, :1]).all()
    return stacks[..., 0, 0].tolist()


def test_the_first_frame_of_an_episode_is_repeated():
    storage = Storage(FRAMES, 20)
    Writer(storage).add(segment(0, 0, [1, 2, 3, 4, 5], terminated=True))
    assert read(storage, [0, 1, 2, 3]) == [
        [[1, 1, 1], [1, 1, 2]],
        [[1, 1, 2], [1, 2, 3]],
        [[1, 2, 3], [2, 3, 4]],
        [[2, 3, 4], [3, 4, 5]],
    ]


def test_a_missing_token_is_all_zero_and_its_neighbours_are_not():
    storage = Storage(FRAMES, 20)
    Writer(storage).add(segment(0, 0, [1, 2, 3], terminated=True))
    none = [0, 0, 0]
    assert read(storage, [0, 1], burn_in=2, n_step=2) == [
        [none, none, [1, 1, 1], [1, 1, 2], [1, 2, 3]],
        [none, [1, 1, 1], [1, 1, 2], [1, 2, 3], none],
    ]


def test_frames_come_from_the_same_stream_and_episode():
    storage = Storage(FRAMES, 20)
    writer = Writer(storage)
    for start, (a, b) in enumerate(zip([1, 2, 3], [11, 12, 13], strict=True)):
        last = start == 2
        writer.add(segment(0, start, [a, a + 1], terminated=last))
        writer.add(segment(1, start, [b, b + 1]))
    writer.add(segment(0, 0, [50, 51]))
    ids = [int(storage.next_id) - 2]
    assert read(storage, ids) == [[[50, 50, 50], [50, 50, 51]]]
    transitions = np.flatnonzero(storage.is_transition(np.arange(len(storage)))).tolist()
    windows = [w[1] for w in read(storage, transitions)]
    assert sorted(windows) == [
        [1, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [11, 11, 12],
        [11, 12, 13],
        [12, 13, 14],
        [50, 50, 51],
    ]


def test_the_oldest_frame_that_lives_stands_for_those_overwritten():
    storage = Storage(FRAMES, 5)
    writer = Writer(storage)
    writer.add(segment(0, 0, [1, 2, 3, 4]))
    writer.add(segment(0, 3, [4, 5, 6, 7]))  # rows 2 … 6 are alive: frames 3 … 7
    assert read(storage, [2, 3, 4]) == [
        [[3, 3, 3], [3, 3, 4]],
        [[3, 3, 4], [3, 4, 5]],
        [[3, 4, 5], [4, 5, 6]],
    ]


def test_a_chain_without_its_beginning_repeats_the_first_frame_it_has():
    storage = Storage(FRAMES, 20)
    Writer(storage).add(segment(0, 40, [7, 8, 9, 10]))  # its true stack was 99 99 7
    assert read(storage, [0, 1, 2]) == [
        [[7, 7, 7], [7, 7, 8]],
        [[7, 7, 8], [7, 8, 9]],
        [[7, 8, 9], [8, 9, 10]],
    ]


def test_only_the_newest_frame_is_stored():
    storage = Storage(STACKED, 10)
    widths = {name: array.shape[1] for name, array in storage.arrays.items() if name.startswith("obs_")}
    assert widths == {"obs_uint8x3": 4 + 1, "obs_uint8": 1, "obs_float32x2": 2, "obs_uint8x5": 2}


def test_a_batch_without_padding_holds_each_frame_once():
    storage = Storage(FRAMES, 20)
    Writer(storage).add(segment(0, 0, list(range(1, 12))))
    reader = WindowReader(storage, burn_in=0, learn=1, n_step=2)
    stacks = reader.read(np.array([2, 3]), np.ones(2, np.float32)).obs["obs"]
    assert stacks.shape == (2, 3, 3, 2, 2)
    assert stacks.untyped_storage().nbytes() == 2 * 5 * 4  # 2 + 3 frames a window, not 3·3


def test_batches_share_no_memory_with_the_storage():
    storage = Storage(STACKED, 20)
    Writer(storage).add(make_segment(STACKED, stream=0, episode=0, start=0, length=8, carry_shape=(0,)))
    for n_step in (1, 4):
        reader = WindowReader(storage, burn_in=0, learn=1, n_step=n_step)
        for value in reader.read(np.arange(8), np.ones(8, np.float32)).obs.values():
            assert not any(np.shares_memory(value.numpy(), array) for array in storage.arrays.values())


class Counter(gym.Env):
    """An image that tells episode and step; episodes of 1, 2, 3, … steps."""

    observation_space = gym.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self) -> None:
        self._episode, self._step = 0, 0

    def _frame(self) -> np.ndarray:
        return np.array([[self._episode, self._step], [1, 2]], np.uint8)

    def reset(self, *, seed=None, options=None):
        self._episode, self._step = self._episode + 1, 0
        return self._frame(), {}

    def step(self, action):
        self._step += 1
        return self._frame(), 0.0, self._step == self._episode, False, {}


@pytest.mark.parametrize("sizes", [{}, {"n_step": 3}, {"burn_in": 2, "learn": 2}])
def test_what_comes_back_is_what_gymnasiums_wrapper_handed_out(sizes):
    env = gym.wrappers.FrameStackObservation(Counter(), 3, padding_type="reset")
    buffer = ReplayBuffer(FRAMES, capacity=200, batch_size=32, sampler=UniformSampler(), seed=0, **sizes)
    handed_out: dict[int, np.ndarray] = {}
    for _ in range(10):
        obs, step, done = env.reset()[0], 0, False
        while not done:
            following, _, done, _, _ = env.step(np.zeros(1))
            made = make_segment(FRAMES, stream=0, episode=0, start=step, length=1, terminated=done)
            both = np.stack([obs, following])
            (id_,) = buffer.add(Segment(**{**vars(made), "obs": {"obs": both}})).tolist()
            handed_out[id_], handed_out[buffer.next_id - 1] = obs, following
            obs, step = following, step + 1
    batch = buffer.sample()
    assert batch is not None
    for ids, window in zip(batch.ids.tolist(), batch.obs["obs"].numpy(), strict=True):
        for id_, stack in zip(ids, window, strict=True):
            np.testing.assert_array_equal(stack, handed_out.get(id_, np.zeros((3, 2, 2))))
