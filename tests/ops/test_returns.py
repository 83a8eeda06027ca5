"""Targets: numbers for a pencil, plain-loop oracles, identities."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.agents.off_policy.returns import OneStep
from algorithm.ops.returns import last_used, soft_n_step, soft_vtrace, used_steps
from tests.lib import oracles


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values])


def flags(*values: int) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.bool)


def test_one_step_bootstraps_unless_terminated():
    # 1 + 0.5·8 = 5; terminated: just the reward
    value = row(8.0, 8.0)
    y = OneStep(0.5)(row(1.0, 2.0), flags(0, 1), flags(1, 1), value, value, None)
    assert y.tolist() == [[5.0, 2.0]]


NUMBERS = row(1.0, 2.0, 4.0), row(40.0, 60.0, 80.0), row(10.0, 20.0, 99.0)
"""Rewards, values of the next states, bonuses."""


@pytest.mark.parametrize(("terminated", "valid", "expected"), [
    ((0, 0, 0), (1, 1, 1), 1 + 6.0 + 6.0 + 10.0),  # 1 + ½(2 + 10) + ¼(4 + 20) + ⅛·80
    ((0, 1, 0), (1, 1, 0), 1 + 6.0),  # terminated at the second step: nothing after it
    ((0, 0, 0), (1, 1, 0), 1 + 6.0 + 0.25 * 60),  # truncated there: bootstrap from V(s_2) = 60
    ((0, 0, 0), (1, 0, 0), 1 + 0.5 * 40),  # newest row: one step exists
])  # fmt: skip
def test_n_step_by_hand(terminated, valid, expected):
    reward, value, bonus = NUMBERS
    y = soft_n_step(reward, flags(*terminated), used_steps(flags(*valid), None, 3), value, bonus, gamma=0.5)
    assert y.tolist() == [[expected]]


@pytest.mark.parametrize(("terminated", "valid", "ratio", "trace_decay", "expected"), [
    # δ_1 = 0.5·(2 + 10 + ½·60 − 40) = 1, δ_2 = 1·(4 + 20 + ½·80 − 60) = 4 with ρ = min(1, ratio)
    # c_1 = 0.9·0.5 = 0.45; y = 1 + ½·(40 + 1 + ½·0.45·4) = 1 + ½·41.9
    ((0, 0, 0), (1, 1, 1), (0.5, 3.0), 0.9, 21.95),
    ((0, 1, 0), (1, 1, 0), (1.0, 1.0), 1.0, 7.0),  # terminated at the second step: 1 + ½(40 + [2 + 10 − 40])
    ((0, 0, 0), (1, 0, 0), (1.0, 1.0), 1.0, 21.0),  # only the first step exists: 1 + ½·40
])  # fmt: skip
def test_vtrace_by_hand(terminated, valid, ratio, trace_decay, expected):
    reward, value, bonus = NUMBERS
    options = {"gamma": 0.5, "n": 3, "trace_decay": trace_decay, "rho_max": 1.0, "c_max": 1.0}
    y = soft_vtrace(reward, flags(*terminated), flags(*valid), value, bonus, row(*ratio), **options)
    assert y.item() == pytest.approx(expected)


def test_shapes_are_checked_by_name():
    with pytest.raises(ValueError, match="next_value must have shape"):
        soft_n_step(row(1.0), flags(0), flags(1).unsqueeze(-1), row(1.0, 2.0), row(1.0), gamma=0.9)


@st.composite
def windows(draw):
    """Random episodes as the replay hands them out: begun and ended anywhere, any T and n."""
    n, learn, size = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    length = learn + n - 1
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    first = rng.integers(0, learn, size)
    exists = rng.integers(first + 1, length + 1, size)
    valid = (np.arange(length) >= first[:, None]) & (np.arange(length) < exists[:, None])
    terminated = np.zeros((size, length), bool)
    terminated[np.arange(size), exists - 1] = (rng.random(size) < 0.5) & (exists < length)
    floats = [rng.normal(size=(size, length)) for _ in range(3)]
    ratio = np.exp(rng.normal(size=(size, length - 1)))
    return n, (floats[0], terminated, valid, floats[1], floats[2]), ratio


def torches(arrays):
    return [torch.from_numpy(array) for array in arrays]


def n_steps(arrays, follows, *, gamma, n):
    """Return the target of n steps, or of those until one does not follow."""
    reward, terminated, valid, value, bonus = torches(arrays)
    return soft_n_step(reward, terminated, used_steps(valid, follows, n), value, bonus, gamma=gamma)


@given(windows(), st.floats(0.0, 1.0))
def test_n_step_equals_the_loop(window, gamma):
    n, arrays, _ = window
    fast = n_steps(arrays, None, gamma=gamma, n=n).numpy()
    exists = arrays[2][:, : fast.shape[1]]
    slow = oracles.n_step_target(*arrays, gamma=gamma, n=n)
    np.testing.assert_allclose(fast[exists], slow[exists], atol=1e-12)


@given(windows(), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.1, 2.0), st.floats(0.1, 2.0))
def test_vtrace_equals_the_recursion(window, gamma, trace_decay, rho_max, c_max):
    n, arrays, ratio = window
    if n == 1:
        return
    options = {"gamma": gamma, "n": n, "trace_decay": trace_decay, "rho_max": rho_max, "c_max": c_max}
    fast = soft_vtrace(*torches(arrays), torch.from_numpy(ratio), **options).numpy()
    exists = arrays[2][:, : fast.shape[1]]
    slow = oracles.vtrace_target(*arrays, ratio, **options)
    np.testing.assert_allclose(fast[exists], slow[exists], atol=1e-12)


@given(windows(), st.floats(0.0, 1.0))
def test_the_mean_over_coins_of_sampled_steps_is_vtrace(window, trace_decay):
    n, arrays, ratio = window
    if n == 1:
        return
    goes_on = trace_decay * np.minimum(1.0, ratio)
    mean = 0.0
    for follows in product([False, True], repeat=ratio.shape[1]):
        chance = np.where(follows, goes_on, 1.0 - goes_on).prod(1, keepdims=True)
        same = torch.tensor(follows).expand(ratio.shape)
        mean = mean + chance * n_steps(arrays, same, gamma=0.9, n=n).numpy()
    options = {"gamma": 0.9, "n": n, "trace_decay": 1.0, "rho_max": 1.0, "c_max": 1.0}
    y = soft_vtrace(*torches(arrays), torch.from_numpy(goes_on), **options).numpy()
    exists = arrays[2][:, : mean.shape[1]]
    np.testing.assert_allclose(mean[exists], y[exists], atol=1e-12)


@pytest.mark.parametrize(("valid", "follows", "used", "last"), [
    ((1, 1, 1, 1), (1, 1, 1), [[1, 1, 1], [1, 1, 1]], [2, 3]),
    ((1, 1, 1, 1), (0, 1, 1), [[1, 0, 0], [1, 1, 1]], [0, 3]),  # the first target ends where nothing follows
    ((1, 1, 1, 1), (1, 0, 1), [[1, 1, 0], [1, 0, 0]], [1, 1]),
    ((1, 1, 0, 0), (1, 1, 1), [[1, 1, 0], [1, 0, 0]], [1, 1]),  # the episode ends
])  # fmt: skip
def test_steps_that_are_used_by_hand(valid, follows, used, last):
    steps = used_steps(flags(*valid), flags(*follows), 3)
    assert steps.int().tolist() == [used] and last_used(steps).tolist() == [last]
