"""The replay as its users see it: draws, weights, feedback."""

import numpy as np
import pytest
import torch

from algorithm.ops.shapes import window_share
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import FifoSampler, PrioritizedSampler, UniformSampler
from tests.lib.buffers import Script, filled, result
from tests.lib.oracles_replay import (
    MIXED,
    VECTOR,
    NaiveReplay,
    assert_batch_equals,
    digest,
    make_segment,
    stored,
)

BOTH = pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler])


def linear(**options: float) -> PrioritizedSampler:
    """A priority is the TD error."""
    return PrioritizedSampler(**{"alpha": 1.0, "td_error_min": 0.0, "td_error_max": 10.0, **options})


@BOTH
def test_none_until_a_batch_of_transitions_is_there(sampler):
    buffer = filled(sampler(), lengths=(7,), batch_size=8)
    assert buffer.sample() is None and buffer.ready == 7
    ids = buffer.add(make_segment(VECTOR, stream=0, episode=1, start=0, length=1))
    assert ids.tolist() == [8] and len(buffer) == 10 and buffer.ready == buffer.num_transitions == 8
    batch = buffer.sample()
    assert batch.reward.shape == (8, 1) and batch.weight.tolist() == [1.0] * 8


@pytest.mark.parametrize("id_", [-1, 1, 3, 7, 8, 14])
def test_windows_of_what_is_no_living_transition_are_refused(id_):
    buffer = filled(UniformSampler(), capacity=6, lengths=(3, 3), batch_size=1)  # rows 2 … 7; 3 and 7 final
    assert buffer.windows(np.array([2, 4, 5, 6])).valid.all()
    with pytest.raises(ValueError, match=rf"\[{id_}\]"):
        buffer.windows(np.array([2, id_]))


def test_uniform_sampling_is_uniform_over_transitions():
    buffer = filled(UniformSampler(), capacity=100, lengths=(1, 5, 2, 30, 1, 1, 1, 50, 20))
    ids = torch.cat([buffer.sample().ids[:, 0] for _ in range(1000)])
    drawn = np.bincount(ids.numpy())[-100:]
    drawn = drawn[drawn > 0]
    expected, freedom = len(ids) / buffer.num_transitions, buffer.num_transitions - 1
    assert len(drawn) == buffer.num_transitions
    assert abs(((drawn - expected) ** 2 / expected).sum() - freedom) < 4 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("sampler", [PrioritizedSampler, UniformSampler, FifoSampler])
def test_an_anchor_is_each_learned_position_as_often_and_exists(sampler):
    buffer = filled(sampler(), capacity=4000, lengths=(12,) * 250, burn_in=2, learn=3, batch_size=2500)
    batch = buffer.sample()
    counts = np.bincount(batch.anchor.numpy(), minlength=6)
    assert not counts[:2].any() and not counts[5] and abs(counts[2:5] - 2500 / 3).max() < 120
    assert batch.valid.gather(1, batch.anchor[:, None]).all()


def test_a_new_transition_gets_the_largest_priority_handed_back():
    sampler = PrioritizedSampler(alpha=0.5, td_error_min=0.04, td_error_max=4.0)
    buffer, script = filled(sampler, lengths=(3,), batch_size=1), Script(VECTOR, (0,))
    assert sampler.tree.leaves[:4].tolist() == [2.0, 2.0, 2.0, 0.0]  # 4^0.5 before the first feedback
    buffer.feedback(result([0, 1, 2], [-0.25, 1.0, 0.0]))
    script.do((1, 1, "terminated", "go on"), buffer)
    assert sampler.tree.leaves[:6].tolist() == [0.5, 1.0, 0.2, 0.0, 1.0, 0.0]
    buffer.feedback(result([0, 1, 4], [9.0, 0.25, 0.25]))
    buffer.feedback(result([0], [0.25]))  # the largest so far stays: 9, limited to 4
    script.do((1, 1, "open", "go on"), buffer)
    assert sampler.tree.leaves[:8].tolist() == [0.5, 0.5, 0.2, 0.0, 0.5, 0.0, 2.0, 0.0]


