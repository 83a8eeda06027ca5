"""Rows, links and windows against the plain oracle."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.storage import NEXT, TERMINATED, TRUNCATED, Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer
from tests.oracles_replay import (
    DISCRETE,
    KINDS,
    MIXED,
    STACKED,
    VECTOR,
    NaiveReplay,
    assert_batch_equals,
    make_segment,
)

OPERATION = st.tuples(
    st.integers(0, 2),  # stream
    st.integers(1, 6),  # transitions
    st.sampled_from(["open", "open", "open", "terminated", "truncated", "both"]),
    st.sampled_from(["go on", "go on", "go on", "go on", "restart", "skip", "close"]),
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
    operations=st.lists(OPERATION, min_size=1, max_size=25),
    device=st.sampled_from([None, torch.device("cpu")]),
)
def test_every_window_equals_the_oracles(spec, capacity, burn_in, learn, n_step, operations, device):
    (agent, carry_shape), sizes = spec, {"burn_in": burn_in, "learn": learn, "n_step": n_step}
    storage = Storage(agent, capacity, carry_shape)
    writer, reader = Writer(storage), WindowReader(storage, **sizes, device=device)
    naive = NaiveReplay(agent, capacity, **sizes)
    episode, step = [0, 0, 0], [0, 0, 0]
    for stream, length, end, what in operations:
        if what == "close":
            writer.close(stream)
            naive.close(stream)
        if what in ("close", "restart"):
            episode[stream], step[stream] = episode[stream] + 1, 0
        if what == "skip":
            step[stream] += 2
        segment = make_segment(
            agent,
            stream=stream,
            episode=episode[stream],
            start=step[stream],
            length=min(length, capacity - 1),
            terminated=end in ("terminated", "both"),
            truncated=end in ("truncated", "both"),
            carry_shape=carry_shape,
        )
        ids = writer.add(segment)
        naive.add(segment)
        assert storage.is_transition(ids % capacity).tolist() == [True] * segment.length + [False]
        step[stream] += segment.length
        if end != "open":
            episode[stream], step[stream] = episode[stream] + 1, 0
        check_all_windows(storage, reader, naive)


def single_steps(writer, naive, *, streams, steps, episode_length):
    """Streams take turns, one transition each, as one process does."""
    for t in range(steps):
        for stream in range(streams):
            at = t % (episode_length + stream)
            segment = make_segment(
                VECTOR,
                stream=stream,
                episode=t // (episode_length + stream),
                start=at,
                length=1,
                terminated=at == episode_length + stream - 1,
            )
            writer.add(segment)
            naive.add(segment)


def test_interleaved_single_steps_over_many_laps_of_the_ring():
    storage = Storage(VECTOR, 37)
    writer, reader = Writer(storage), WindowReader(storage, burn_in=2, learn=2, n_step=3)
    naive = NaiveReplay(VECTOR, 37, burn_in=2, learn=2, n_step=3)
    single_steps(writer, naive, streams=3, steps=150, episode_length=7)
    check_all_windows(storage, reader, naive)


def test_a_window_tells_env_episode_and_step():
    storage = Storage(VECTOR, 300)
    writer, reader = Writer(storage), WindowReader(storage, burn_in=3, learn=2, n_step=2)
    single_steps(writer, NaiveReplay(VECTOR, 300), streams=4, steps=200, episode_length=9)
    slots = np.flatnonzero(storage.is_transition(np.arange(300)))
    batch = reader.read(slots, np.ones(len(slots), np.float32))
    obs, valid = batch.obs["obs"].numpy(), batch.obs_valid.numpy()
    for window, exists, ids, steps in zip(obs, valid, batch.ids.numpy(), batch.step.numpy(), strict=True):
        there = window[exists]
        assert len(np.unique(there[:, 0])) == 1  # one environment
        assert len(np.unique(there[:, 1])) == 1  # one episode
        assert (np.diff(there[:, 2]) == 1).all()  # every step, in order
        np.testing.assert_array_equal(there[:, 2], steps[exists])
        assert (np.diff(ids[exists]) > 0).all() and (ids[~exists] == -1).all() and not window[~exists].any()
        assert exists[3] and exists[4]  # the anchor and its successor


def test_padding_left_and_right_by_hand():
    storage = Storage(VECTOR, 10)
    writer, reader = Writer(storage), WindowReader(storage, burn_in=2, learn=1, n_step=3)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2, terminated=True))
    batch = reader.read(np.array([0, 1]), np.ones(2, np.float32))
    assert batch.window == 5
    assert batch.ids.tolist() == [[-1, -1, 0, 1, 2, -1], [-1, 0, 1, 2, -1, -1]]
    assert batch.valid.int().tolist() == [[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]]
    assert batch.obs_valid.int().tolist() == [[0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0]]
    assert batch.terminated.int().tolist() == [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]]
    assert batch.step.tolist() == [[0, 0, 0, 1, 2, 0], [0, 0, 1, 2, 0, 0]]
    assert not batch.prev_action[0, 2].any() and batch.prev_action[0, 3].equal(batch.action[0, 2])


def test_an_anchor_at_the_end_of_the_learned_part_by_hand():
    """K = 1, T = 2, n = 1: the window of the first step begins with two tokens of padding."""
    storage = Storage(VECTOR, 10, (1,))
    writer, reader = Writer(storage), WindowReader(storage, burn_in=1, learn=2, n_step=1)
    segment = make_segment(VECTOR, stream=0, episode=0, start=0, length=3, terminated=True, carry_shape=(1,))
    writer.add(segment)
    batch = reader.read(np.array([0, 0, 2]), np.ones(3, np.float32), np.array([0, 1, 1]))
    assert batch.ids.tolist() == [[-1, 0, 1, 2], [-1, -1, 0, 1], [0, 1, 2, 3]]
    assert batch.valid.int().tolist() == [[0, 1, 1], [0, 0, 1], [1, 1, 1]]
    assert batch.step.tolist() == [[0, 0, 1, 2], [0, 0, 0, 1], [0, 1, 2, 3]]
    assert batch.terminated.int().tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert batch.anchor.tolist() == [1, 2, 2]
    np.testing.assert_array_equal(batch.carry.numpy(), segment.carry[[0, 0, 0]])


def test_an_overwritten_prefix_gives_the_carry_of_the_first_row_that_lives():
    storage = Storage(VECTOR, 5, (2,))
    writer, reader = Writer(storage), WindowReader(storage, burn_in=3, learn=1, n_step=1)
    segment = make_segment(VECTOR, stream=0, episode=0, start=0, length=4, carry_shape=(2,))
    writer.add(segment)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=4, length=2, carry_shape=(2,)))
    batch = reader.read(np.array([4]), np.ones(1, np.float32))  # anchor 4, its prefix 1, 2, 3; 1 is gone
    assert batch.ids.tolist() == [[-1, 2, 3, 4, 5]]
    np.testing.assert_array_equal(batch.carry[0].numpy(), segment.carry[2])
    assert not batch.prev_action[0, 1].any()


def test_prev_action_comes_from_the_row_before_the_window():
    storage = Storage(VECTOR, 10)
    writer, reader = Writer(storage), WindowReader(storage, burn_in=0, learn=1, n_step=1)
    segment = make_segment(VECTOR, stream=0, episode=0, start=0, length=3)
    writer.add(segment)
    batch = reader.read(np.array([2]), np.ones(1, np.float32))
    np.testing.assert_array_equal(batch.prev_action[0].numpy(), segment.action[1:3])


def test_close_flags_the_last_transition_and_makes_the_head_final():
    storage = Storage(VECTOR, 10)
    writer = Writer(storage)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2))
    writer.close(0)
    assert storage.links[:3, NEXT].tolist() == [4, 4 | TRUNCATED, 0]
    writer.close(0)  # nothing open: nothing happens
    writer.add(make_segment(VECTOR, stream=0, episode=1, start=2, length=1))  # step 2 does not go on any more
    assert len(storage) == 5


def test_close_leaves_the_row_alone_that_overwrote_the_last_transition():
    storage = Storage(VECTOR, 4)
    writer = Writer(storage)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=1))
    writer.add(make_segment(VECTOR, stream=1, episode=0, start=0, length=2))  # row 4 stands where 0 stood
    writer.close(0)
    assert storage.links[:, NEXT].tolist() == [0, 0, 4, 4]


def test_start_at_zero_closes_the_open_episode():
    storage = Storage(VECTOR, 10)
    writer = Writer(storage)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2))
    writer.add(make_segment(VECTOR, stream=0, episode=1, start=0, length=1))
    assert storage.links[:5, NEXT].tolist() == [4, 4 | TRUNCATED, 0, 4, 0]


def test_a_head_that_its_own_segment_overwrites_starts_a_new_chain():
    storage = Storage(VECTOR, 4)
    writer = Writer(storage)
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=1))
    writer.add(make_segment(VECTOR, stream=1, episode=0, start=0, length=1))
    writer.add(make_segment(VECTOR, stream=0, episode=0, start=1, length=3))  # all four slots
    assert storage.num_transitions == 3
    batch = WindowReader(storage, burn_in=1, learn=1, n_step=1).read(
        np.array([0, 1, 2]), np.ones(3, np.float32)
    )
    assert batch.ids.tolist() == [[-1, 4, 5], [4, 5, 6], [5, 6, 7]]


def test_batches_share_no_memory_with_the_storage():
    storage = Storage(MIXED, 10, (2,))
    writer, reader = Writer(storage), WindowReader(storage, burn_in=1, learn=1, n_step=2)
    writer.add(make_segment(MIXED, stream=0, episode=0, start=0, length=5, carry_shape=(2,)))
    before = {name: array.copy() for name, array in storage.arrays.items()}
    batch = reader.read(np.arange(5), np.ones(5, np.float32))
    tensors = [v for k, v in vars(batch).items() if k != "obs"] + list(batch.obs.values())
    for tensor in tensors:
        assert not any(np.shares_memory(tensor.numpy(), array) for array in storage.arrays.values())
        tensor.fill_(1)
    for name, array in storage.arrays.items():
        np.testing.assert_array_equal(array, before[name])


def test_float64_observations_are_stored_as_float32():
    storage = Storage(VECTOR, 10)
    segment = make_segment(VECTOR, stream=0, episode=0, start=0, length=2)
    exact = {"obs": segment.obs["obs"].astype(np.float64) + 1e-12}
    Writer(storage).add(type(segment)(**{**vars(segment), "obs": exact}))
    batch = WindowReader(storage, burn_in=0, learn=1, n_step=1).read(np.array([0]), np.ones(1, np.float32))
    np.testing.assert_array_equal(batch.obs["obs"][0].numpy(), exact["obs"][:2].astype(np.float32))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("obs 'obs'", {"obs": {"obs": np.zeros((3, 5), np.float32)}}),
        ("obs 'obs'", {"obs": {"obs": np.zeros((3, 4), np.complex64)}}),
        ("'obs' is missing", {"obs": {}}),
        ("action_mask", {"action_mask": np.zeros((3, 1), bool)}),
        ("carry", {"carry": np.zeros((3, 2), np.float32)}),
        ("action:", {"action": np.zeros((2, 3), np.float32)}),
        ("z:", {"z": np.zeros((3, 2), np.float32)}),
        ("behaviour_logp", {"behaviour_logp": np.zeros(2, np.float32)}),
        ("terminated", {"terminated": np.zeros(3, bool)}),
        ("truncated", {"truncated": np.zeros((2, 1), bool)}),
        ("priority", {"priority": np.zeros(3, np.float32)}),
        ("last step", {"terminated": np.array([True, False])}),
        ("last step", {"truncated": np.array([True, False])}),
        ("tanh", {"z": np.full((2, 2), 0.5, np.float32)}),
        ("tanh", {"z": np.full((2, 2), np.nan, np.float32)}),
        ("start_step", {"start_step": -1}),
    ],
)
def test_a_segment_that_does_not_fit_is_named_and_changes_nothing(name, change):
    storage = Storage(VECTOR, 10)
    segment = make_segment(VECTOR, stream=0, episode=0, start=0, length=2)
    with pytest.raises(ValueError, match=name):
        Writer(storage).add(type(segment)(**{**vars(segment), **change}))
    assert storage.next_id == 0 and not storage.real.any()


@pytest.mark.parametrize("length", [4, 9])
def test_a_segment_longer_than_the_ring_is_refused(length):
    with pytest.raises(ValueError, match="capacity of 4 rows"):
        Writer(Storage(VECTOR, 4)).add(make_segment(VECTOR, stream=0, episode=0, start=0, length=length))


@pytest.mark.parametrize("capacity", [1, 2**29])
def test_capacity_has_bounds(capacity):
    with pytest.raises(ValueError, match="capacity"):
        Storage(VECTOR, capacity)


@pytest.mark.parametrize("sizes", [(-1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_window_sizes_have_bounds(sizes):
    with pytest.raises(ValueError, match="windows"):
        WindowReader(Storage(VECTOR, 4), burn_in=sizes[0], learn=sizes[1], n_step=sizes[2])
