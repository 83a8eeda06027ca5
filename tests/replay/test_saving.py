"""A replay that is saved and loaded goes on as if nothing had happened, and knows what of it is on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay import records
from algorithm.replay.buffer import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler
from algorithm.replay.records import SegmentFile
from tests.oracles_replay import DISCRETE, MIXED, VECTOR, digest, make_segment, stored, taken, whole
from tests.replay.buffers import batches_equal, filled, result

SAMPLERS = [PrioritizedSampler, UniformSampler, FifoSampler]

OPERATION = st.tuples(
    st.integers(0, 2),  # stream
    st.integers(1, 4),  # transitions
    st.sampled_from(["open", "open", "open", "terminated", "truncated"]),
    st.sampled_from(["go on", "go on", "go on", "restart", "skip", "close"]),
)
OPERATIONS = st.lists(OPERATION, min_size=1, max_size=30)


class Drive:
    """Adds what hypothesis makes up to replays that shall be the same."""

    def __init__(self, *replays: ReplayBuffer) -> None:
        self.replays = replays
        self._at: dict[int, tuple[int, int]] = {}  # stream → episode, next step

    def at(self, stream: int) -> int:
        """The step that the stream's next segment begins with."""
        return self._at.get(stream, (0, 0))[1]

    def do(self, stream: int, length: int, ends: str, then: str) -> list[list[int]]:
        """The ids that each replay gave."""
        episode, start = self._at.get(stream, (0, 0))
        segment = make_segment(
            VECTOR,
            stream=stream,
            episode=episode,
            start=start,
            length=length,
            carry_shape=(2,),
            **({} if ends == "open" else {ends: True}),
        )
        over = ends != "open" or then in ("restart", "close")
        self._at[stream] = (episode + 1, 0) if over else (episode, start + length + (then == "skip"))
        ids = [replay.add(segment).tolist() for replay in self.replays]
        if then == "close":
            for replay in self.replays:
                replay.close(stream)
        return ids


def make(sampler=UniformSampler, capacity=20, **kwargs) -> ReplayBuffer:
    sizes = {"batch_size": 2, "burn_in": 2, "learn": 2, "n_step": 2, "carry_shape": (2,), **kwargs}
    return ReplayBuffer(VECTOR, capacity=capacity, sampler=sampler(), **sizes)


def saved(replay: ReplayBuffer) -> np.ndarray:
    """What a checkpoint would write of it."""
    new = whole(replay.unsaved())
    part = SegmentFile(Path("/somewhere"), len(new), replay.next_id - 1, 1, "")
    replay.mark_saved((*replay.saved_files, part))
    return new


def refresh(replay: ReplayBuffer, *ids: int) -> None:
    """Other carries for the rows behind the first one."""
    carry = torch.rand(1, len(ids), 2)
    replay.refresh_carry(result(torch.tensor([ids]), [0.0], carry=carry))


@pytest.mark.parametrize("chunk", [1, 500, records.CHUNK_BYTES], ids=["rows", "few rows", "all rows"])
@pytest.mark.parametrize("make_sampler", [PrioritizedSampler, UniformSampler])
@pytest.mark.parametrize("used_before", [False, True])
def test_saved_state_goes_on_with_the_same_batches(make_sampler, used_before, chunk, monkeypatch):
    monkeypatch.setattr(records, "CHUNK_BYTES", chunk)
    sizes = {"spec": MIXED, "capacity": 100, "carry_shape": (2,), "burn_in": 1, "learn": 3, "n_step": 2}
    sizes["seed"] = 5
    original = filled(make_sampler(), lengths=(30, 40, 20, 25), **sizes)
    original.add(make_segment(MIXED, stream=4, episode=0, start=0, length=3, carry_shape=(2,)))
    batch = original.sample()
    original.feedback(result(batch.ids, np.linspace(0, 0.5, 16), anchor=batch.anchor))
    other = filled(make_sampler(), lengths=(60, 60, 60) if used_before else (), **{**sizes, "seed": 6})
    other.load_state(taken(original))
    assert digest(other) == digest(original)
    assert len(other) == len(original) and other.num_transitions == original.num_transitions
    for t in range(20):
        segment = make_segment(MIXED, stream=4, episode=0, start=3 + t, length=1, carry_shape=(2,))
        for buffer in (original, other):
            buffer.add(segment)
        ours, theirs = original.sample(), other.sample()
        assert batches_equal(ours, theirs)
        for buffer in (original, other):
            buffer.feedback(result(ours.ids, np.linspace(0, 0.4, 16) / (t + 1), anchor=ours.anchor))
    assert digest(other) == digest(original)


