"""Running statistics are those of all rows at once, however they came, for any size and type of numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.nn import normalise
from algorithm.nn.normalise import Normaliser, vector_names

OBS = ObsSpec(
    names=("camera/front", "arm.joints", "ram", "gear", "buttons", "flags", "matrix", "height"),
    shapes=((8, 8, 3), (3,), (2,), (), (4,), (2,), (2, 2), ()),
    dtypes=("uint8", "float32", "uint8", "uint8", "int8", "bool", "float32", "int32"),
    categories=((), (), (), (3,), (), (), (), ()),
)
VECTOR = ObsSpec(("obs",), ((3,),), ("float32",))


def rows_of(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, 99, (n, *shape)).astype(dtype) for name, shape, dtype in OBS.items()}


def after(*rows: object) -> Normaliser:
    """Statistics of a vector, of portions of rows."""
    normaliser = Normaliser(VECTOR)
    for portion in rows:
        normaliser.observe({"obs": np.asarray(portion, np.float32).reshape(-1, 3)})
    return normaliser


def seen(normaliser: Normaliser, *x: float) -> list[float]:
    return normaliser({"obs": torch.tensor(x)})["obs"].tolist()


def test_numbers_by_hand():
    """1, 2 and 6: mean 3, variance (4 + 1 + 9)/3 = 14/3; 5 is (5 − 3)/√(14/3). It ends at 5 deviations."""
    normaliser = after([[1.0, 0.1, -1.0], [2.0, 0.1, 1.0]], [6.0, 0.1, 0.0])
    expected = [2 / (14 / 3) ** 0.5, 0.0, -5.0]
    assert seen(normaliser, 5.0, 0.1, -9.0) == pytest.approx(expected), "what never changes is 0"
    for rows in ([], [1.0, 1.0, 1.0]):  # a single row says nothing about a scale
        assert seen(after(rows), 1.0, -2.0, 9.0) == [1.0, -2.0, 5.0]


@given(st.lists(st.integers(0, 7), min_size=2, max_size=8), st.sampled_from([0.0, 1e6]), st.integers(0, 99))
def test_any_portions_give_the_statistics_of_all_rows(portions, offset, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(2 + sum(portions), 3)) * [0.1, 1.0, 30.0] + offset).astype(np.float32)
    normaliser = after(*np.split(rows, np.cumsum(portions)))
    exact = rows.astype(np.float64)
    assert normaliser.count.item() == len(rows) and torch.equal(normaliser.shift, normaliser.mean)
    np.testing.assert_allclose(normaliser.mean.numpy(), exact.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(normaliser.square.numpy() / len(rows), exact.var(0), rtol=1e-6, atol=1e-12)
    varied = exact.std(0) > 0.0  # two rows of float32 may be one number
    np.testing.assert_allclose(normaliser.scale.numpy()[varied], exact.std(0)[varied] ** -1, rtol=1e-4)


def test_every_vector_is_normalised_in_its_own_shape_and_others_are_the_same_tensors():
    """Vectors are neither images nor choices nor binary."""
    normaliser, rows = Normaliser(OBS), rows_of(50)
    normaliser.observe(rows)
    obs = {name: torch.from_numpy(value).view(25, 2, *value.shape[1:]) for name, value in rows.items()}
    before = {name: value.clone() for name, value in obs.items()}
    result = normaliser(obs)
    assert vector_names(OBS) == ("arm.joints", "ram", "buttons", "matrix", "height")
    for name, value in rows.items():
        assert torch.equal(obs[name], before[name]), "the argument is left alone"
        if name not in vector_names(OBS):
            assert result[name] is obs[name]
            continue
        numbers = value.astype(np.float64)
        expected = ((numbers - numbers.mean(0)) / numbers.std(0)).reshape(obs[name].shape)
        np.testing.assert_allclose(result[name].numpy(), expected, rtol=1e-3, atol=1e-4)
        assert result[name].dtype == torch.float32


@pytest.mark.parametrize("sizes", [(30,), (1,) * 30, (5, 0, 25)])
def test_added_rows_enter_at_once_however_many_came_at_a_time(sizes):
    """Bit for bit: a step of many agents in one process is many segments in another."""
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    normaliser = after()
    for portion in np.split(rows, np.cumsum(sizes)[:-1]):
        normaliser.add({"obs": portion})
    assert not normaliser.count
    for _ in range(2):
        normaliser.commit_statistics()
        assert all(
            torch.equal(*pair) for pair in zip(normaliser.buffers(), after(rows).buffers(), strict=True)
        )


@pytest.mark.parametrize("broken", [3e38, float("inf"), float("nan")])
def test_a_row_with_a_broken_number_is_left_out(broken):
    """In the statistics it would make all others 0 permanently; seen, it is clipped."""
    rows = np.random.default_rng(0).normal(size=(20, 3))
    one = after(np.concatenate([rows[:9], [[0.0, broken, 0.0]], rows[9:]]), [broken, 0.0, 0.0])
    assert all(torch.equal(*pair) for pair in zip(one.buffers(), after(rows).buffers(), strict=True))


@pytest.mark.fault("F45")
@pytest.mark.parametrize("wild", [1e10, -1e17])
def test_one_wild_number_does_not_flatten_all_others_for_ever(wild):
    rows = np.random.default_rng(0).normal(size=(101, 1000, 3))
    normaliser = after(rows[0], [0.0, wild, 0.0])
    assert max(map(abs, seen(normaliser, 0.0, wild, 0.0))) == 5.0
    for portion in rows[1:].astype(np.float32):
        normaliser.observe({"obs": portion})
    np.testing.assert_allclose(normaliser.scale.numpy(), 1.0, rtol=0.1)
    np.testing.assert_allclose(normaliser.mean.numpy(), 0.0, atol=0.02)


@pytest.mark.parametrize(("dtype", "centre", "spread"), [
    ("float64", 1.7e9, 10.0), ("int64", 1.7e9, 10.0), ("int64", 1.7e18, 1e6), ("int32", 2e8, 2.0),
    ("int8", 90.0, 20.0), ("int16", 30_000.0, 9.0), ("uint8", 250.0, 4.0), ("float32", 1e6, 1.0),
    *(("float32", 0.0, 10.0**power) for power in (-10, -5, 5, 17, 30)), ("float64", 1.0, 1e-10),
])  # fmt: skip
def test_two_numbers_of_any_size_become_plus_and_minus_one(dtype, centre, spread):
    normaliser = Normaliser(ObsSpec(("x",), ((1,),), (dtype,)))
    pair = np.array([[centre - spread], [centre + spread]]).astype(dtype)
    normaliser.observe({"x": pair.repeat(500, 0)})  # the first hundred are alike
    seen = normaliser({"x": torch.from_numpy(pair)})["x"]
    assert seen.dtype == torch.float32
    np.testing.assert_allclose(seen.ravel(), [-1.0, 1.0], rtol=0.02)


@pytest.mark.parametrize(("dtype", "shape", "channels"), [
    ("float32", (9, 10, 2), (1, 1, 2)), ("int16", (2, 9, 10), (2, 1, 1)),
    ("uint8", (2, 9, 10, 3), (2, 1, 1, 3)),
])  # fmt: skip
def test_an_image_of_unknown_range_is_normalised_channel_by_channel(dtype, shape, channels):
    """As all its pixels at once are; one of a known range is left to the encoder."""
    obs = ObsSpec(("x", "known"), (shape,) * 2, (dtype,) * 2, ranges=(None, (0.0, 9.0)))
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 100, (50, *shape)) * np.arange(1, 1 + np.prod(channels)).reshape(channels) // 6
    normaliser = Normaliser(obs)
    for part in np.split(pixels.astype(dtype), [1, 30]):
        normaliser.observe({"x": part})
    assert normaliser.names == ("x",) and normaliser.of("x")[0].shape == channels
    seen = normaliser({"x": torch.from_numpy(pixels.astype(dtype)), "known": torch.zeros(1)})
    over = tuple(i for i, side in enumerate((1, *channels)) if side == 1)
    exact = (pixels - pixels.mean(over, keepdims=True)) / pixels.std(over, keepdims=True)
    np.testing.assert_allclose(seen["x"], exact, atol=1e-4)
    assert seen["known"].shape == (1,)


def test_a_scale_that_changes_for_good_is_learned_though_it_is_far_from_what_was_seen():
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    deviation = 1 / after(rows[:1000], np.zeros(3), *(1e6 * rows[1000:])).scale.numpy()
    assert ((deviation > 0.5e6) & (deviation < 1.5e6)).all(), "half of all rows have it"


def test_what_never_changes_is_nothing_of_any_size():
    """To the last bit: the smallest deviation makes 1e13 of it."""
    normaliser = Normaliser(ObsSpec(("x",), ((3,),), ("float64",)))
    same = np.array([[0.1, -1.7e9, 1 / 3]])
    for count in (1, 3, 1, 200, 7):
        normaliser.observe({"x": same.repeat(count, 0)})
    assert not normaliser({"x": torch.from_numpy(same)})["x"].any()


def test_what_is_not_far_off_enters_to_the_last_bit(monkeypatch):
    rows = np.random.default_rng(0).standard_t(4, size=(5000, 3))  # heavy tails: up to 15 deviations
    near = after(*rows)
    monkeypatch.setattr(normalise, "FAR", np.inf)
    assert all(torch.equal(*pair) for pair in zip(near.buffers(), after(*rows).buffers(), strict=True))
