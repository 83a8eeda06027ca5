"""Flat actions as actions of any space: against a plain loop, by hand, and what is said about them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm.core.errors import EnvError
from algorithm.core.spec import ActionSpec
from algorithm.env.actions import Actions
from tests.env.strategies import spaces
from tests.oracles_env import plain_action

HYBRID = Dict(move=Discrete(3), grip=Discrete(2), force=Box(-2.0, 2.0, (2,)))


def same(one: object, other: object) -> bool:
    """Equal with all types and dtypes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)


def unique_names(space: gym.Space, prefix: str = "") -> list[str]:
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        return [name for key, part in parts for name in unique_names(part, f"{prefix}/{key}")]
    return [prefix]


@settings(max_examples=60)
@given(space=spaces(), seed=st.integers(0, 999), n=st.integers(1, 3), edge=st.booleans())
def test_any_action_equals_that_of_a_plain_loop_alone_and_in_a_batch(space, seed, n, edge):
    assume(len(set(unique_names(space))) == len(unique_names(space)))
    actions = Actions(space, "x")
    rng = np.random.default_rng(seed)
    flat, _, _ = actions.spec.random(rng, actions.spec.all_allowed(n))
    if edge:
        flat[:, actions.spec.discrete :] = np.sign(flat[:, actions.spec.discrete :])
    batch = actions.to_env(flat)
    assert batch_space(space, n).contains(batch)
    for row, one in zip(flat, iterate(batch_space(space, n), batch), strict=True):
        alone = actions.to_env(row)
        assert space.contains(alone)
        assert same(alone, plain_action(space, row))
        assert np.all([np.array_equal(*pair) for pair in zip(leaves(one), leaves(alone), strict=True)])


def leaves(action: object) -> list[np.ndarray]:
    if isinstance(action, dict | tuple):
        parts = action.values() if isinstance(action, dict) else action
        return [leaf for part in parts for leaf in leaves(part)]
    return [np.asarray(action)]


def test_one_hots_come_first_and_a_dict_keeps_its_order():
    """Discrete leaves in the order of the tree, then the numbers: (move, grip, force) as they were named."""
    actions = Actions(HYBRID, "x")
    assert actions.spec == ActionSpec(branches=(3, 2), continuous=2)
    assert actions.to_env(np.array([0, 0, 1, 0, 1, 0.5, -1], np.float32)) == {
        "move": 2,
        "grip": 1,
        "force": pytest.approx([1.0, -2.0]),
    }
    assert list(actions.to_env(np.array([1, 0, 0, 1, 0, 0, 0], np.float32))) == ["move", "grip", "force"]


def test_choices_begin_at_the_start_of_their_space():
    assert Actions(Discrete(3, start=-1), "x").to_env(np.array([1, 0, 0], np.float32)) == -1
    space = MultiDiscrete([[2, 3], [1, 2]], start=[[10, 20], [30, 40]])
    flat = np.array([0, 1, 0, 0, 1, 1, 1, 0], np.float32)
    assert Actions(space, "x").to_env(flat).tolist() == [[11, 22], [30, 40]]
    assert Actions(MultiBinary(2), "x").to_env(np.array([0, 1, 1, 0], np.float32)).tolist() == [1, 0]


def test_a_box_is_spanned_exactly():
    box = Box(np.array([-2, 0], np.float32), np.array([4, 1], np.float32))
    scaled = Actions(box, "x").to_env(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], np.float32))
    assert scaled.tolist() == [[-2.0, 0.0], [1.0, 0.5], [4.0, 1.0]]
    assert scaled.dtype == np.float32


