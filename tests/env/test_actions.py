"""Flat actions as actions of any space: against a plain loop, by hand, and what is said about them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.errors import EnvError
from algorithm.env.actions import Actions
from tests.env.oracles import parts_of, plain_action
from tests.lib.strategies import spaces


def check_same(space: gym.Space, one: object, other: object) -> None:
    """The same leaves with the same types."""
    for (_, _, left), (_, _, right) in zip(parts_of(space, one), parts_of(space, other), strict=True):
        assert (type(left), left.dtype, left.shape) == (type(right), right.dtype, right.shape)
        assert np.array_equal(left, right)


@given(space=spaces(), seed=st.integers(0, 999), n=st.integers(1, 3), edge=st.booleans())
def test_any_action_equals_that_of_a_plain_loop_alone_and_in_a_batch(space, seed, n, edge):
    actions = Actions(space, "x")
    flat, _, _ = actions.spec.random(np.random.default_rng(seed), actions.spec.all_allowed(n))
    if edge:
        flat[:, actions.spec.discrete :] = np.sign(flat[:, actions.spec.discrete :])
    batch = actions.to_env(flat)
    assert batch_space(space, n).contains(batch)
    for row, one in zip(flat, iterate(batch_space(space, n), batch), strict=True):
        alone = actions.to_env(row)
        assert space.contains(alone)
        check_same(space, alone, plain_action(space, row))
        for (_, _, left), (_, _, right) in zip(parts_of(space, one), parts_of(space, alone), strict=True):
            assert np.array_equal(left, right)


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (-1.1, 0.3, np.float32), (0.1, 0.7, np.float32), (-3e-3, 1e6, np.float32), (-3e38, 3e38, np.float32),
    (0.1, 0.7, np.float64), (-60000.0, 60000.0, np.float16), (0, 2**32 - 1, np.uint32), (-128, 127, np.int8),
    (-(2**63), 2**63 - 1, np.int64), (1 - 2**62, 2**62 - 1, np.int64), (0, 2**64 - 1, np.uint64),
    (2**53 + 3, 2**53 + 5, np.int64),
])  # fmt: skip
def test_rounding_never_leaves_the_box(low, high, dtype):
    box = Box(low, high, (1,), dtype)
    u = np.tanh(np.linspace(-20, 20, 1001, dtype=np.float32))[:, None]
    actions = Actions(box, "x").to_env(u)
    assert all(box.contains(action) for action in actions) and (actions[1:] >= actions[:-1]).all()


@pytest.mark.parametrize("flat", [[0, 0, 0], [1, 1, 0]])
def test_what_is_no_one_hot_is_a_mistake(flat):
    with pytest.raises(ValueError, match="reshape"):
        Actions(Discrete(3), "x").to_env(np.array(flat, np.float32))


@pytest.mark.parametrize(("space", "said"), [
    (gym.spaces.Text(5), "the action is a Text space, which is not supported"),
    (Dict(a=Tuple([Discrete(2), gym.spaces.Sequence(Discrete(2))])), "'a/1' is a Sequence"),
    (Box(-np.inf, 1.0, (1,)), "the action has no finite bounds"),
    (Dict(a=Box(0, np.inf, (1,))), "the action 'a' has no finite bounds"),
    (Box(-np.inf, np.inf, (2,), np.int32), "no finite bounds"),
    (Tuple([Discrete(10**9), Discrete(2)]), "1,000,000,002 choices"),
    (Tuple([]), "is empty"),
    (Box(0, 1, (0,)), "is empty"),
    (Dict({"a/b": Discrete(2), "a": Dict(b=Discrete(2))}), "both called 'a/b'"),
])  # fmt: skip
def test_what_cannot_be_served_is_refused_with_the_reason(space, said):
    with pytest.raises(EnvError) as caught:
        Actions(space, "Task-v0")
    assert said in str(caught.value) and "Task-v0" in str(caught.value)
