"""A replay that is saved and loaded goes on as if nothing had happened, and knows what of it is on disk."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler, layout
from algorithm.replay.layout import SegmentFile
from tests.lib.buffers import OPERATION, OPERATIONS, Script, batches_equal, filled, result
from tests.lib.oracles_replay import DISCRETE, MIXED, VECTOR, digest, make_segment, stored, taken, whole

SAMPLERS = [PrioritizedSampler, UniformSampler, FifoSampler]


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
    replay.refresh_carry(result(torch.tensor([ids]), [0.0], carry=torch.rand(1, len(ids), 2)))


@pytest.mark.parametrize("chunk", [1, 500, layout.CHUNK_BYTES], ids=["rows", "few rows", "all rows"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("used_before", [False, True])
def test_saved_state_goes_on_with_the_same_batches(sampler, used_before, chunk, monkeypatch):
    monkeypatch.setattr(layout, "CHUNK_BYTES", chunk)
    sizes = {"spec": MIXED, "capacity": 100, "carry_shape": (2,), "burn_in": 1, "learn": 3, "n_step": 2}
    original = filled(sampler(), lengths=(30, 40, 20, 25), **sizes, seed=5)
    script = Script(MIXED, (2,))
    script.do((4, 3, "open", "go on"), original)
    batch = original.sample()
    original.feedback(result(batch.ids, np.linspace(0, 0.5, 16), anchor=batch.anchor))
    other = filled(sampler(), lengths=(60, 60, 60) if used_before else (), **sizes, seed=6)
    other.load_state(taken(original))
    for t in range(20):
        assert digest(other) == digest(original)
        script.do((4, 1, "open", "go on"), original, other)
        ours, theirs = original.sample(), other.sample()
        if ours is None:  # each transition has been drawn
            continue
        assert batches_equal(ours, theirs)
        for buffer in (original, other):
            buffer.feedback(result(ours.ids, np.linspace(0, 0.4, 16) / (t + 1), anchor=ours.anchor))


@given(
    operations=st.lists(st.tuples(OPERATION, st.booleans()), min_size=1, max_size=30),
    capacity=st.integers(6, 40),
    sampler=st.sampled_from(SAMPLERS),
)
def test_each_save_holds_just_what_has_changed_and_all_of_them_are_the_replay(operations, capacity, sampler):
    """Against a copy of every record as it stood when it was last saved."""
    replay, script, on_disk, segments = make(sampler, capacity), Script(), {}, []
    for operation, save in [*operations, ((0, 1, "open", "go on"), True)]:
        script.do(operation, replay)
        if save:
            living = {int(row["id"]): row.tobytes() for row in stored(replay)}
            segments.append(saved(replay))
            assert {int(row["id"]): row.tobytes() for row in segments[-1]} == {
                id_: row for id_, row in living.items() if on_disk.get(id_) != row
            }
            assert replay.unsaved().shape == (0,)
            on_disk = living
    loaded = make(sampler, capacity, seed=9)
    loaded.load_state(replace(taken(replay), rows=segments))
    assert digest(loaded) == digest(replay)


def test_what_is_saved_of_a_row_again_by_hand():
    """One row a step: 0 1 2 of stream 0 with head 2; then the head acts and the stream ends from outside."""
    replay, script = make(capacity=10), Script()
    for operation, rows in (
        ((0, 2, "open", "go on"), [0, 1, 2]),
        ((0, 1, "open", "go on"), [2, 3]),  # the head has got its action, and there is a new one
        ((0, 1, "open", "close"), [3, 4]),  # its last transition is truncated
        ((0, 8, "open", "go on"), [*range(5, 14)]),
    ):
        script.do(operation, replay)
        assert saved(replay)["id"].tolist() == rows
    assert [part.rows for part in replay.saved_files] == [2, 9], "the row 4 lives, 0 to 3 do not"
    assert saved(replay)["id"].tolist() == []
    replay.forget_saved()
    assert saved(replay)["id"].tolist() == [*range(4, 14)]


def test_carries_are_saved_whole_once_saved_ones_have_been_refreshed():
    replay, script = make(capacity=10), Script()
    script.do((0, 4, "open", "go on"), replay)
    refresh(replay, 0, 1, 2)
    assert "carry" not in replay.state().arrays, "they are about to be saved with their rows"
    segments = [saved(replay)]
    refresh(replay, 1, 2, 3)
    script.do((0, 2, "open", "go on"), replay)
    segments.append(saved(replay))
    loaded = make(capacity=10)
    loaded.load_state(replace(taken(replay), rows=segments))
    assert digest(loaded) == digest(replay)
    loaded.mark_saved(replay.saved_files)
    assert "carry" in loaded.state().arrays, "the files still hold the old ones"
    loaded.forget_saved()
    assert "carry" not in loaded.state().arrays


@given(operations=OPERATIONS, more=OPERATIONS, sampler=st.sampled_from(SAMPLERS))
def test_a_larger_replay_takes_all_and_nothing_comes_back_to_life(operations, more, sampler):
    """Window by window, against the smaller one; its ids may be larger by as many rows as it has lost."""
    small, large, script = make(sampler), make(sampler, 250, seed=9), Script()
    for operation in operations:
        script.do(operation, small)
    large.load_state(taken(small))
    shift = small.next_id - large.next_id
    assert shift == max(small.next_id - 20, 0) and large.ready == small.ready
    anchors = small.spread(100)
    assert (large.spread(100) + shift).tolist() == anchors.tolist()
    ours, theirs = small.windows(anchors), large.windows(anchors - shift)
    theirs.ids[theirs.ids >= 0] += shift
    assert batches_equal(ours, theirs)
    past = large.windows(anchors - shift)
    # The head row of a stream may have been overwritten: then a new chain begins.
    heads = {stream: (id_, step) for stream, id_, step in small.state().meta["streams"] if id_ >= shift}
    for operation in more:
        id_, step = heads.pop(operation[0], (-1, -1))
        goes_on = script.at.get(operation[0], (0, 0))[1] == step
        first = id_ - shift if goes_on else large.next_id
        ((found, *_),) = script.do(operation, large)
        assert found == first or step < 0 <= found
    now = large.windows(anchors - shift)
    for name in ("prev_action", "step", "obs_valid", "ids"):
        assert getattr(past, name)[:, :3].equal(getattr(now, name)[:, :3]), name
    assert past.carry.equal(now.carry) and past.obs["obs"][:, :3].equal(now.obs["obs"][:, :3])


@pytest.mark.parametrize(
    ("saved_by", "loaded_by", "spec", "sizes", "named"),
    [
        (PrioritizedSampler, PrioritizedSampler, VECTOR, {"capacity": 199}, "replay_config.capacity"),
        (PrioritizedSampler, PrioritizedSampler, MIXED, {}, "column acted: expected .*, .* was saved"),
        (PrioritizedSampler, PrioritizedSampler, VECTOR, {"carry_shape": (2,)}, "column carry"),
        (PrioritizedSampler, UniformSampler, VECTOR, {}, "sac_config.use_priority"),
        (UniformSampler, PrioritizedSampler, VECTOR, {}, "another sampler than PrioritizedSampler"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(saved_by, loaded_by, spec, sizes, named):
    replay = filled(loaded_by(), lengths=(3,), spec=spec, batch_size=4, **sizes)
    before = digest(replay)
    with pytest.raises(ValueError, match=named):
        replay.load_state(filled(saved_by()).state())
    assert digest(replay) == before


def test_data_that_cannot_be_right_is_refused():
    original = filled(PrioritizedSampler(), lengths=(5,))
    state = taken(original)
    (rows,), priority = state.rows, state.arrays["priority"]
    ahead, stray = rows.copy(), rows[:1].copy()
    ahead["id"][0] = 6
    for named, changes in (
        ("1 of 6 rows are missing", {"rows": [rows[:2], rows[3:]]}),
        ("6 of 6 rows are missing", {"rows": []}),
        ("there is a row 6", {"rows": [ahead]}),
        ("priorities for 6 rows", {"arrays": {"priority": replace(priority, shape=(5,))}}),
        ("finite", {"arrays": {"priority": replace(priority, chunks=[np.full(6, np.nan)])}}),
    ):
        with pytest.raises(ValueError, match=named):
            filled(PrioritizedSampler(), lengths=()).load_state(replace(state, **changes))
    stray["id"], stray["acted"] = -1, 9.0  # rows of negative ids are none
    loaded = filled(PrioritizedSampler(), lengths=())
    loaded.load_state(replace(state, rows=[rows, stray]))
    assert digest(loaded) == digest(original)


def test_what_stands_on_a_device_is_copied_there_anew_when_a_replay_is_loaded():
    replays = []
    for episode in (1, 2):
        replay = ReplayBuffer(
            DISCRETE, capacity=20, batch_size=4, sampler=UniformSampler(), device=torch.device("cpu")
        )
        replay.add(make_segment(DISCRETE, stream=0, episode=episode, start=0, length=9, terminated=True))
        replays.append(replay)
    one, other = replays
    assert other.sample() is not None  # its rows are on the device now
    other.load_state(one.state())
    assert batches_equal(one.sample(), other.sample())
