"""Random spaces for hypothesis."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=3)
_INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@st.composite
def _boxes(draw: st.DrawFn) -> Box:
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64", "bool", *_INTS])))
    shape = draw(_SHAPES)
    if dtype.kind == "b":
        return Box(0, 1, shape, dtype)
    if dtype.kind == "f":
        ends = hnp.arrays(dtype, (2, *shape), elements=st.floats(-100, 100, width=16))
    else:
        info = np.iinfo(dtype)
        ends = hnp.arrays(dtype, (2, *shape), elements=st.integers(max(info.min, -300), min(info.max, 300)))
    low, high = np.sort(draw(ends), axis=0) + dtype.type(0)  # without -0.0, of which Box.sample draws nothing
    return Box(np.asarray(low), np.asarray(high), shape, dtype)


@st.composite
def _choices(draw: st.DrawFn) -> gym.Space:
    dtype = np.dtype(draw(st.sampled_from(["int8", "int16", "int32", "int64"])))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3))
    sizes = draw(hnp.arrays(dtype, shape, elements=st.integers(1, 5)))
    starts = draw(hnp.arrays(dtype, shape, elements=st.integers(-9, 9)))
    if draw(st.booleans()):
        return Discrete(sizes.flat[0], start=starts.flat[0], dtype=dtype)
    return MultiDiscrete(sizes, dtype=dtype, start=starts)


_LEAVES = st.one_of(
    _boxes(),
    _choices(),
    st.builds(MultiBinary, st.one_of(st.integers(1, 4), st.lists(st.integers(1, 3), min_size=1, max_size=2))),
)
_KEYS = st.sampled_from(["arm", "leg", "b/c", "camera", "body"])  # no two paths are the same text


def spaces() -> st.SearchStrategy[gym.Space]:
    """Any nesting of Dict and Tuple of leaves that are served."""
    return st.recursive(
        _LEAVES,
        lambda parts: st.one_of(
            st.lists(parts, min_size=1, max_size=3).map(Tuple),
            st.dictionaries(_KEYS, parts, min_size=1, max_size=3).map(Dict),
        ),
        max_leaves=5,
    )
