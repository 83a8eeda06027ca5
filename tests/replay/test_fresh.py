"""Fresh windows: each transition is the anchor of one batch, oldest first, and not before it is ready."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.buffer import FifoSampler, ReplayBuffer, UniformSampler
from algorithm.replay.records import ArrayChunks
from algorithm.replay.samplers import MAX_YOUNG
from tests.oracles_replay import VECTOR, NaiveReplay, make_segment, taken

OPERATION = st.tuples(
    st.integers(0, 2),  # stream
    st.integers(1, 4),  # transitions
    st.sampled_from(["open", "open", "open", "terminated", "truncated"]),
    st.sampled_from(["go on", "go on", "go on", "restart", "skip", "close"]),
    st.integers(0, 3),  # samples afterwards
)


def make_buffer(*, capacity=100, batch_size=1, learn=1, n_step=1, **kwargs) -> ReplayBuffer:
    return ReplayBuffer(
        VECTOR,
        capacity=capacity,
        batch_size=batch_size,
        learn=learn,
        n_step=n_step,
        sampler=FifoSampler(),
        **kwargs,
    )


def add(buffer: ReplayBuffer, start: int, length: int = 1, *, stream: int = 0, **ends: bool) -> list[int]:
    segment = make_segment(VECTOR, stream=stream, episode=0, start=start, length=length, **ends)
    return buffer.add(segment).tolist()


def draw(buffer: ReplayBuffer) -> list[int] | None:
    """The anchors of the next batch."""
    batch = buffer.sample()
    if batch is None:
        return None
    assert batch.weight.tolist() == [1.0] * buffer.batch_size
    return batch.ids.gather(1, batch.anchor.unsqueeze(1))[:, 0].tolist()


class NaiveFresh:
    """The waiting list as a plain loop over the oracle's episodes."""

    def __init__(self, naive: NaiveReplay) -> None:
        self._naive = naive
        self._used: set[int] = set()

    def ready(self) -> list[int]:
        further = self._naive.learn + self._naive.n_step - 2
        found = []
        for episode in self._naive.episodes:
            rows = [self._naive.rows[i] for i in episode]
            for place, id_ in enumerate(episode[:-1]):
                ahead = [row for row in rows[place : place + further + 1] if row.acted is not None]
                ended = any(row.terminated or row.truncated for row in ahead)
                if len(ahead) == further + 1 or ended:
                    found.append(id_)
        return sorted(i for i in found if i not in self._used and self._naive.alive(i))

    def draw(self, n: int) -> list[int] | None:
        ready = self.ready()
        if len(ready) < n:
            return None
        self._used.update(ready[:n])
        return ready[:n]


@given(
    capacity=st.integers(6, 40),
    batch_size=st.integers(1, 5),
    learn=st.integers(1, 3),
    n_step=st.integers(1, 3),
    operations=st.lists(OPERATION, min_size=1, max_size=30),
)
def test_every_batch_equals_the_oracles(capacity, batch_size, learn, n_step, operations):
    buffer = make_buffer(capacity=capacity, batch_size=batch_size, learn=learn, n_step=n_step)
    naive = NaiveReplay(VECTOR, capacity, learn=learn, n_step=n_step)
    oracle = NaiveFresh(naive)
    episode, step = [0, 0, 0], [0, 0, 0]
    for stream, length, end, what, samples in operations:
        if what == "close":
            buffer.close(stream)
            naive.close(stream)
        if what in ("close", "restart"):
            episode[stream], step[stream] = episode[stream] + 1, 0
        if what == "skip":
            step[stream] += 2
        segment = make_segment(
            VECTOR,
            stream=stream,
            episode=episode[stream],
            start=step[stream],
            length=length,
            terminated=end == "terminated",
            truncated=end == "truncated",
        )
        buffer.add(segment)
        naive.add(segment)
        step[stream] += length
        if end != "open":
            episode[stream], step[stream] = episode[stream] + 1, 0
        assert buffer.ready == len(oracle.ready())
        for _ in range(samples):
            assert draw(buffer) == oracle.draw(batch_size)


def test_each_transition_is_used_exactly_once():
    buffer = make_buffer(capacity=50, batch_size=4, n_step=3)
    stored, drawn = [], []
    for t in range(400):
        for stream in range(3):
            at = t % (9 + stream)
            stored += add(buffer, at, stream=stream, terminated=at == 8 + stream)
        while (anchors := draw(buffer)) is not None:
            drawn += anchors
    for stream in range(3):
        buffer.close(stream)
    while (anchors := draw(buffer)) is not None:
        drawn += anchors
    left = buffer.ready
    assert left < 4 and len(drawn) == len(set(drawn)) == len(stored) - left
    assert set(drawn) <= set(stored)