def test_whole_numbers_are_the_nearest_ones():
    """[0, 4]: the middle of u is 2, one step is half of u."""
    u = np.array([-1.0, -0.76, -0.74, 0.0, 0.24, 0.26, 1.0], np.float32)[:, None]
    found = Actions(Box(0, 4, (1,), np.uint8), "x").to_env(u)
    assert found.ravel().tolist() == [0, 0, 1, 2, 2, 3, 4]
    assert found.dtype == np.uint8


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (-1.1, 0.3, np.float32), (0.1, 0.7, np.float32), (-3e-3, 1e6, np.float32), (-3e38, 3e38, np.float32),
    (0.1, 0.7, np.float64), (-60000.0, 60000.0, np.float16), (-(2**63), 2**63 - 2, np.int64),
    (2**53 + 1, 2**53 + 3, np.int64), (0, 2**32 - 1, np.uint32), (-128, 127, np.int8),
])  # fmt: skip
def test_rounding_never_leaves_the_box(low, high, dtype):
    box = Box(low, high, (1,), dtype)
    u = np.tanh(np.linspace(-20, 20, 1001, dtype=np.float32))[:, None]
    assert all(box.contains(action) for action in Actions(box, "x").to_env(u))


@pytest.mark.parametrize("flat", [[0, 0, 0], [1, 1, 0], [0.5, 0.5, 0]])
def test_what_is_no_one_hot_is_a_mistake(flat):
    with pytest.raises(ValueError, match="reshape"):
        Actions(Discrete(3), "x").to_env(np.array(flat, np.float32))


@pytest.mark.parametrize(("space", "fragments"), [
    (gym.spaces.Text(5), ["the action is a Text space, which is not supported", "base_config.wrappers"]),
    (Dict(a=Tuple([Discrete(2), gym.spaces.Sequence(Discrete(2))])), ["'a/1' is a Sequence", "Box,"]),
    (gym.spaces.OneOf([Discrete(2)]), ["OneOf"]),
    (Box(-np.inf, 1.0, (1,)), ["the action has no finite bounds", "Box(-inf, 1.0"]),
    (Dict(a=Box(0, np.inf, (1,))), ["the action 'a' has no finite bounds", "[-1, 1]"]),
    (Box(-np.inf, np.inf, (2,), np.int32), ["no finite bounds"]),
    (Tuple([Discrete(10**9), Discrete(2)]), ["1,000,000,002 choices", "base_config.wrappers"]),
    (Tuple([]), ["action space", "is empty"]),
    (Box(0, 1, (0,)), ["is empty"]),
    (Dict({"a/b": Discrete(2), "a": Dict(b=Discrete(2))}), ["both called 'a/b'", "rename one"]),
])  # fmt: skip
def test_what_cannot_be_served_is_refused_with_the_reason(space, fragments):
    with pytest.raises(EnvError) as caught:
        Actions(space, "Task-v0")
    for fragment in ["Task-v0", *fragments]:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(("space", "text"), [
    (Box(-2.0, 2.0, (6,)), "6 continuous: u in [-1, 1] to [-2, 2]"),
    (Box(np.array([-1.0, 0.0]), np.array([1.0, 0.5]), dtype=np.float64),
     "2 continuous: u in [-1, 1] to the bounds of the Box"),
    (Box(0, 5, (1,), np.int32), "1 continuous: u in [-1, 1] to [0, 5], rounded"),
    (Discrete(3), "1 branch of 3 choices"),
    (Discrete(1), "1 branch of 1 choice"),
    (Discrete(3, start=-1), "1 branch of 3 choices (-1 to 1)"),
    (MultiBinary(4), "4 branches of 2 choices"),
    (MultiDiscrete([3, 4, 2]), "3 branches of 3, 4 and 2 choices"),
    (MultiDiscrete([3, 4], start=[1, 0]), "2 branches of 3 and 4 choices (not from 0)"),
    (MultiDiscrete([3, 4, 2, 5, 6, 7, 8]), "7 branches of 2 to 8 choices"),
    (HYBRID, "move: branch 0 of 3 choices · grip: branch 1 of 2 choices · force: continuous 0-1, [-2, 2]"),
    (Tuple([Box(0, 1, (1,)), MultiBinary(2), Box(0, 1, (2,), np.int8)]),
     "0: continuous 0, [0, 1] · 1: branches 0-1 of 2 choices · 2: continuous 1-2, [0, 1], rounded"),
])  # fmt: skip
def test_the_description_says_in_one_line_where_everything_goes(space, text):
    assert Actions(space, "x").spec.description == text
