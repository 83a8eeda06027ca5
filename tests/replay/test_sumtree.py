import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.replay.sumtree import SumTree


def plain_draw(leaves: np.ndarray, mass: float) -> int:
    """The leaf in which a point of the running sum lies, by walking over them."""
    for i, value in enumerate(leaves):
        if mass < value:
            return i
        mass -= value
    raise AssertionError("mass beyond the total")


class FixedDraws:
    """Stands in for a generator: every draw lies in the middle of its stratum."""

    def random(self, n: int) -> np.ndarray:
        return np.full(n, 0.5)


@given(capacity=st.integers(1, 6000), seed=st.integers(0, 2**32 - 1))
def test_draws_the_leaf_a_plain_walk_finds(capacity, seed):
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, size=capacity).astype(float)  # integers: all sums are exact
    leaves[rng.integers(capacity)] = 3.0
    tree = SumTree(capacity)
    tree.update(rng.permutation(capacity), np.zeros(capacity))
    order = rng.permutation(capacity)
    tree.update(order, leaves[order])
    n = 8  # a power of two: the strata are exact too
    drawn, values = tree.sample(n, FixedDraws())
    expected = [plain_draw(leaves, (i + 0.5) * leaves.sum() / n) for i in range(n)]
    assert drawn.tolist() == expected
    np.testing.assert_array_equal(values, leaves[drawn])


@pytest.mark.parametrize("capacity", [2**16 + 1, 2**19, 2**20 + 7])
def test_draws_the_same_leaf_through_several_levels(capacity):
    leaves = np.random.default_rng(0).integers(0, 4, size=capacity).astype(float)
    tree = SumTree(capacity)
    tree.update(np.arange(capacity), leaves)
    n = 2**12
    drawn, _ = tree.sample(n, FixedDraws())
    mass = (np.arange(n) + 0.5) * (leaves.sum() / n)
    np.testing.assert_array_equal(drawn, leaves.cumsum().searchsorted(mass, "right"))


@given(
    capacity=st.integers(1, 5000),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-300, 1e-12, 1.0, 1e12]),
    density=st.sampled_from([0.001, 0.1, 1.0]),
)
def test_never_draws_an_empty_leaf(capacity, seed, scale, density):
    rng = np.random.default_rng(seed)
    leaves = np.where(rng.random(capacity) < density, scale * 10.0 ** rng.uniform(-8, 0, capacity), 0.0)
    leaves[rng.integers(capacity)] = scale
    tree = SumTree(capacity)
    tree.update(np.arange(capacity), leaves)
    for _ in range(20):
        drawn, values = tree.sample(64, rng)
        assert (values > 0).all() and (leaves[drawn] == values).all()


def test_mass_at_the_very_edge_still_finds_a_leaf():
    class EdgeFirst:
        """The largest possible draws, then ordinary ones."""

        value = np.nextafter(1.0, 0.0)

        def random(self, n):
            value, self.value = self.value, 0.5
            return np.full(n, value)

    for capacity in (1, 31, 2048, 2049, 5000):
        tree = SumTree(capacity)
        tree.update(np.array([0]), np.array([0.1]))
        drawn, _ = tree.sample(3, EdgeFirst())
        assert drawn.tolist() == [0, 0, 0]


@pytest.mark.parametrize("capacity", [1, 100, 2**12 + 3, 2**19])
def test_root_is_the_sum_of_leaves_after_a_million_operations(capacity):
    rng = np.random.default_rng(0)
    tree = SumTree(capacity)
    for _ in range(200):
        tree.update(rng.integers(capacity, size=5000), rng.random(5000) * 10.0 ** rng.integers(-6, 6))
    rebuilt = SumTree(capacity)
    rebuilt.update(np.arange(capacity), tree.leaves.copy())
    assert tree.total == rebuilt.total  # bit for bit: history leaves no trace
    assert tree.total == pytest.approx(tree.leaves.sum(), rel=1e-13)


def test_update_remembers_only_so_many_pending_leaves():
    tree = SumTree(5000)
    for i in range(3000):
        tree.update(np.array([i]), np.array([1.0]))
    assert len(tree._pending) < 1024
    assert tree.total == 3000.0


def test_last_of_duplicates_wins():
    rng = np.random.default_rng(1)
    for capacity in (50, 5000):
        leaves, values = rng.integers(40, size=2000), rng.random(2000)
        tree = SumTree(capacity)
        tree.update(leaves, values)
        expected = dict(zip(leaves.tolist(), values.tolist(), strict=True))
        assert {i: tree.leaves[i] for i in expected} == expected
        assert tree.total == pytest.approx(sum(expected.values()))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_refuses_values_that_would_poison_it(bad):
    tree = SumTree(10)
    tree.update(np.array([1]), np.array([2.0]))
    with pytest.raises(ValueError, match="finite"):
        tree.update(np.array([1, 2]), np.array([1.0, bad]))
    assert tree.leaves.tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]


def test_total_zero_is_an_error_and_not_nan():
    for capacity in (3, 5000):
        with pytest.raises(ValueError, match="every leaf is 0"):
            SumTree(capacity).sample(2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="capacity"):
        SumTree(0)


def test_leaves_cannot_be_written_from_outside():
    with pytest.raises(ValueError, match="read-only"):
        SumTree(3).leaves[0] = 1.0


def test_load_replaces_every_leaf():
    tree = SumTree(5000)
    tree.update(np.arange(5000), np.ones(5000))
    tree.load([(slice(0, 6), np.full(6, 2.0)), (np.array([4999, 7, 6, 8]), np.full(4, 2.0))])
    assert tree.total == 20.0
    assert np.flatnonzero(tree.leaves).tolist() == [*range(9), 4999]
    with pytest.raises(ValueError, match="finite"):
        tree.load([(slice(0, 2), np.array([1.0, np.nan]))])


@pytest.mark.parametrize("capacity", [3, 2049, 5000, 70_000])
def test_a_loaded_tree_draws_what_the_saved_one_would(capacity):
    """The sums above the leaves have the same bits, whether built step by step or at once."""
    rng = np.random.default_rng(0)
    tree, loaded = SumTree(capacity), SumTree(capacity)
    for _ in range(20):
        tree.update(rng.integers(capacity, size=200), rng.random(200) ** 9)
        assert tree.total > 0.0
    loaded.load([(slice(0, capacity), tree.leaves)])
    draws = [one.sample(256, np.random.default_rng(1)) for one in (tree, loaded)]
    for ours, theirs in zip(*draws, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.total == tree.total


def test_stratified_sampling_follows_the_priorities():
    rng = np.random.default_rng(3)
    capacity, n, rounds = 3000, 256, 2000
    priority = rng.random(capacity)
    tree = SumTree(capacity)
    tree.update(np.arange(capacity), priority)
    counts = sum(np.bincount(tree.sample(n, rng)[0], minlength=capacity) for _ in range(rounds))
    expected = n * rounds * priority / priority.sum()
    chi2 = ((counts - expected) ** 2 / expected).sum()
    # Independent draws would give capacity ± sqrt(2 capacity); strata can only spread less.
    assert chi2 < capacity + 4 * np.sqrt(2 * capacity)
    # Stratification itself: a leaf's count cannot stray from its expectation by more than a round's edge.
    quarters = counts.reshape(4, -1).sum(1), expected.reshape(4, -1).sum(1)
    assert np.abs(quarters[0] - quarters[1]).max() < 3 * np.sqrt(rounds)
