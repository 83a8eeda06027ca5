"""Running statistics are those of all rows at once, however they came, and touch vectors only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.nn import normalise
from algorithm.nn.normalise import NoNormaliser, Normaliser, vector_names

OBS = ObsSpec(
    names=("camera/front", "arm.joints", "ram", "gear", "buttons", "flags", "matrix", "height"),
    shapes=((8, 8, 3), (3,), (2,), (), (4,), (2,), (2, 2), ()),
    dtypes=("uint8", "float32", "uint8", "uint8", "int8", "bool", "float32", "int32"),
    categories=((), (), (), (3,), (), (), (), ()),
)
VECTOR = ObsSpec(("obs",), ((3,),), ("float32",))


def rows_of(obs: ObsSpec, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2, (n, *shape)).astype(dtype) for name, shape, dtype in obs.items()}


def test_vectors_are_neither_images_nor_choices_nor_binary():
    assert vector_names(OBS) == ("arm.joints", "ram", "matrix", "height")


def test_numbers_by_hand():
    """1, 2 and 6: mean 3, variance (4 + 1 + 9)/3 = 14/3; 5 is (5 − 3)/√(14/3)."""
    normaliser = Normaliser(ObsSpec(("obs",), ((),), ("float32",)))
    normaliser.observe({"obs": np.array([1.0, 2.0], np.float32)})
    normaliser.observe({"obs": np.array([6.0], np.float32)})
    assert (normaliser.count.item(), normaliser.mean.item()) == (3, pytest.approx(3.0))
    assert normaliser({"obs": torch.tensor(5.0)})["obs"].item() == pytest.approx(2 / (14 / 3) ** 0.5)


@given(st.lists(st.integers(0, 7), max_size=8), st.sampled_from([0.0, 1e6]), st.integers(0, 99))
def test_any_portions_give_the_statistics_of_all_rows(portions, offset, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(sum(portions), 3)) * [0.1, 1.0, 30.0] + offset).astype(np.float32)
    normaliser = Normaliser(VECTOR)
    for part in np.split(rows, np.cumsum(portions)):
        normaliser.observe({"obs": part})
    assert normaliser.count.item() == len(rows)
    if not len(rows):
        return
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(normaliser.mean.numpy(), exact.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(normaliser.square.numpy() / len(rows), exact.var(0), rtol=1e-6, atol=1e-12)
    if len(rows) > 1:
        assert torch.equal(normaliser.shift, normaliser.mean.float())
        np.testing.assert_allclose(normaliser.scale.numpy(), (exact.var(0) + 1e-8) ** -0.5, rtol=1e-4)


def test_every_vector_is_normalised_in_its_own_shape_and_others_are_the_same_tensors():
    normaliser = Normaliser(OBS)
    rng = np.random.default_rng(1)
    rows = {name: (rng.integers(0, 99, (50, *shape))).astype(dtype) for name, shape, dtype in OBS.items()}
    normaliser.observe(rows)
    obs = {name: torch.from_numpy(value).view(25, 2, *value.shape[1:]) for name, value in rows.items()}
    before = {name: value.clone() for name, value in obs.items()}
    result = normaliser(obs)
    for name, value in rows.items():
        assert torch.equal(obs[name], before[name]), "the argument is left alone"
        if name not in vector_names(OBS):
            assert result[name] is obs[name]
            continue
        numbers = value.astype(np.float64)
        expected = ((numbers - numbers.mean(0)) / numbers.std(0)).reshape(obs[name].shape)
        np.testing.assert_allclose(result[name].numpy(), expected, rtol=1e-3, atol=1e-4)
        assert result[name].dtype == torch.float32


def test_numbers_end_at_five_deviations():
    normaliser = Normaliser(VECTOR)
    normaliser.observe({"obs": np.array([[-1, -1, -1], [1, 1, 1]], np.float32)})
    result = normaliser({"obs": torch.tensor([[-9.0, 4.0, 5.5]])})["obs"]
    assert result.tolist() == [[-5.0, pytest.approx(4.0), 5.0]]


def test_what_never_changes_is_zero():
    normaliser = Normaliser(VECTOR)
    normaliser.observe({"obs": np.full((9, 3), 0.1, np.float32)})
    assert normaliser({"obs": torch.full((3,), 0.1)})["obs"].tolist() == [0.0, 0.0, 0.0]


def test_a_single_row_says_nothing_about_a_scale():
    normaliser = Normaliser(VECTOR)
    x = torch.tensor([1.0, -2.0, 9.0])
    for rows in (0, 1):
        normaliser.observe({"obs": np.ones((rows, 3), np.float32)})
        assert normaliser({"obs": x})["obs"].tolist() == [1.0, -2.0, 5.0]


def test_the_statistics_travel_with_the_state_dict():
    one, other = Normaliser(OBS), Normaliser(OBS)
    one.observe(rows_of(OBS, 20))
    other.load_state_dict(one.state_dict())
    obs = {name: torch.from_numpy(value) for name, value in rows_of(OBS, 5, seed=2).items()}
    torch.testing.assert_close(dict(one(obs)), dict(other(obs)), rtol=0, atol=0)
    for normaliser in (one, other):
        normaliser.observe(rows_of(OBS, 20, seed=1))
    assert one.count.item() == 40
    for a, b in zip(one.buffers(), other.buffers(), strict=True):
        assert torch.equal(a, b)


def test_rows_are_counted_without_waiting_for_the_device():
    """Numbers of the device "meta" cannot be fetched at all."""
    normaliser = Normaliser(OBS).to("meta")
    normaliser.observe(rows_of(OBS, 20))
    assert normaliser.count.item() == 20
    assert {x.device.type for x in (normaliser.mean, normaliser.square)} == {"cpu"}
    assert {x.device.type for x in (normaliser.shift, normaliser.scale)} == {"meta"}


@pytest.mark.parametrize("broken", [1e30, -1e30, float("inf"), float("nan")])
def test_a_row_with_a_broken_number_is_left_out(broken):
    """In the statistics it would make all others 0 permanently; seen, it is clipped."""
    one, healthy = Normaliser(VECTOR), Normaliser(VECTOR)
    rows = rows_of(VECTOR, 20)["obs"]
    healthy.observe({"obs": rows})
    one.observe({"obs": np.concatenate([rows[:9], [[0.0, broken, 0.0]], rows[9:]]).astype(np.float32)})
    one.observe({"obs": np.float32([[broken, 0.0, 0.0]])})
    for a, b in zip(one.buffers(), healthy.buffers(), strict=True):
        assert torch.equal(a, b)
    if np.isfinite(broken):
        assert one({"obs": torch.full((3,), broken)})["obs"].abs().tolist() == [5.0] * 3


def test_nothing_of_an_image_or_choice_is_counted():
    images = ObsSpec(("obs",), ((8, 8, 3),), ("uint8",))
    normaliser = Normaliser(images)
    rows = rows_of(images, 3)
    normaliser.observe(rows)
    obs = {"obs": torch.from_numpy(rows["obs"])}
    assert normaliser(obs)["obs"] is obs["obs"]


def test_the_one_that_does_nothing():
    obs = {"obs": torch.tensor([99.0])}
    normaliser = NoNormaliser()
    normaliser.observe({"obs": np.array([[1.0]])})
    assert normaliser(obs) is obs and normaliser.state_dict() == {}


@pytest.mark.fault("F45")
@pytest.mark.parametrize("wild", [1e10, 1e17, -1e17])
def test_one_wild_number_does_not_flatten_all_others_for_ever(wild):
    rng, normaliser = np.random.default_rng(0), Normaliser(VECTOR)
    normaliser.observe({"obs": rng.normal(size=(1000, 3)).astype(np.float32)})
    normaliser.observe({"obs": np.array([[0.0, wild, 0.0]], np.float32)})
    assert normaliser({"obs": torch.tensor([0.0, wild, 0.0])})["obs"].abs().max() == 5.0
    for _ in range(100):
        normaliser.observe({"obs": rng.normal(size=(1000, 3)).astype(np.float32)})
    np.testing.assert_allclose(normaliser.scale.numpy(), 1.0, rtol=0.1)
    np.testing.assert_allclose(normaliser.mean.numpy(), 0.0, atol=0.02)


def test_a_scale_that_changes_for_good_is_learned_though_it_is_far_from_what_was_seen():
    rng, normaliser = np.random.default_rng(0), Normaliser(VECTOR)
    normaliser.observe({"obs": rng.normal(size=(1000, 3)).astype(np.float32)})
    normaliser.observe({"obs": np.zeros((1, 3), np.float32)})
    for _ in range(1000):
        normaliser.observe({"obs": 1e6 * rng.normal(size=(1, 3)).astype(np.float32)})
    deviation = 1 / normaliser.scale.numpy()
    assert ((deviation > 0.5e6) & (deviation < 1.5e6)).all(), "half of all rows have it"


def test_what_is_not_far_off_enters_to_the_last_bit(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.standard_t(4, size=(5000, 3)).astype(np.float32)  # heavy tails: up to 15 deviations
    found = []
    for far in (normalise.FAR, np.inf):
        monkeypatch.setattr(normalise, "FAR", far)
        normaliser = Normaliser(VECTOR)
        for row in rows:
            normaliser.observe({"obs": row[None]})
        found.append(normaliser.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
