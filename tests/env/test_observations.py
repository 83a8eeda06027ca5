"""Observations of any space as arrays by name, and frame stacks."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.spec import ObsSpec
from algorithm.env.gym import GymRecipe
from algorithm.env.observations import Observations
from algorithm.env.outputs import SpaceMismatchError
from tests.env.oracles import plain_observation
from tests.lib.strategies import spaces


@given(space=spaces(), seed=st.integers(0, 999), n=st.integers(1, 3))
def test_any_observation_equals_that_of_a_plain_walk_alone_and_in_a_batch(space, seed, n):
    observations = Observations(space, "x")
    space.seed(seed)
    samples = [space.sample() for _ in range(n)]
    batch = observations.read_batch(concatenate(space, samples, create_empty_array(space, n)), n)
    each = observations.read_each(samples)
    assert list(batch) == list(each) == list(observations.spec.names)
    for i, sample in enumerate(samples):
        plain, alone = plain_observation(space, sample), observations.read(sample)
        assert list(alone) == list(plain)
        for name, shape, dtype in observations.spec.items():
            assert np.shape(alone[name]) == plain[name].shape == shape
            assert batch[name].dtype == each[name].dtype == dtype
            for found in (np.asarray(alone[name]).astype(dtype), batch[name][i], each[name][i]):
                assert np.array_equal(found, plain[name].astype(dtype))


def test_a_nested_space_becomes_names_shapes_dtypes_and_categories():
    space = Dict(
        sight=Dict(front=Box(0, 255, (8, 8, 3), np.uint8), depth=Box(0, 9, (4, 4), np.float16)),
        gear=Discrete(300, start=-1),
        body=Tuple([MultiDiscrete([[2, 3], [4, 5]]), MultiBinary([2, 2]), Box(0, 9, (), np.int64)]),
    )
    assert Observations(space, "x").spec == ObsSpec(
        names=("sight/front", "sight/depth", "gear", "body/0", "body/1", "body/2"),
        shapes=((8, 8, 3), (4, 4), (), (2, 2), (2, 2), ()),
        dtypes=("uint8", "float32", "int16", "uint8", "bool", "int64"),
        categories=((), (), (300,), (2, 3, 4, 5), (), ()),
        ranges=(None,) * 6,
    )


@pytest.mark.parametrize(("space", "dtype", "span"), [
    (Box(0, 1, (8, 8, 3), np.uint8), "uint8", (0, 1)),
    (Box(0, 9, (4, 4), np.uint8), "uint8", (0, 9)),
    (Box(0, 255, (36, 36), np.uint8), "uint8", (0, 255)),
    (Box(0, 255, (8, 8, 3), np.uint8), "uint8", None),  # a grid, which may hold anything
    (Box(-128, 127, (36, 36, 1), np.int8), "int8", None),
    (Box(0, 5000, (36, 36, 1), np.uint16), "float32", (0, 5000)),
    (Box(0, 255, (3, 36, 36), np.float64), "float32", (0, 255)),
    (Box(-np.inf, np.inf, (36, 36, 1), np.float32), "float32", None),
    (Box(np.zeros((9, 9, 2)), np.ones((9, 9, 2)) * [1, 8], dtype=np.float32), "float32", None),
    (Box(0, 1, (8, 8, 3), np.bool_), "bool", (0, 1)),
    (MultiBinary([8, 8, 3]), "bool", (0, 1)),
    (Box(-1, 1, (3,), np.float32), "float32", None),
    (Box(-1, 1, (3,), np.float64), "float64", None),
    (Box(0, 9, (3,), np.uint16), "float32", None),
    (Box(0, 9, (3,), np.uint32), "float64", None),
])  # fmt: skip
def test_the_space_tells_what_numbers_mean(space, dtype, span):
    """Images and bytes have a range where the bounds tell it, and vectors are kept as exactly as they are."""
    spec = Observations(space, "x").spec
    assert (spec.dtypes, spec.ranges, spec.categories) == ((dtype,), (span,), ((),))


@pytest.mark.parametrize(("n", "dtype"), [(256, "uint8"), (257, "int16"), (32768, "int16"), (32769, "int32")])
def test_choices_take_the_smallest_dtype_that_holds_them(n, dtype):
    observations = Observations(Discrete(n), "x")
    assert observations.spec.dtypes == (dtype,) and observations.read(n - 1)["obs"] == n - 1


@pytest.mark.parametrize(("space", "value", "message"), [
    (Discrete(3), 3, "'obs' holds 3, its space has 0 to 2"),
    (Discrete(3, start=1), 0, "holds 0, its space has 1 to 3"),
    (MultiDiscrete([2, 3]), np.array([1, 3]), "holds 3, its space has 0 to 2"),
    (Box(0, 255, (2,), np.uint8), np.array([1.5, 2.0]), "numbers of float64 that do not fit uint8"),
    (Box(0, 2**63, (2,), np.uint64), np.array([2**53 + 1, 0], np.uint64), "no whole number above 2**53 is"),
    (Tuple([Discrete(3), Dict(c=Discrete(2))]), (1, {}), "'1/c' is missing"),
    (Tuple([Discrete(3), Discrete(3)]), (1,), "'1' is missing"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_where_numpy_would_wrap_it(space, value, message):
    with pytest.raises(SpaceMismatchError) as caught:
        Observations(space, "x").read(value)
    assert message in str(caught.value)


class Upended(gym.wrappers.FrameStackObservation):
    """A stack of somebody's own, the newest frame first."""


STACK = {"FrameStackObservation": {"stack_size": 3}}
CLIP = {"ClipReward": {"max_reward": 1.0}}


@pytest.mark.parametrize(("args", "wrappers", "stacks"), [
    ({}, [STACK], 3),
    ({}, [CLIP, STACK], 3),
    ({}, [STACK, STACK], 3),
    ({}, [STACK, CLIP], 1),
    ({}, [{"tests.env.test_observations:Upended": {"stack_size": 3}}], 1),
    ({}, [{"FrameStackObservation": {"stack_size": 1}}], 1),
    ({}, [{"FrameStackObservation": {"stack_size": 3, "padding_type": "zero"}}], 1),
    ({"dtype": "float32"}, [STACK], 1),
    ({"nested": True}, [STACK], 1),
])  # fmt: skip
def test_stacks_are_recognised_where_a_replay_can_rebuild_them(args, wrappers, stacks):
    """Those that are not are stored as they are; a stack of stacks is one whose frames are stacks."""
    env = GymRecipe(env_id="tests.lib.toys:Film-v0", env_args=args, wrappers=tuple(wrappers))(0)
    assert env.spec.obs.stacks[0] == stacks


@pytest.mark.parametrize("value", [1, np.zeros(1, np.int64), np.zeros((3, 2), np.int64)])
def test_choices_are_not_spread_over_a_shape_they_do_not_have(value):
    """A single number plus the start of a MultiDiscrete would have its shape."""
    observations = Observations(MultiDiscrete([3, 3]), "x")
    assert np.shape(observations.read(value)["obs"]) == np.shape(value)
    with pytest.raises(SpaceMismatchError, match=r"its space has \(2,\)"):
        observations.read_each([value])
    with pytest.raises(SpaceMismatchError, match="its space has"):
        observations.read_batch(value, 2)