def test_weights_by_hand():
    """p = 1, 4 and beta 0.5: weights (p/1)^-0.5 = 1, 1/2; one sampling later beta is 0.75: 1, 4^-0.75."""
    sampler, td = linear(beta=0.5, beta_increment=0.25), np.array([1.0, 4.0], np.float32)
    buffer = filled(sampler, lengths=(), batch_size=2)
    buffer.add(make_segment(VECTOR, stream=0, episode=0, start=0, length=2))
    buffer.feedback(result([0, 1], td))
    for beta in (0.5, 0.75, 1.0, 1.0):
        batch = buffer.sample()
        # The upper half of the mass is all the second's; the lower half may fall to either.
        anchors = batch.ids[:, 0].tolist()
        np.testing.assert_allclose(batch.weight, (td[anchors] / min(td[anchors])) ** -beta, rtol=1e-6)
    assert sampler.beta == 1.0


def test_beta_is_annealed_to_one():
    """From where it began, whatever it is now: the same share of a run always means the same."""
    sampler = PrioritizedSampler(beta=0.5)
    for done, beta in ((0.0, 0.5), (0.5, 0.75), (1.0, 1.0), (1.2, 1.0), (0.1, 0.55)):
        filled(sampler).anneal(done)
        assert sampler.beta == pytest.approx(beta)


@pytest.mark.parametrize(
    ("ids", "anchor", "td", "changed"),
    [
        ([[3, 4, 5]], 1, [3.0], {4: 3.0}),
        ([[4, 5, 6], [5, 6, 7]], [1, 1], [3.0, 4.0], {5: 3.0, 6: 4.0}),  # the anchor of each window alone
        ([0, 1, -1], 0, [5.0, 5.0, 5.0], {}),  # overwritten, and padding
        ([1, 2], 0, [5.0, 7.0], {2: 7.0}),
    ],
)
def test_feedback_reaches_living_anchors_alone(ids, anchor, td, changed):
    sampler = linear()
    buffer = filled(sampler, capacity=6, lengths=(3, 3), batch_size=1, burn_in=1)  # rows 2 … 7 are alive
    before = {id_: 0.0 if id_ in (3, 7) else 10.0 for id_ in range(2, 8)}
    buffer.feedback(result(ids, td, anchor=anchor))
    assert {id_: sampler.tree.leaves[id_ % 6] for id_ in before} == before | changed


@BOTH
def test_a_td_error_that_is_not_finite_is_an_error_and_changes_nothing(sampler):
    buffer = filled(sampler())
    before = digest(buffer)
    with pytest.raises(FloatingPointError, match="1 of 2 TD errors"):
        buffer.feedback(result([0, 1], [0.5, np.nan]))
    assert digest(buffer) == before


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
    expected = stored(buffer)["carry"]
    carry = 10.0 + torch.arange(10.0).reshape(1, 5, 2)
    buffer.refresh_carry(result([window], [0.0], carry=carry))
    for id_ in changed:
        expected[id_ - 2] = carry[0, window.index(id_)]
    np.testing.assert_array_equal(stored(buffer)["carry"], expected)
    with pytest.raises(ValueError, match="refresh_carry"):
        buffer.refresh_carry(result([window], [0.0]))


def test_stored_carries_are_read_by_row_and_nothing_is_read_of_dead_ones():
    buffer = filled(UniformSampler(), capacity=6, lengths=(3, 3), carry_shape=(1, 2), batch_size=1)
    known = stored(buffer)["carry"][:, None]
    nothing = np.zeros((1, 2), np.float32)  # 0 and 1 have been overwritten
    found = buffer.carries(np.array([[-1, 1, 2], [7, 4, 0]]))
    np.testing.assert_array_equal(found, [[nothing, nothing, known[0]], [known[5], known[2], nothing]])


