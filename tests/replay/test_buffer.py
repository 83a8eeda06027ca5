"""The replay as its users see it: draws, weights, feedback, saved state."""

import numpy as np
import pytest
import torch

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay.buffer import FifoSampler, PrioritizedSampler, ReplayBuffer, UniformSampler
from tests.oracles_replay import (
    MIXED,
    VECTOR,
    NaiveReplay,
    assert_batch_equals,
    digest,
    make_segment,
    stored,
)
from tests.replay.buffers import filled, result


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])
def test_none_until_a_batch_of_transitions_is_there(sampler):
    buffer = ReplayBuffer(VECTOR, capacity=50, batch_size=8, sampler=sampler())
    for step in range(7):
        buffer.add(make_segment(VECTOR, stream=0, episode=0, start=step, length=1))
        assert buffer.sample() is None
    buffer.add(make_segment(VECTOR, stream=0, episode=0, start=7, length=1))
    assert buffer.num_transitions == 8 and len(buffer) == 9
    batch = buffer.sample()
    assert batch is not None and batch.reward.shape == (8, 1) and batch.weight.tolist() == [1.0] * 8


def test_adding_returns_the_ids_of_the_new_transitions():
    buffer = ReplayBuffer(VECTOR, capacity=7, batch_size=1, sampler=UniformSampler())

    def add(stream, start, length):
        return buffer.add(make_segment(VECTOR, stream=stream, episode=0, start=start, length=length)).tolist()

    assert add(0, 0, 2) == [0, 1]  # head 2
    assert add(1, 0, 1) == [3]  # head 4
    assert add(0, 2, 2) == [2, 5]  # head 6
    assert add(1, 1, 3) == [4, 7, 8]  # head 9; the ring has wrapped


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])
def test_windows_of_ids_are_the_oracles_and_weigh_one(sampler):
    sizes = {"burn_in": 1, "learn": 2, "n_step": 2}
    buffer = ReplayBuffer(MIXED, capacity=20, batch_size=4, sampler=sampler(), **sizes)
    naive = NaiveReplay(MIXED, 20, **sizes)
    for t in range(30):
        at = t % 8
        segment = make_segment(MIXED, stream=0, episode=t // 8, start=at, length=1, terminated=at == 7)
        ids = buffer.add(segment)
        naive.add(segment)
        batch = buffer.windows(ids)
        assert batch.weight.tolist() == [1.0]
        assert_batch_equals(batch, naive, ids.tolist())
    anchors = naive.transitions()
    assert_batch_equals(buffer.windows(np.array(anchors[::-1])), naive, anchors[::-1])


@pytest.mark.parametrize("id_", [-1, 1, 3, 7, 8, 14])
def test_windows_of_what_is_no_living_transition_are_refused(id_):
    buffer = filled(UniformSampler(), capacity=6, lengths=(3, 3), batch_size=1)  # rows 2 … 7; 3 and 7 final
    assert buffer.windows(np.array([2, 4, 5, 6])).valid.all()
    with pytest.raises(ValueError, match=rf"\[{id_}\]"):
        buffer.windows(np.array([2, id_]))


def test_td_errors_at_insertion_become_priorities():
    sampler = PrioritizedSampler(alpha=1.0, td_error_min=0.0, td_error_max=10.0)
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=1, burn_in=1, n_step=2, sampler=sampler)
    for start, td in enumerate([3.0, 5.0]):
        batch = buffer.windows(buffer.add(make_segment(VECTOR, stream=0, episode=0, start=start, length=1)))
        buffer.feedback(result(batch.ids, [td], anchor=1))
    assert sampler.tree.leaves[:3].tolist() == [3.0, 5.0, 0.0]


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])
def test_every_stored_transition_is_ready(sampler):
    buffer = filled(sampler(), capacity=6, lengths=(3, 3), batch_size=1)
    assert buffer.ready == buffer.num_transitions == 4


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])
def test_sampled_windows_equal_the_oracles_while_the_ring_wraps(sampler):
    sizes = {"burn_in": 2, "learn": 2, "n_step": 2}
    buffer = ReplayBuffer(
        MIXED, capacity=60, batch_size=8, carry_shape=(3,), sampler=sampler(), seed=1, **sizes
    )
    naive = NaiveReplay(MIXED, 60, **sizes)
    for t in range(150):
        for stream in range(2):
            segment = make_segment(
                MIXED,
                stream=stream,
                episode=t // 11,
                start=t % 11,
                length=1,
                terminated=t % 11 == 10,
                carry_shape=(3,),
            )
            buffer.add(segment)
            naive.add(segment)
        batch = buffer.sample()
        if batch is not None and t % 5 == 0:
            assert set(batch.anchor.tolist()) == {2, 3}, "the first learned position and the last"
            given = result(batch.ids, np.linspace(0, 2, 8), anchor=batch.anchor)
            anchors, places = given.anchor_ids.tolist(), (batch.anchor - 2).tolist()
            assert_batch_equals(batch, naive, anchors, places)
            buffer.feedback(given)


