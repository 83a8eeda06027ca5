"""Batches that threads read ahead are those of a plain replay, whole, and end with it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import FifoSampler, PrioritizedSampler, UniformSampler
from ds.prefetch import PrefetchedReplay, prefetched_replay
from tests.lib.buffers import batches_equal, result
from tests.lib.oracles_replay import VECTOR, digest, make_segment, taken

SIZES = {"capacity": 100, "batch_size": 8, "seed": 1}


@pytest.fixture
def make() -> Iterator[Callable[..., PrefetchedReplay]]:
    """Makes replays and ends their threads."""
    with ExitStack() as stack:

        def one(sampler=UniformSampler, *, threads=2, ahead=3, lengths=(40,), **sizes):
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, cancel_futures=True)
            more = {**SIZES, **sizes}
            return fill(
                prefetched_replay(VECTOR, sampler=sampler(), threads=pool, ahead=ahead, **more), *lengths
            )

        yield one


def fill(replay: ReplayBuffer, *lengths: int) -> ReplayBuffer:
    for episode, length in enumerate(lengths):
        replay.add(make_segment(VECTOR, stream=0, episode=episode, start=0, length=length, truncated=True))
    return replay


def prioritized() -> PrioritizedSampler:
    return PrioritizedSampler(alpha=1.0, beta=0.0, td_error_min=0.0, td_error_max=4.0)


@pytest.mark.parametrize("sampler", [UniformSampler, prioritized])
def test_it_draws_what_a_plain_replay_draws(sampler, make):
    """In the same order, as long as nothing changes in between; and nothing before somebody asks."""
    windows = {"burn_in": 1, "learn": 4}
    ours = make(sampler, threads=5, ahead=4, **windows)
    theirs = fill(ReplayBuffer(VECTOR, sampler=sampler(), **SIZES, **windows), 40)
    assert digest(ours) == digest(theirs)
    assert all(batches_equal(ours.sample(), theirs.sample()) for _ in range(20))


def test_rows_change_only_when_no_window_is_being_read(make):
    """Around a small ring, with slow readers: each batch has the rows that stood there when it was drawn."""
    replay = make(threads=3, capacity=30, lengths=(), learn=3, carry_shape=(2,))
    replay.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=20, carry_shape=(2,)))
    read, drawn, busy = replay._windows.read, [], threading.Semaphore(0)

    def slow(*anchors):
        expected = read(*anchors)
        time.sleep(0.003)
        drawn.append((expected, read(*anchors)))
        busy.release()
        return drawn[-1][1]

    replay._windows.read = slow
    for turn in range(30):
        batch = replay.sample()
        carry = torch.full((*batch.ids.shape, 2), float(turn))
        if turn % 3 == 0:
            replay.refresh_carry(result(batch.ids, np.ones(8), anchor=batch.anchor, carry=carry))
        elif turn % 3 == 1:
            replay.load_state(taken(replay))
        replay.add(
            make_segment(VECTOR, stream=1, episode=turn // 3, start=turn % 3, length=1, carry_shape=(2,))
        )
    assert len(drawn) > 30 and all(batches_equal(before, after) for before, after in drawn)


def test_a_loaded_replay_draws_from_its_own_rows_behind_what_waited(make):
    original, other = make(lengths=(40, 30)), make(lengths=(20,))
    original.sample()
    other.sample()
    other.load_state(taken(original))
    assert digest(original) == digest(other)
    waiting = [original.sample() for _ in range(3)]
    found = [other.sample() for _ in range(5)]
    assert all(batches_equal(original.sample(), batch) for batch in found)
    assert max(int(batch.ids.max()) for batch in (*waiting, *found)) > 21


def test_what_a_thread_raises_comes_out_of_sample(make, monkeypatch):
    replay = make(threads=4)
    monkeypatch.setattr(replay._windows, "read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        replay.sample()


def test_fresh_windows_are_not_read_ahead(make):
    """Each once and in order: those that wait would be lost with a stop."""
    assert type(make(FifoSampler)) is ReplayBuffer
