"""Fresh windows: each transition is the anchor of one batch, oldest first, and not before it is ready."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.layout import ArrayChunks
from algorithm.replay.samplers import MAX_YOUNG, FifoSampler, UniformSampler
from tests.lib.buffers import OPERATION, Script, filled
from tests.lib.oracles_replay import VECTOR, NaiveReplay


def draw(buffer: ReplayBuffer) -> list[int] | None:
    """The anchors of the next batch."""
    batch = buffer.sample()
    if batch is None:
        return None
    assert batch.weight.tolist() == [1.0] * buffer.batch_size
    return batch.ids.gather(1, batch.anchor.unsqueeze(1))[:, 0].tolist()


def waiting(naive: NaiveReplay, used: set[int]) -> list[int]:
    """The transitions that are ready, by a plain loop over the oracle's episodes."""
    further, found = naive.learn + naive.n_step - 2, []
    for episode in naive.episodes:
        rows = [naive.rows[i] for i in episode]
        for place, id_ in enumerate(episode[:-1]):
            ahead = [row for row in rows[place : place + further + 1] if row.acted is not None]
            if len(ahead) == further + 1 or any(row.terminated or row.truncated for row in ahead):
                found.append(id_)
    return sorted(i for i in found if i not in used and naive.alive(i))


@given(
    capacity=st.integers(6, 40),
    batch_size=st.integers(1, 5),
    learn=st.integers(1, 3),
    n_step=st.integers(1, 3),
    operations=st.lists(st.tuples(OPERATION, st.integers(0, 3)), min_size=1, max_size=30),
)
def test_every_batch_equals_the_oracles(capacity, batch_size, learn, n_step, operations):
    sizes, script, used = {"learn": learn, "n_step": n_step}, Script(VECTOR, (0,)), set()
    naive = NaiveReplay(VECTOR, capacity, **sizes)
    buffer = ReplayBuffer(VECTOR, capacity=capacity, batch_size=batch_size, sampler=FifoSampler(), **sizes)
    for operation, samples in operations:
        script.do(operation, buffer, naive)
        for _ in range(samples):
            ready = waiting(naive, used)
            assert buffer.ready == len(ready)
            expected = ready[:batch_size] if len(ready) >= batch_size else None
            assert draw(buffer) == expected
            used.update(expected or ())


def test_what_is_not_there_cannot_be_drawn_or_loaded():
    sampler = FifoSampler()
    fresh = filled(sampler, lengths=(3,), batch_size=1)
    with pytest.raises(ValueError, match="use_replay_buffer"):
        filled(UniformSampler(), batch_size=1).load_state(fresh.state())
    for wrong in (np.arange(4), np.array([100]), np.array([2, 2**40])):  # 3 is no transition
        state = replace(fresh.state(), arrays={"waiting": ArrayChunks.of(wrong)})
        with pytest.raises(ValueError, match=f"not all of the {wrong.size} waiting transitions"):
            filled(FifoSampler(), lengths=(), batch_size=1).load_state(state)


def test_transitions_nobody_asks_for_are_not_remembered_beyond_the_ring():
    sampler, script, added = FifoSampler(), Script(VECTOR, (0,)), 2 * MAX_YOUNG + 5
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=2, n_step=2, sampler=sampler)
    for _ in range(added):
        script.do((0, 1, "open", "go on"), buffer)
    assert sampler.nbytes < 8 * (MAX_YOUNG + 10)
    assert draw(buffer) == [added - 9, added - 8]