def test_uniform_sampling_is_uniform_over_transitions():
    buffer = filled(UniformSampler(), capacity=100, lengths=(1, 5, 2, 30, 1, 1, 1, 50, 20), seed=0)
    counts, rounds = np.zeros(500), 2000
    for _ in range(rounds):
        batch = buffer.sample()
        np.add.at(counts, batch.ids[:, 0].numpy(), 1)
        assert batch.valid.all()
    drawn = counts[counts > 0]
    assert len(drawn) == buffer.num_transitions
    expected = 16 * rounds / len(drawn)
    chi2, freedom = ((drawn - expected) ** 2 / expected).sum(), len(drawn) - 1
    assert abs(chi2 - freedom) < 4 * np.sqrt(2 * freedom)


def test_a_new_transition_gets_the_largest_priority_handed_back():
    sampler = PrioritizedSampler(alpha=0.5, td_error_min=0.01, td_error_max=4.0)
    buffer = filled(sampler, lengths=(3,), batch_size=1)
    assert sampler.tree.leaves[:4].tolist() == [2.0, 2.0, 2.0, 0.0]  # 4^0.5 before the first feedback
    buffer.feedback(result([0, 1], [0.25, 1.0]))
    buffer.add(make_segment(VECTOR, stream=0, episode=1, start=0, length=1, terminated=True))
    assert sampler.tree.leaves[:6].tolist() == [0.5, 1.0, 2.0, 0.0, 1.0, 0.0]
    buffer.feedback(result([4], [0.25]))  # the largest so far stays
    buffer.add(make_segment(VECTOR, stream=0, episode=2, start=0, length=1))
    assert sampler.tree.leaves[4:8].tolist() == [0.5, 0.0, 1.0, 0.0]


def test_priorities_are_clipped_td_errors_to_the_power_of_alpha():
    sampler = PrioritizedSampler(alpha=0.5, td_error_min=0.04, td_error_max=1.0)
    buffer = filled(sampler, lengths=(4,), batch_size=1)
    buffer.feedback(result([0, 1, 2, 3], [0.0, 0.25, 9.0, -0.25]))
    np.testing.assert_allclose(sampler.tree.leaves[:5], [0.2, 0.5, 1.0, 0.5, 0.0])


def test_a_segments_own_priorities_are_used():
    sampler = PrioritizedSampler(alpha=1.0, td_error_min=0.0, td_error_max=10.0)
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=1, sampler=sampler)
    td = np.array([1.0, 3.0], np.float32)
    buffer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2, priority=td))
    assert sampler.tree.leaves[:3].tolist() == [1.0, 3.0, 0.0]
    bad = make_segment(
        VECTOR, stream=0, episode=0, start=2, length=1, priority=np.array([np.nan], np.float32)
    )
    with pytest.raises(ValueError, match="not finite"):
        buffer.add(bad)
    assert len(buffer) == 3


def test_weights_by_hand():
    """p = 1, 4 and beta 0.5: weights (p/1)^-0.5 = 1, 1/2; one sampling later beta is 0.75: 1, 4^-0.75."""
    sampler = PrioritizedSampler(
        alpha=1.0, beta=0.5, beta_increment=0.25, td_error_min=0.0, td_error_max=10.0
    )
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=2, sampler=sampler)
    td = np.array([1.0, 4.0], np.float32)
    buffer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2, priority=td))
    for beta in (0.5, 0.75, 1.0, 1.0):
        batch = buffer.sample()
        assert batch.weight.dtype == torch.float32
        # The upper half of the mass is all the second's; the lower half may fall to either.
        anchors = batch.ids[:, 0].tolist()
        smallest = min(td[anchors])
        np.testing.assert_allclose(batch.weight, (td[anchors] / smallest) ** -beta, rtol=1e-6)
    assert sampler.beta == 1.0


@pytest.mark.parametrize("alone", [UniformSampler, FifoSampler])
def test_beta_is_annealed_to_one(alone):
    """From where it began, whatever it is now: the same share of a run always means the same."""
    sampler = PrioritizedSampler(beta=0.5)
    buffer = filled(sampler)
    for done, beta in ((0.0, 0.5), (0.5, 0.75), (1.0, 1.0), (1.2, 1.0), (0.1, 0.55)):
        buffer.anneal(done)
        assert sampler.beta == pytest.approx(beta)
        buffer.sample()
        assert sampler.beta == pytest.approx(beta)
    filled(alone()).anneal(0.5)  # there are no weights


