"""What is logged of the last updates, with and without a stop between them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.agents.metrics_window import KEPT, MetricsWindow
from algorithm.core.data import State, UpdateResult

SIZE = 7


def an_update(rng, names=("loss/q", "value/q_mean", "policy/alpha_c")):
    """A batch and a result such as the learner gives: metrics are scalars or have positions [..., B, T]."""

    def numbers(*shape):
        return torch.from_numpy(np.asarray(rng.random(shape, np.float32)))

    metrics = {
        name: numbers(*shape) for name, shape in zip(names, [(), (2, SIZE, 3), (SIZE, 3)], strict=False)
    }
    ids = torch.from_numpy(rng.integers(0, 10**9, size=(SIZE, 4)))
    batch = SimpleNamespace(weight=numbers(SIZE), ids=ids)
    valid = torch.from_numpy(rng.random((SIZE, 3)) < 0.6)
    return batch, UpdateResult(
        priority=numbers(SIZE), ids=ids, anchor=torch.full((SIZE,), 2), valid=valid, metrics=metrics
    )


def carried_over(recent):
    """Through a checkpoint: arrays as they are, the rest as JSON."""
    state = recent.state(next_id=10**9)
    other = MetricsWindow()
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    other.load_state(State(arrays, json.loads(json.dumps(state.meta, allow_nan=False))), next_id=10**9)
    return other


def assert_same(one, other):
    np.testing.assert_equal(one.metrics(10**9 + 7), other.metrics(10**9 + 7))


def test_hand_numbers():
    recent = MetricsWindow()
    assert recent.metrics(0) == {}
    for value in (1.0, 2.0):
        ids = torch.tensor([[-1, 10], [-1, 20]])
        batch = SimpleNamespace(weight=torch.tensor([1.0, 0.25 * value]), ids=ids)
        q = torch.tensor([[[value, 99.0], [3 * value, 5 * value]]])
        metrics = {"value/q_mean": q, "policy/alpha_c": torch.tensor(value)}
        recent.add(
            batch,
            UpdateResult(
                priority=torch.tensor([value, 5.0]),
                ids=ids,
                anchor=torch.tensor([1, 1]),
                valid=torch.tensor([[True, False], [True, True]]),
                metrics=metrics,
            ),
        )
    assert recent.metrics(next_id=30) == {
        "value/q_mean": 4.5,  # mean of (1 + 3 + 5) / 3 and (2 + 6 + 10) / 3
        "policy/alpha_c": 1.5,
        "replay/priority_mean": 3.5,  # of the last batch, as the two below
        "replay/is_weight_min": 0.5,
        "replay/age_mean": 15.0,
    }


def test_only_the_last_updates_count():
    recent = MetricsWindow()
    for value in range(KEPT + 5):
        batch, result = an_update(np.random.default_rng(0))
        recent.add(batch, UpdateResult(**{**vars(result), "metrics": {"loss/q": torch.tensor(float(value))}}))
    assert recent.metrics(0)["loss/q"] == np.mean(range(5, KEPT + 5))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(0, 30))
def test_a_stop_changes_no_bit(seed, before, after):
    straight, stopped = MetricsWindow(), MetricsWindow()
    rng = np.random.default_rng(seed)
    for part in (before, after):
        for _ in range(part):
            update = an_update(rng)
            if rng.random() < 0.1:
                update[1].metrics["loss/q"] = torch.tensor(float("nan"))
            straight.add(*update)
            stopped.add(*update)
        assert_same(stopped, straight)
        assert list(stopped.metrics(0)) == list(straight.metrics(0)), "columns stay in order"
        stopped = carried_over(carried_over(stopped))
    assert_same(stopped, straight)


def test_ages_stay_what_they_were_where_ids_begin_anew():
    recent, other = MetricsWindow(), MetricsWindow()
    recent.add(*an_update(np.random.default_rng(5)))
    other.load_state(recent.state(next_id=2 * 10**9), next_id=0)
    age = recent.metrics(2 * 10**9)["replay/age_mean"]
    assert other.metrics(0)["replay/age_mean"] == age > 10**9
    assert other.metrics(7)["replay/age_mean"] == pytest.approx(age + 7)


def test_what_a_new_setting_brings_is_averaged_over_the_updates_that_have_it():
    rng, recent = np.random.default_rng(2), MetricsWindow()
    recent.add(*an_update(rng, ("loss/q",)))
    resumed, late = carried_over(recent), [an_update(rng, ("loss/q",)) for _ in range(2)]
    for value, (batch, result) in enumerate(late):
        result.metrics["vtrace/rho_mean"] = torch.tensor(float(value))
        resumed.add(batch, result)
    for each in (resumed, carried_over(resumed)):
        assert each.metrics(0)["vtrace/rho_mean"] == 0.5