def test_spread_transitions_go_from_the_oldest_to_the_newest():
    buffer = filled(UniformSampler(), capacity=8, lengths=(3, 3, 3), batch_size=1)
    # Rows 4 … 11 live; 7 and 11 are final rows, and 4 … 6 and 8 … 10 transitions.
    assert [buffer.spread(n).tolist() for n in (100, 3, 1)] == [[4, 5, 6, 8, 9, 10], [4, 6, 10], [4]]


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": 200}, "could never"),
        ({"learn": 0}, "T=0"),
        ({"n_step": 0}, "n=0"),
        ({"burn_in": -1}, "K=-1"),
    ],
)
def test_batches_and_windows_that_cannot_be_are_refused(sizes, named):
    with pytest.raises(ValueError, match=named):
        filled(UniformSampler(), lengths=(), **sizes)


def test_a_transition_from_another_observation_begins_an_episode():
    replay = ReplayBuffer(VECTOR, capacity=30, batch_size=4)
    for i, start in enumerate((0.0, 1.0, 20.0)):
        obs = np.full(4, start, np.float32)
        replay.add_transition(obs, [0.5, 0.5], reward=float(i), next_obs=obs + 1)
    assert (replay.num_transitions, len(replay)) == (3, 5), "0 → 1 → 2, and 20 → 21"


LEARN = 10


def weights_by_step(replay: ReplayBuffer, length: int, updates: int) -> np.ndarray:
    """Share of each step of an episode in the mean over windows, relative to the mean of all steps."""
    total = torch.zeros(length)
    for _ in range(updates):
        batch = replay.sample()
        at, valid = batch.step[:, :LEARN], batch.valid[:, :LEARN]
        total.index_add_(0, at[valid], window_share(valid, total.dtype).view(valid.shape)[valid])
    return (total / total.mean()).numpy()


@pytest.mark.parametrize(
    ("sampler", "lengths", "updates"),
    [(UniformSampler(), [20] * 30, 60), (UniformSampler(), [4] * 100, 20), (FifoSampler(), [20] * 600, 45)],
    ids=["long episodes", "shorter than a window", "each window once"],
)
def test_every_step_of_an_episode_weighs_the_same(sampler, lengths: list[int], updates: int):
    replay = filled(sampler, capacity=50_000, lengths=lengths, learn=LEARN, batch_size=256)
    np.testing.assert_allclose(weights_by_step(replay, lengths[0], updates), 1.0, atol=0.13)


def test_priorities_of_zero_everywhere_draw_uniformly():
    buffer = filled(linear(), lengths=(20,))
    buffer.feedback(result(np.arange(20), np.zeros(20)))
    batch = buffer.sample()
    assert batch.valid.all() and batch.weight.tolist() == [1.0] * 16 and len(batch.ids.unique()) > 10


@BOTH
def test_sampled_windows_equal_the_oracles_while_the_ring_wraps(sampler):
    sizes = {"burn_in": 2, "learn": 2, "n_step": 2}
    buffer = filled(sampler(), spec=MIXED, capacity=60, batch_size=8, carry_shape=(3,), lengths=(), **sizes)
    naive, script = NaiveReplay(MIXED, 60, **sizes), Script(MIXED, (3,))
    for t in range(150):
        for stream in range(2):
            script.do((stream, 1, "terminated" if t % 11 == 10 else "open", "go on"), buffer, naive)
        if t % 5 == 0 and (batch := buffer.sample()):
            assert set(batch.anchor.tolist()) == {2, 3}, "the first learned position and the last"
            given = result(batch.ids, np.linspace(0, 2, 8), anchor=batch.anchor)
            assert_batch_equals(batch, naive, given.anchor_ids.tolist(), (batch.anchor - 2).tolist())
            buffer.feedback(given)


def test_a_windows_first_carry_does_not_undo_what_another_refreshed():
    buffer = filled(UniformSampler(), capacity=10, lengths=(4,), carry_shape=(1,), batch_size=1)
    carry = torch.tensor([[[1.0], [2.0], [3.0]], [[8.0], [4.0], [5.0]]])
    buffer.refresh_carry(result([[0, 1, 2], [1, 2, 3]], [0.0, 0.0], carry=carry))
    assert stored(buffer)["carry"][1:4, 0].tolist() == [2.0, 4.0, 5.0]
