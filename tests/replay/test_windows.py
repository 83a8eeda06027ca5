"""Rows, links and windows against the plain oracle."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from algorithm.replay.storage import NEXT, TERMINATED, TRUNCATED, Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from tests.lib.buffers import OPERATIONS, Script
from tests.lib.oracles_replay import (
    DISCRETE,
    KINDS,
    MIXED,
    STACKED,
    VECTOR,
    NaiveReplay,
    assert_batch_equals,
    make_segment,
)


def check_all_windows(storage: Storage, reader: WindowReader, naive: NaiveReplay) -> None:
    anchors = naive.transitions()
    assert storage.num_transitions == len(anchors)
    slots = np.array(anchors, np.int64) % storage.capacity
    is_transition = storage.is_transition(np.arange(storage.capacity))
    assert sorted(slots.tolist()) == np.flatnonzero(is_transition).tolist()
    flags = storage.links[slots, NEXT]
    assert ((flags & TERMINATED) > 0).tolist() == [naive.rows[i].terminated for i in anchors]
    assert ((flags & TRUNCATED) > 0).tolist() == [naive.rows[i].truncated for i in anchors]
    if anchors:
        assert_batch_equals(reader.read(slots, np.ones(len(slots), np.float32)), naive, anchors)
        places = np.random.default_rng(len(anchors)).integers(naive.learn, size=len(anchors))
        batch = reader.read(slots, np.ones(len(slots), np.float32), places)
        assert_batch_equals(batch, naive, anchors, places.tolist())


@given(
    spec=st.sampled_from(
        [(VECTOR, (0,)), (MIXED, (2, 3)), (DISCRETE, (3,)), (KINDS, (0,)), (STACKED, (0,)), (STACKED, (2,))]
    ),
    capacity=st.integers(2, 40),
    burn_in=st.integers(0, 3),
    learn=st.integers(1, 3),
    n_step=st.integers(1, 3),
    operations=OPERATIONS,
    device=st.sampled_from([None, torch.device("cpu")]),
)
def test_every_window_equals_the_oracles(spec, capacity, burn_in, learn, n_step, operations, device):
    sizes, script = {"burn_in": burn_in, "learn": learn, "n_step": n_step}, Script(*spec)
    naive, uniform = NaiveReplay(spec[0], capacity, **sizes), UniformSampler()
    buffer = ReplayBuffer(spec[0], capacity=capacity, batch_size=1, carry_shape=spec[1], sampler=uniform)
    storage = buffer._storage
    reader = WindowReader(storage, **sizes, device=device)
    for number, (stream, length, *what) in enumerate(operations, 1):
        script.do((stream, length, *what), buffer, naive)
        if number % 5 == 0 or number == len(operations):
            check_all_windows(storage, reader, naive)


@pytest.mark.parametrize("n_step", [1, 4])
@pytest.mark.parametrize("spec", [MIXED, STACKED], ids=["mixed", "stacked"])
def test_batches_share_no_memory_with_the_storage(spec, n_step):
    storage, segment = (
        Storage(spec, 20, (2,)),
        make_segment(spec, stream=0, episode=0, start=0, length=8, carry_shape=(2,)),
    )
    Writer(storage).add_steps(segment.steps())
    reader = WindowReader(storage, burn_in=1, learn=1, n_step=n_step)
    batch = reader.read(np.arange(8), np.ones(8, np.float32))
    for tensor in (*batch.obs.values(), *(v for k, v in vars(batch).items() if k != "obs")):
        assert not any(np.shares_memory(tensor.numpy(), array) for array in storage.arrays.values())


@pytest.mark.parametrize("capacity", [1, 2**29])
def test_sizes_have_bounds(capacity):
    with pytest.raises(ValueError, match="capacity must be"):
        Storage(VECTOR, capacity)


def test_float64_observations_are_stored_as_float32():
    storage, segment = Storage(VECTOR, 10), make_segment(VECTOR, stream=0, episode=0, start=0, length=2)
    exact = segment.obs["obs"].astype(np.float64) + 1e-12
    Writer(storage).add_steps(replace(segment, obs={"obs": exact}).steps())
    batch = WindowReader(storage, burn_in=0, learn=1, n_step=1).read(np.array([0]), np.ones(1, np.float32))
    np.testing.assert_array_equal(batch.obs["obs"][0].numpy(), exact[:2].astype(np.float32))