@given(
    operations=st.lists(st.tuples(OPERATION, st.booleans()), min_size=1, max_size=30),
    capacity=st.integers(6, 40),
    sampler=st.sampled_from(SAMPLERS),
)
def test_each_save_holds_just_what_has_changed_and_all_of_them_are_the_replay(operations, capacity, sampler):
    """Against a copy of every record as it stood when it was last saved."""
    replay = make(sampler, capacity)
    drive, on_disk, segments = Drive(replay), {}, []
    for operation, save in [*operations, ((0, 1, "open", "go on"), True)]:
        drive.do(*operation)
        if save:
            living = {int(row["id"]): row.tobytes() for row in stored(replay)}
            segments.append(saved(replay))
            ids = segments[-1]["id"].tolist()
            assert sorted(ids) == [id_ for id_, row in living.items() if on_disk.get(id_) != row]
            assert all(living[id_] == row.tobytes() for id_, row in zip(ids, segments[-1], strict=True))
            assert replay.unsaved().shape == (0,)
            on_disk = living
    loaded = make(sampler, capacity, seed=9)
    loaded.load_state(replace(taken(replay), rows=segments))
    assert digest(loaded) == digest(replay)


def test_what_is_saved_of_a_row_again_by_hand():
    """One row a step: 0 1 2 of stream 0 with head 2; then the head acts and the stream ends from outside."""
    replay = make(capacity=10)
    replay.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2, carry_shape=(2,)))
    assert saved(replay)["id"].tolist() == [0, 1, 2]
    replay.add(make_segment(VECTOR, stream=0, episode=0, start=2, length=1, carry_shape=(2,)))
    assert saved(replay)["id"].tolist() == [2, 3], "the head has got its action, and there is a new one"
    replay.close(0)
    assert saved(replay)["id"].tolist() == [2], "its last transition is truncated now"
    assert saved(replay)["id"].tolist() == []
    replay.add(make_segment(VECTOR, stream=0, episode=1, start=0, length=8, carry_shape=(2,)))
    assert [part.rows for part in replay.saved_files] == [2, 1, 0], "the row 3 lives, 0 to 2 do not"
    replay.forget_saved()
    assert saved(replay)["id"].tolist() == [*range(3, 13)]


def test_carries_are_saved_whole_once_saved_ones_have_been_refreshed():
    replay = make(capacity=10)
    replay.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=4, carry_shape=(2,)))
    refresh(replay, 0, 1, 2)
    assert "carry" not in replay.state().arrays, "they are about to be saved with their rows"
    segments = [saved(replay)]
    assert "carry" not in replay.state().arrays
    refresh(replay, 1, 2, 3)
    replay.add(make_segment(VECTOR, stream=0, episode=0, start=4, length=2, carry_shape=(2,)))
    segments.append(saved(replay))
    state = replace(taken(replay), rows=segments)
    loaded = make(capacity=10)
    loaded.load_state(state)
    assert digest(loaded) == digest(replay)
    loaded.mark_saved(replay.saved_files)
    assert "carry" in loaded.state().arrays, "the files still hold the old ones"
    loaded.forget_saved()
    assert "carry" not in loaded.state().arrays


@given(operations=OPERATIONS, more=OPERATIONS, sampler=st.sampled_from(SAMPLERS))
def test_a_larger_replay_takes_all_and_nothing_comes_back_to_life(operations, more, sampler):
    """Window by window, against the smaller one; its ids may be larger by as many rows as it has lost."""
    small, large = make(sampler), make(sampler, 250, seed=9)
    drive = Drive(small)
    for operation in operations:
        drive.do(*operation)
    large.load_state(taken(small))
    shift = small.next_id - large.next_id
    assert shift == max(small.next_id - 20, 0)
    assert large.num_transitions == small.num_transitions and large.ready == small.ready
    anchors = small.spread(100)
    assert (large.spread(100) + shift).tolist() == anchors.tolist()
    ours, theirs = small.windows(anchors), large.windows(anchors - shift)
    theirs.ids[theirs.ids >= 0] += shift
    assert batches_equal(ours, theirs)
    past = large.windows(anchors - shift)
    heads = {stream: (id_, step) for stream, id_, step in small.state().meta["streams"] if id_ >= shift}
    drive.replays = (large,)
    for operation in more:
        id_, step = heads.pop(operation[0], (-1, -1))
        goes_on, new = drive.at(operation[0]) == step, large.next_id
        ((first, *_),) = drive.do(*operation)
        if step >= 0:
            assert first == (id_ - shift if goes_on else new)
        assert first >= 0
    now = large.windows(anchors - shift)
    for name in ("prev_action", "step", "obs_valid", "ids"):
        assert getattr(past, name)[:, :3].equal(getattr(now, name)[:, :3]), name
    assert past.carry.equal(now.carry) and past.obs["obs"][:, :3].equal(now.obs["obs"][:, :3])


