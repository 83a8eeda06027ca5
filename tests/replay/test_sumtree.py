"""The sum tree against a plain walk over its leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.sumtree import MAX_PENDING, SumTree


class Draws:
    """Stands in for a generator: the first draws lie at a place of their strata, others in the middle."""

    def __init__(self, place: float = 0.5) -> None:
        self._place = place

    def random(self, n: int) -> np.ndarray:
        place, self._place = self._place, 0.5
        return np.full(n, place)


@given(capacity=st.one_of(st.integers(1, 6000), st.just(70_000)), seed=st.integers(0, 999))
def test_draws_the_leaf_a_plain_walk_finds(capacity, seed):
    """Also where leaves have had other values before; of duplicates the last counts."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, size=capacity).astype(float)  # integers: all sums are exact
    leaves[rng.integers(capacity)] = 3.0
    tree, order = SumTree(capacity), rng.permutation(capacity)
    tree.update(np.tile(order, 2), np.concatenate([np.ones(capacity), leaves[order]]))
    assert tree.total == leaves.sum()
    n = 64  # a power of two: the strata are exact too
    drawn, values = tree.sample(n, Draws())
    mass = (np.arange(n) + 0.5) * (leaves.sum() / n)
    np.testing.assert_array_equal(drawn, leaves.cumsum().searchsorted(mass, "right"))
    np.testing.assert_array_equal(values, leaves[drawn])


@given(
    capacity=st.integers(1, 5000),
    seed=st.integers(0, 999),
    scale=st.sampled_from([1e-300, 1e-12, 1.0, 1e12]),
    density=st.sampled_from([0.001, 0.1, 1.0]),
)
def test_never_draws_an_empty_leaf(capacity, seed, scale, density):
    rng, tree = np.random.default_rng(seed), SumTree(capacity)
    leaves = np.where(rng.random(capacity) < density, scale * 10.0 ** rng.uniform(-8, 0, capacity), 0.0)
    leaves[rng.integers(capacity)] = scale
    tree.update(np.arange(capacity), leaves)
    for draws in (*[rng] * 20, Draws(np.nextafter(1.0, 0.0))):  # the last: at the very edge
        drawn, values = tree.sample(63, draws)
        assert (values > 0).all() and (leaves[drawn] == values).all()


@pytest.mark.parametrize("capacity", [3, 2049, 5000, 70_000])
def test_a_loaded_tree_draws_what_the_saved_one_would(capacity):
    """The sums above the leaves have the same bits, whether built step by step or at once."""
    rng, tree, loaded = np.random.default_rng(0), SumTree(capacity), SumTree(capacity)
    for _ in range(20):
        tree.update(rng.integers(capacity, size=200), rng.random(200) ** 9)
        assert tree.total > 0.0
    loaded.update(np.arange(3), np.ones(3))  # it replaces every leaf
    loaded.load([(slice(0, 2), tree.leaves[:2]), (np.arange(2, capacity), tree.leaves[2:])])
    draws = [one.sample(256, np.random.default_rng(1)) for one in (tree, loaded)]
    for ours, theirs in zip(*draws, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.total == tree.total and not loaded.leaves.flags.writeable


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_refuses_values_that_would_poison_it(bad):
    tree = SumTree(3)
    for write in (tree.update, lambda *values: tree.load([values])):
        with pytest.raises(ValueError, match="finite"):
            write(np.array([1, 2]), np.array([1.0, bad]))
        assert not tree.leaves.any()


def test_update_remembers_only_so_many_pending_leaves():
    tree = SumTree(3 * MAX_PENDING)
    for i in range(tree.capacity):
        tree.update(np.array([i]), np.array([1.0]))
    assert len(tree._pending) < MAX_PENDING and tree.total == tree.capacity


def test_total_zero_is_an_error_and_not_nan():
    for capacity in (3, 5000):
        with pytest.raises(ValueError, match="every leaf is 0"):
            SumTree(capacity).sample(2, np.random.default_rng(0))
