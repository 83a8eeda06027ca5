"""Targets: numbers for a pencil, plain-loop oracles, identities, and the fixed point of a soft MDP."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.returns import one_step, soft_n_step, soft_vtrace
from tests import oracles


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values])


def flags(*values: int) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.bool)


def test_one_step_bootstraps_unless_terminated():
    # 1 + 0.5·8 = 5; terminated: just the reward
    y = one_step(row(1.0, 2.0), flags(0, 1), row(8.0, 8.0), gamma=0.5)
    assert y.tolist() == [[5.0, 2.0]]


def test_n_step_by_hand():
    # 1 + ½(2 + 10) + ¼(4 + 20) + ⅛·80 = 1 + 6 + 6 + 10 = 23
    y = soft_n_step(
        row(1.0, 2.0, 4.0),
        flags(0, 0, 0),
        flags(1, 1, 1),
        row(99.0, 99.0, 80.0),
        row(10.0, 20.0, 99.0),
        gamma=0.5,
        n=3,
    )
    assert y.tolist() == [[23.0]]


@pytest.mark.parametrize(("terminated", "valid", "expected"), [
    ((0, 1, 0), (1, 1, 0), 1 + 6.0),  # terminated at the second step: nothing after it
    ((0, 0, 0), (1, 1, 0), 1 + 6.0 + 0.25 * 60),  # truncated there: bootstrap from V(s_2) = 60
    ((0, 0, 0), (1, 0, 0), 1 + 0.5 * 40),  # newest row: one step exists
])  # fmt: skip
def test_n_step_is_shorter_where_steps_do_not_exist(terminated, valid, expected):
    y = soft_n_step(
        row(1.0, 2.0, 4.0),
        flags(*terminated),
        flags(*valid),
        row(40.0, 60.0, 80.0),
        row(10.0, 20.0, 99.0),
        gamma=0.5,
        n=3,
    )
    assert y.tolist() == [[expected]]


def test_vtrace_by_hand():
    # δ_1 = 0.5·(2 + 10 + ½·60 − 40) = 1, δ_2 = 1·(4 + 20 + ½·80 − 60) = 4 with ρ = min(1, ratio)
    # c_1 = 0.9·0.5 = 0.45; y = 1 + ½·(40 + 1 + ½·0.45·4) = 1 + ½·41.9 = 21.95
    y = soft_vtrace(
        row(1.0, 2.0, 4.0),
        flags(0, 0, 0),
        flags(1, 1, 1),
        row(40.0, 60.0, 80.0),
        row(10.0, 20.0, 99.0),
        row(0.5, 3.0),
        gamma=0.5,
        n=3,
        trace_decay=0.9,
        rho_max=1.0,
        c_max=1.0,
    )
    assert y.item() == pytest.approx(21.95)


def test_vtrace_stops_at_termination_and_at_the_newest_row():
    common = {"gamma": 0.5, "n": 3, "trace_decay": 1.0, "rho_max": 1.0, "c_max": 1.0}
    values = row(40.0, 60.0, 80.0), row(10.0, 20.0, 99.0), row(1.0, 1.0)
    # terminated at the second step: 1 + ½(40 + [2 + 10 − 40]) = 7
    ended = soft_vtrace(row(1.0, 2.0, 4.0), flags(0, 1, 0), flags(1, 1, 0), *values, **common)
    assert ended.tolist() == [[7.0]]
    # only the first step exists: 1 + ½·40
    newest = soft_vtrace(row(1.0, 2.0, 4.0), flags(0, 0, 0), flags(1, 0, 0), *values, **common)
    assert newest.tolist() == [[21.0]]


def test_shapes_are_checked_by_name():
    with pytest.raises(ValueError, match="next_value must have shape"):
        one_step(row(1.0), flags(0), row(1.0, 2.0), gamma=0.9)
    with pytest.raises(ValueError, match="ratio must have shape"):
        soft_vtrace(
            *(row(1.0, 1.0), flags(0, 0), flags(1, 1), row(1.0, 1.0), row(1.0, 1.0), row(1.0, 1.0)),
            gamma=0.9, n=2, trace_decay=1.0, rho_max=1.0, c_max=1.0,
        )  # fmt: skip


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


@given(windows(), st.floats(0.0, 1.0))
def test_n_step_equals_the_loop(window, gamma):
    n, arrays, _ = window
    fast = soft_n_step(*torches(arrays), gamma=gamma, n=n).numpy()
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


@given(windows())
def test_on_policy_vtrace_is_soft_n_step(window):
    n, arrays, ratio = window
    if n == 1:
        return
    tensors = torches(arrays)
    ones = torch.ones_like(torch.from_numpy(ratio))
    corrected = soft_vtrace(*tensors, ones, gamma=0.9, n=n, trace_decay=1.0, rho_max=1.0, c_max=1.0)
    plain = soft_n_step(*tensors, gamma=0.9, n=n)
    exists = arrays[2][:, : plain.shape[1]]
    np.testing.assert_allclose(corrected[exists], plain[exists], atol=1e-12)


@given(windows())
def test_one_step_is_n_step_of_length_one(window):
    _, (reward, terminated, valid, value, bonus), _ = window
    tensors = torches((reward, terminated, valid, value, bonus))
    one = one_step(tensors[0], tensors[1], tensors[3], gamma=0.9)
    n_step = soft_n_step(*tensors, gamma=0.9, n=1)
    np.testing.assert_allclose(one[tensors[2]], n_step[tensors[2]], atol=1e-12)


GAMMA, ALPHA = 0.9, 0.3
REWARD = np.array([[1.0, -0.5], [0.2, 2.0]])  # [state, action]
NEXT = np.array([[0, 1], [1, 0]])
POLICY = np.array([[0.7, 0.3], [0.2, 0.8]])
BEHAVIOUR = np.array([[0.4, 0.6], [0.5, 0.5]])
BONUS = -ALPHA * (POLICY * np.log(POLICY)).sum(-1)  # h(s), the policy's entropy times α


def tabular_soft_q() -> np.ndarray:
    """Soft Q of POLICY by solving the linear system: Q = r + γ P (π·Q + h)."""
    system, constant = np.eye(4), REWARD.ravel().copy()
    for s, a in itertools.product(range(2), range(2)):
        constant[2 * s + a] += GAMMA * BONUS[NEXT[s, a]]
        for following in range(2):
            system[2 * s + a, 2 * NEXT[s, a] + following] -= GAMMA * POLICY[NEXT[s, a], following]
    return np.linalg.solve(system, constant).reshape(2, 2)


def expected_target(q: np.ndarray, n: int, sampling: np.ndarray, *, corrected: bool) -> np.ndarray:
    """E[y | s, a] over every sequence of the n − 1 following actions, drawn by ``sampling``."""
    value = (POLICY * q).sum(-1) + BONUS
    result = np.zeros((2, 2))
    for s, a in itertools.product(range(2), range(2)):
        rows, weights, ratios = [], [], []
        for actions in itertools.product(range(2), repeat=n - 1):
            state, weight, row_ratio, steps = s, 1.0, [], []
            for t, action in enumerate((a, *actions)):
                if t:
                    weight *= sampling[state, action]
                    row_ratio.append(POLICY[state, action] / sampling[state, action])
                following = NEXT[state, action]
                steps.append((REWARD[state, action], value[following], BONUS[following]))
                state = following
            rows.append(steps)
            weights.append(weight)
            ratios.append(row_ratio)
        reward, next_value, next_bonus = torch.tensor(rows, dtype=torch.float64).unbind(-1)
        never, always = torch.zeros_like(reward, dtype=bool), torch.ones_like(reward, dtype=bool)
        steps = (reward, never, always, next_value, next_bonus)
        if corrected and n > 1:
            ratio = torch.tensor(ratios, dtype=torch.float64)
            y = soft_vtrace(*steps, ratio, gamma=GAMMA, n=n, trace_decay=1.0, rho_max=1e9, c_max=1e9)
        else:
            y = soft_n_step(*steps, gamma=GAMMA, n=n)
        result[s, a] = (np.array(weights) * y[:, 0].numpy()).sum()
    return result


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("sampling", "corrected"), [(POLICY, False), (BEHAVIOUR, True)])
def test_every_n_reaches_the_same_tabular_soft_q(n, sampling, corrected):
    """On-policy without and off-policy with correction, from Q = 0, all n end at the soft Q of the policy."""
    q = np.zeros((2, 2))
    for _ in range(400 // n):
        q = expected_target(q, n, sampling, corrected=corrected)
    np.testing.assert_allclose(q, tabular_soft_q(), atol=1e-9)


def test_off_policy_without_correction_the_fixed_point_moves():
    """Guards the test above: without the ratios the target of the true soft Q is far from it."""
    moved = expected_target(tabular_soft_q(), 2, BEHAVIOUR, corrected=False) - tabular_soft_q()
    assert np.abs(moved).max() > 0.1