def test_ready_by_hand():
    """n = 3: a transition waits for the two behind it, or for the end."""
    buffer = make_buffer(n_step=3)
    ready = []
    for start, end in enumerate([False, False, False, False, True]):
        add(buffer, start, terminated=end)
        ready.append(buffer.ready)
    assert ready == [0, 0, 1, 2, 5]
    assert [draw(buffer) for _ in range(6)] == [[0], [1], [2], [3], [4], None]


def test_with_single_steps_every_transition_is_ready_at_once():
    buffer = make_buffer(batch_size=2)
    assert [(add(buffer, start), buffer.ready)[1] for start in range(3)] == [1, 2, 3]
    assert draw(buffer) == [0, 1] and draw(buffer) is None and buffer.ready == 1


@pytest.mark.parametrize("how", ["terminated", "truncated", "closed", "restarted", "cut off"])
def test_every_end_makes_the_last_ones_ready(how):
    buffer = make_buffer(learn=2, n_step=2)
    ends = {how: True} if how in ("terminated", "truncated") else {}
    add(buffer, 0, 2, **ends)
    if how == "closed":
        buffer.close(0)
    if how == "restarted":
        add(buffer, 0)
    if how == "cut off":  # the steps between were lost: what was open cannot go on
        add(buffer, 7)
    assert buffer.ready == 2 and draw(buffer) == [0] and draw(buffer) == [1] and draw(buffer) is None


def test_the_oldest_observation_comes_first_though_another_stream_was_ready_before():
    buffer = make_buffer(n_step=3)
    add(buffer, 0)  # ids 0, 1
    add(buffer, 0, stream=1, terminated=True)  # ids 2, 3: ready at once
    assert buffer.ready == 1
    buffer.close(0)
    assert [draw(buffer), draw(buffer)] == [[0], [2]]


def test_what_is_overwritten_before_its_turn_is_dropped():
    buffer = make_buffer(capacity=6)
    add(buffer, 0, 4)  # ids 0 … 3, head 4
    assert buffer.ready == 4
    add(buffer, 4, 3)  # ids 4 … 6, head 7: 0 and 1 are gone
    assert buffer.ready == 5 and draw(buffer) == [2]


def test_the_oldest_row_that_lives_is_not_dropped():
    buffer = make_buffer(capacity=6, n_step=3)
    add(buffer, 0, 4)  # ids 0 … 3, head 4; 2 and 3 have to wait
    assert buffer.ready == 2
    add(buffer, 4, 4)  # ids 4 … 7, head 8: 3 is the oldest alive
    assert buffer.ready == 3 and draw(buffer) == [3]


def test_transitions_nobody_asks_for_are_not_remembered_beyond_the_ring():
    sampler = FifoSampler()
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=2, n_step=2, sampler=sampler)
    for start in range(2 * MAX_YOUNG + 5):
        add(buffer, start)
    assert sampler.nbytes < 8 * (MAX_YOUNG + 10)
    assert draw(buffer) == [2 * MAX_YOUNG + 5 - 9, 2 * MAX_YOUNG + 5 - 8]


def test_saved_state_goes_on_with_the_same_batches():
    original = make_buffer(capacity=40, batch_size=3, n_step=3)
    for t in range(30):
        add(original, t % 7, terminated=t % 7 == 6)
    draw(original)
    state = taken(original)
    (waiting,) = state.arrays["waiting"].chunks
    assert waiting.size and waiting.tolist() == sorted(waiting.tolist())
    other = make_buffer(capacity=40, batch_size=3, n_step=3)
    add(other, 0, 20)
    assert other.ready == 18
    other.load_state(state)
    for t in range(30, 60):
        add(original, t % 7, terminated=t % 7 == 6)
        add(other, t % 7, terminated=t % 7 == 6)
        assert other.ready == original.ready
        assert draw(other) == draw(original)


def test_a_state_of_another_sampler_or_with_too_many_waiting_is_refused():
    fresh, uniform = make_buffer(), ReplayBuffer(VECTOR, capacity=100, batch_size=1, sampler=UniformSampler())
    add(fresh, 0, 3)
    with pytest.raises(ValueError, match="use_replay_buffer"):
        uniform.load_state(fresh.state())
    for wrong in (np.arange(4), np.array([100]), np.array([2, 2**40])):  # 3 is no transition
        state = replace(fresh.state(), arrays={"waiting": ArrayChunks.of(wrong)})
        with pytest.raises(ValueError, match=f"not all of the {wrong.size} transitions that wait are stored"):
            make_buffer().load_state(state)


def test_more_than_is_ready_cannot_be_drawn():
    sampler = FifoSampler()
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=4, sampler=sampler)
    add(buffer, 0, 3)
    with pytest.raises(ValueError, match="4 were asked for, 3 are ready"):
        sampler.sample(4, np.random.default_rng(0))
