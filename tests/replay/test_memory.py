"""What a replay takes, computed without building it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer, UniformSampler
from algorithm.replay.sizing import largest_capacity, replay_bytes
from algorithm.replay.storage import MAX_CAPACITY
from tests.oracles_replay import DISCRETE, KINDS, MIXED, STACKED, VECTOR

SPECS = st.sampled_from([VECTOR, MIXED, DISCRETE, KINDS, STACKED])


@given(
    spec=SPECS,
    capacity=st.one_of(st.integers(2, 5000), st.sampled_from([2**16, 2**16 + 1, 524_289])),
    carry_shape=st.sampled_from([(), (0,), (7,), (2, 3)]),
    prioritised=st.booleans(),
)
def test_it_is_what_the_replay_says_of_itself(spec, capacity, carry_shape, prioritised):
    sampler = PrioritizedSampler() if prioritised else UniformSampler()
    buffer = ReplayBuffer(spec, capacity=capacity, batch_size=1, carry_shape=carry_shape, sampler=sampler)
    computed = replay_bytes(spec, capacity, carry_shape, prioritised=prioritised)
    assert computed == buffer.nbytes and computed / capacity == buffer.bytes_per_row


@given(
    spec=SPECS,
    nbytes=st.integers(0, 2**36),
    carry_shape=st.sampled_from([(), (7,)]),
    prioritised=st.booleans(),
)
def test_the_largest_capacity_fits_and_one_row_more_does_not(spec, nbytes, carry_shape, prioritised):
    rows = largest_capacity(spec, nbytes, carry_shape, prioritised=prioritised)
    assert rows == 0 or (
        rows >= 2 and replay_bytes(spec, rows, carry_shape, prioritised=prioritised) <= nbytes
    )
    more = max(rows + 1, 2)
    assert rows == MAX_CAPACITY or replay_bytes(spec, more, carry_shape, prioritised=prioritised) > nbytes


def test_bytes_of_a_row_by_hand():
    pixels = AgentSpec(ObsSpec(("obs",), ((4, 84, 84),), ("uint8",), stacks=(4,)), ActionSpec((6,), 0))
    row = 84 * 84 + (6 + 6) + 4 * (1 + 1) + 12  # newest frame; mask, one-hot; log-probability, reward; links
    assert replay_bytes(pixels, 1000, prioritised=False) == 1000 * row
    assert replay_bytes(pixels, 1000, (256,), prioritised=False) == 1000 * (row + 4 * 256)
    assert replay_bytes(pixels, 1000, prioritised=True) == 1000 * (row + 8)


@pytest.mark.parametrize("prioritised", [False, True])
def test_memory_without_end_holds_the_largest_replay_there_is(prioritised):
    assert largest_capacity(VECTOR, 2**60, prioritised=prioritised) == MAX_CAPACITY