def test_a_stream_whose_newest_row_is_lost_begins_anew_in_a_larger_replay():
    """Its step fits, and its id, smaller than any, would seem to be alive: ids begin at 0 there."""
    small, large = make(capacity=20), make(capacity=250)
    drive = Drive(small)
    drive.do(1, 2, "open", "go on")
    for _ in range(30):
        drive.do(0, 1, "open", "go on")
    large.load_state(taken(small))
    drive.replays = (large,)
    assert drive.do(1, 1, "open", "go on") == [[20]]
    assert large.windows(np.array([20])).obs_valid.tolist() == [[False, False, True, True, False, False]]


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    state = filled(PrioritizedSampler()).state()

    def refused(message, spec=VECTOR, capacity=200, sampler=PrioritizedSampler, **kwargs) -> None:
        replay = ReplayBuffer(spec, capacity=capacity, batch_size=4, sampler=sampler(), **kwargs)
        replay.add(make_segment(spec, stream=0, episode=0, start=0, length=3, **kwargs))
        before = digest(replay)
        with pytest.raises(ValueError, match=message):
            replay.load_state(state)
        assert digest(replay) == before

    refused("replay_config.capacity is 199, too small .* 200 rows", capacity=199)
    refused("column byte: expected .*, None was saved", spec=MIXED)
    refused(r"column carry: expected \[2, 'float32'\], None was saved", carry_shape=(2,))
    refused("another sampler than UniformSampler: set sac_config.use_priority", sampler=UniformSampler)
    state = filled(UniformSampler()).state()
    refused("another sampler than PrioritizedSampler")


def test_data_that_cannot_be_right_is_refused():
    original = filled(PrioritizedSampler(), lengths=(5,))
    state = taken(original)
    (rows,) = state.rows

    def refused(message, **changes) -> None:
        with pytest.raises(ValueError, match=message):
            filled(PrioritizedSampler(), lengths=()).load_state(replace(state, **changes))

    refused("1 of 6 rows are missing", rows=[rows[:2], rows[3:]])
    refused("6 of 6 rows are missing", rows=[])
    ahead = rows.copy()
    ahead["id"][0] = 6
    refused("there is a row 6, the next one would be 6", rows=[ahead])
    short = {"priority": replace(state.arrays["priority"], shape=(5,))}
    refused("priorities for 6 rows", arrays=short)
    bad = {"priority": replace(state.arrays["priority"], chunks=[np.full(6, np.nan)])}
    refused("finite", arrays=bad)


def test_rows_of_negative_ids_are_no_rows():
    """Whoever writes such a file changes nothing."""
    original = filled(UniformSampler(), lengths=(5,))
    state = taken(original)
    (rows,) = state.rows
    stray = rows[:1].copy()
    stray["id"], stray["real"] = -1, 9.0
    loaded = filled(UniformSampler(), lengths=())
    loaded.load_state(replace(state, rows=[rows, stray]))
    assert digest(loaded) == digest(original)


def test_what_stands_on_a_device_is_copied_there_anew_when_a_replay_is_loaded():
    def make(episode: int) -> ReplayBuffer:
        sizes = {"capacity": 20, "batch_size": 4, "sampler": UniformSampler(), "device": torch.device("cpu")}
        replay = ReplayBuffer(DISCRETE, **sizes)
        replay.add(make_segment(DISCRETE, stream=0, episode=episode, start=0, length=9, terminated=True))
        return replay

    saved, other = make(1), make(2)
    assert other.sample() is not None  # its rows are on the device now
    other.load_state(saved.state())
    assert batches_equal(saved.sample(), other.sample())
