"""Messages for the tests, and how two are compared."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from algorithm.core.spec import AgentSpec
from ds.net.protocol import (
    Beat,
    Bye,
    Hello,
    Join,
    Receipt,
    Refused,
    TrajectoryChunk,
    TrajectoryMessage,
    Transitions,
    WeightRequest,
    Welcome,
)
from ds.net.wire import DTYPES

MESSAGES = (Hello, Welcome, Join, Refused, TrajectoryMessage, Beat, Receipt, WeightRequest, Bye)

words = st.text(max_size=20)
counts = st.integers(-(2**63), 2**64 - 1)
reals = st.floats(allow_nan=False)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)


@st.composite
def columns(draw: st.DrawFn) -> Transitions:
    length, width = draw(st.integers(0, 5)), st.integers(0, 3)
    shape = {"action_mask": (length + 1, draw(width)), "carry": (length + 1, draw(width), 2)}
    shape |= {"action": (length, draw(width)), "z": (length, draw(width)), "behaviour_logp": (length, 1)}
    shape |= {"reward": (length,), "terminated": (length,), "truncated": (length,)}
    bools = ("action_mask", "terminated", "truncated")
    values = {
        name: draw(hnp.arrays(np.bool_ if name in bools else np.float32, one)) for name, one in shape.items()
    }
    obs = draw(st.dictionaries(words, arrays, max_size=4))
    return Transitions(start_step=draw(counts), obs=obs, **values)


chunks = st.builds(TrajectoryChunk, words, counts, st.none() | columns())
receipts = st.builds(
    Receipt,
    state=st.sampled_from(("taken", "again", "rejected", "unknown", "finished")),
    version=counts,
    warming_up=st.dictionaries(words, st.booleans(), max_size=3),
    lessons=st.dictionaries(words, words, max_size=3),
    reason=words,
)
rows = st.lists(counts, max_size=4).map(tuple)
lines = st.lists(words, max_size=4).map(tuple)
messages = st.one_of(
    st.builds(Hello, protocol=counts, actor=words, host=words, pid=counts),
    st.builds(
        Welcome,
        run=words,
        learner=words,
        seed=counts,
        slot=counts,
        number=counts,
        synchronous=st.booleans(),
        heartbeat=reals,
    ),
    st.builds(
        Join,
        actor=words,
        agreed=words,
        version=counts,
        channels=rows,
        taken_steps=counts,
    ),
    st.builds(
        Refused,
        why=st.sampled_from(("protocol", "full", "differs", "malformed", "oversize")),
        reason=words,
        differences=lines,
        fix=words,
    ),
    st.builds(
        TrajectoryMessage,
        actor=words,
        channel=counts,
        number=counts,
        version=counts,
        chunks=st.lists(chunks, max_size=3).map(tuple),
        episodes=st.lists(st.tuples(words, counts, reals, counts), max_size=3).map(tuple),
        gone=st.lists(st.tuples(words, counts), max_size=3).map(tuple),
        dropped=counts,
    ),
    st.builds(Beat, actor=words, version=counts, steps=counts, waiting=counts, dropped=counts),
    receipts,
    st.builds(WeightRequest, actor=words, newer_than=counts),
    st.builds(Bye, actor=words, reason=words),
)


def same(a: object, b: object) -> bool:
    """Whether two values are of the same types and the same bit for bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, msgspec.Struct):
        names = a.__struct_fields__
        return type(a) is type(b) and all(same(getattr(a, name), getattr(b, name)) for name in names)
    return type(a) is type(b) and a == b


def transitions(spec: AgentSpec, length: int, carry: tuple[int, ...] = (0,)) -> Transitions:
    """``length`` transitions of ``spec`` without meaning."""
    rng = np.random.default_rng(length)
    obs = {
        name: rng.integers(0, 2, (length + 1, *shape)).astype(dtype)
        for name, shape, dtype in spec.obs.items()
    }
    action = spec.action
    return Transitions(
        start_step=0,
        obs=obs,
        action_mask=action.all_allowed(length + 1),
        carry=rng.normal(size=(length + 1, *carry)).astype(np.float32),
        action=action.padding(length),
        z=np.zeros((length, action.continuous), np.float32),
        behaviour_logp=np.zeros((length, action.num_heads), np.float32),
        reward=np.ones(length, np.float32),
        terminated=np.zeros(length, np.bool_),
        truncated=np.zeros(length, np.bool_),
    )


def trajectory(
    *pieces: TrajectoryChunk, number: int = 1, episodes: tuple[tuple[str, int, float, int], ...] = ()
) -> TrajectoryMessage:
    """A trajectory of ``pieces``."""
    return TrajectoryMessage(
        actor="0123456789abcdef",
        channel=0,
        number=number,
        version=1,
        chunks=pieces,
        episodes=episodes,
        dropped=0,
    )


HELLO = Hello(protocol=1, actor="a", host="h", pid=1)
WELCOME = Welcome(run="r", learner="l", seed=1, slot=0, number=0, synchronous=False, heartbeat=2.0)
TAKEN = Receipt(state="taken", version=7, warming_up={"default": False})
JOIN = Join(actor="a", agreed='{"x": [1, {"y": null}]}', version=0, channels=(0, 3), taken_steps=5)