def test_feedback_reaches_the_anchor_only():
    sampler = PrioritizedSampler(alpha=1.0, td_error_min=0.0, td_error_max=10.0)
    buffer = filled(sampler, lengths=(5,), batch_size=1, burn_in=1)
    buffer.feedback(result([[0, 1, 2]], [3.0], anchor=1))
    assert sampler.tree.leaves[:6].tolist() == [10.0, 3.0, 10.0, 10.0, 10.0, 0.0]


def test_feedback_reaches_the_anchor_of_each_window():
    sampler = PrioritizedSampler(alpha=1.0, td_error_min=0.0, td_error_max=10.0)
    buffer = filled(sampler, lengths=(5,), batch_size=1, learn=2)
    buffer.feedback(result([[0, 1, 2], [2, 3, 4]], [3.0, 4.0], anchor=[1, 0]))
    assert sampler.tree.leaves[:6].tolist() == [10.0, 3.0, 4.0, 10.0, 10.0, 0.0]


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler, FifoSampler])
def test_an_anchor_is_each_learned_position_as_often_and_exists(sampler):
    buffer = filled(sampler(), capacity=4000, lengths=(12,) * 250, burn_in=2, learn=3, batch_size=100)
    drawn = [buffer.sample() for _ in range(25)]
    columns = np.concatenate([batch.anchor.numpy() for batch in drawn])
    counts = np.bincount(columns, minlength=6)
    assert not counts[:2].any() and not counts[5] and abs(counts[2:5] - 2500 / 3).max() < 120
    for batch in drawn:
        assert batch.valid.gather(1, batch.anchor[:, None]).all()


def test_feedback_to_overwritten_rows_is_ignored():
    sampler = PrioritizedSampler(alpha=1.0, td_error_min=0.0, td_error_max=10.0)
    buffer = filled(sampler, capacity=6, lengths=(3, 3), batch_size=1)  # rows 2 … 7 are alive
    before = sampler.tree.leaves.copy()
    buffer.feedback(result([0, 1, -1], [5.0, 5.0, 5.0]))
    np.testing.assert_array_equal(sampler.tree.leaves, before)
    buffer.feedback(result([1, 2], [5.0, 7.0]))
    assert sampler.tree.leaves[2] == 7.0 and sampler.tree.leaves[1] == before[1]
    buffer.add(make_segment(VECTOR, stream=0, episode=2, start=0, length=1))
    assert sampler.tree.leaves[2] == 7.0  # slots 2 and 3 were written: 7 is the largest handed back
    assert sampler.tree.leaves[3] == 0.0


def test_feedback_to_padding_is_ignored():
    sampler = PrioritizedSampler()
    buffer = filled(sampler, capacity=50, lengths=(3,), batch_size=1)
    buffer.feedback(result([-1], [0.5]))
    assert np.flatnonzero(sampler.tree.leaves).tolist() == [0, 1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])
def test_a_td_error_that_is_not_finite_is_an_error_and_changes_nothing(sampler, bad):
    buffer = filled(sampler())
    before = digest(buffer)
    with pytest.raises(FloatingPointError, match="1 of 2 TD errors"):
        buffer.feedback(result([0, 1], [0.5, bad]))
    assert digest(buffer) == before


def test_priorities_of_zero_everywhere_draw_uniformly():
    sampler = PrioritizedSampler(td_error_min=0.0)
    buffer = filled(sampler, lengths=(20,))
    buffer.feedback(result(np.arange(20), np.zeros(20)))
    assert sampler.tree.total == 0.0
    batch = buffer.sample()
    assert batch.valid.all() and batch.weight.tolist() == [1.0] * 16


def test_final_and_head_rows_are_never_anchors():
    buffer = filled(PrioritizedSampler(), lengths=(1,) * 30)
    buffer.add(make_segment(VECTOR, stream=1, episode=0, start=0, length=1))
    for _ in range(50):
        batch = buffer.sample()
        assert batch.valid.all() and (batch.ids[:, 0] % 2 == 0).all()


@pytest.mark.parametrize(
    ("window", "changed"),
    [
        ([-1, -1, 4, 5, 6], {5, 6}),  # from an episode's start on
        ([4, 5, 6, 7, -1], {5, 6, 7}),
        ([-1, 5, 6, 7, -1], {6, 7}),  # the row before is there: its action is known
        ([-1, -1, -1, 2, 3], set()),  # rows 0 and 1 have been overwritten before the window was cut
        ([-1, -1, 1, 2, 3], set()),  # row 1 since then
        ([-1, -1, -1, -1, -1], set()),
    ],
)
def test_refreshed_carries_reach_living_rows_behind_a_known_beginning(window, changed):
    """Two episodes of four rows each, 0 … 3 and 4 … 7, in a ring of six."""
    buffer = filled(UniformSampler(), capacity=6, lengths=(3, 3), carry_shape=(2,), batch_size=1)
    before = stored(buffer)["carry"]
    carry = 10.0 + torch.arange(10.0).reshape(1, 5, 2)
    buffer.refresh_carry(result([window], [0.0], carry=carry))
    after = stored(buffer)["carry"]
    for id_ in range(2, 8):
        value = carry[0, window.index(id_)].tolist() if id_ in changed else before[id_ - 2].tolist()
        assert after[id_ - 2].tolist() == value, id_


def test_a_windows_first_carry_does_not_undo_what_another_refreshed():
    buffer = filled(UniformSampler(), capacity=10, lengths=(4,), carry_shape=(1,), batch_size=1)
    carry = torch.tensor([[[1.0], [2.0], [3.0]], [[8.0], [4.0], [5.0]]])
    buffer.refresh_carry(result([[0, 1, 2], [1, 2, 3]], [0.0, 0.0], carry=carry))
    assert stored(buffer)["carry"][1:4, 0].tolist() == [2.0, 4.0, 5.0]


def test_a_replay_without_carries_has_nothing_to_refresh():
    with pytest.raises(ValueError, match="refresh_carry"):
        filled(UniformSampler(), batch_size=1).refresh_carry(result([[0]], [0.0]))


def test_stored_carries_are_read_by_row_and_nothing_is_read_of_dead_ones():
    buffer = filled(UniformSampler(), capacity=6, lengths=(3, 3), carry_shape=(1, 2), batch_size=1)
    known = stored(buffer)["carry"]
    found = buffer.carries(np.array([[-1, 1, 2], [7, 4, 0]]))
    assert found.shape == (2, 3, 1, 2)
    assert not found[0, :2].any() and not found[1, 2].any(), "0 and 1 have been overwritten"
    assert np.array_equal(found[0, 2, 0], known[0]) and np.array_equal(found[1, 0, 0], known[5])
    found[:] = 9.0
    assert (stored(buffer)["carry"] < 9.0).all()


def test_spread_transitions_go_from_the_oldest_to_the_newest():
    buffer = filled(UniformSampler(), capacity=8, lengths=(3, 3, 3), batch_size=1)
    # Rows 4 … 11 live; 7 and 11 are final rows, and 4 … 6 and 8 … 10 transitions.
    assert buffer.spread(100).tolist() == [4, 5, 6, 8, 9, 10]
    assert buffer.spread(3).tolist() == [4, 6, 10]
    assert buffer.spread(1).tolist() == [4]


def test_close_ends_an_episode_early():
    buffer = ReplayBuffer(VECTOR, capacity=10, batch_size=1, n_step=3, sampler=UniformSampler())
    buffer.add(make_segment(VECTOR, stream=7, episode=0, start=0, length=2))
    buffer.close(7)
    buffer.add(make_segment(VECTOR, stream=7, episode=1, start=0, length=1))
    batch = buffer.sample()
    assert buffer.num_transitions == 3 and not batch.terminated.any()
    assert buffer.state().meta["streams"] == [[7, 4, 1]]


def test_bytes_per_row_stay_below_seven_tenths_of_two_stored_observations():
    spec = AgentSpec(ObsSpec(("obs",), ((17,),), ("float32",)), ActionSpec((), 6))
    buffer = ReplayBuffer(spec, capacity=2**19, batch_size=256, sampler=PrioritizedSampler())
    two_observations = 4 * (2 * 17 + 6 + 3)  # obs, next obs, action, reward, done, time-out as float32
    assert buffer.bytes_per_row <= 0.7 * two_observations
    assert buffer.nbytes == pytest.approx(buffer.bytes_per_row * 2**19)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"batch_size": 0}, "batch_size"), ({"batch_size": 10}, "could never"), ({"burn_in": -1}, "burn_in")],
)
def test_sizes_that_make_no_sense_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(VECTOR, **{"capacity": 10, "batch_size": 4, "sampler": UniformSampler(), **kwargs})


@pytest.mark.parametrize(
    "kwargs",
    [
        {"alpha": -0.1},
        {"alpha": np.nan},
        {"beta": 1.1},
        {"beta_increment": -1.0},
        {"td_error_min": -0.1},
        {"td_error_max": 0.001},
        {"td_error_max": np.inf},
        {"td_error_min": 0.0, "td_error_max": 0.0},
    ],
)
def test_priority_settings_out_of_range_are_refused(kwargs):
    with pytest.raises(ValueError, match="prioritised replay needs"):
        PrioritizedSampler(**kwargs)
