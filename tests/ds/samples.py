"""Messages for the tests, and how two are compared."""

from collections.abc import Mapping

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from algorithm.core.data import StepBatch
from algorithm.core.spec import AgentSpec
from ds.net.protocol import (
    Beat,
    Bye,
    Episodes,
    Hello,
    Join,
    Receipt,
    Refused,
    StepMessage,
    WeightRequest,
    Welcome,
)
from ds.net.wire import DTYPES
from tests.ds.messages import segment, steps_of

MESSAGES = (Hello, Welcome, Join, Refused, StepMessage, Beat, Receipt, WeightRequest, Bye)

words = st.text(max_size=20)
counts = st.integers(-(2**63), 2**64 - 1)
totals = st.integers(0, 2**53)
reals = st.floats(allow_nan=False)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)


bools = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5))
named = st.dictionaries(words, arrays, max_size=4)
batches = st.builds(
    StepBatch,
    obs=named,
    next_obs=named,
    lag=counts,
    **dict.fromkeys(("streams", "start_steps", "action", "z", "behaviour_logp", "reward", "carry"), arrays),
    **dict.fromkeys(("action_mask", "next_action_mask", "terminated", "truncated"), bools),
    next_carry=arrays,
)
receipts = st.builds(
    Receipt,
    state=st.sampled_from(("taken", "again", "rejected", "unknown", "finished")),
    version=counts,
    warming_up=st.dictionaries(words, st.booleans(), max_size=3),
    lessons=st.dictionaries(words, words, max_size=3),
    reason=words,
)
lines = st.lists(words, max_size=4).map(tuple)
messages = st.one_of(
    st.builds(Hello, protocol=counts, actor=words.filter(bool), host=words, pid=st.integers(0, 2**32)),
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
        version=totals,
        number=totals,
        taken_steps=totals,
    ),
    st.builds(
        Refused,
        why=st.sampled_from(("protocol", "full", "differs", "malformed", "oversize")),
        reason=words,
        differences=lines,
        fix=words,
    ),
    st.builds(
        StepMessage,
        actor=words,
        number=st.integers(1, 2**53),
        version=totals,
        dropped=totals,
        closed=named,
        steps=st.dictionaries(words, batches, max_size=2),
        episodes=st.dictionaries(
            words, st.builds(Episodes, agents=arrays, returns=arrays, lengths=arrays), max_size=2
        ),
        agents=named,
    ),
    st.builds(Beat, actor=words, version=totals, steps=totals, waiting=st.integers(0, 99), dropped=totals),
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
    if isinstance(a, StepBatch) and isinstance(b, StepBatch):
        return same(a.columns(), b.columns()) and a.lag == b.lag
    return type(a) is type(b) and a == b


def steps(spec: AgentSpec, length: int, carry: tuple[int, ...] = (0,)) -> StepBatch:
    """``length`` transitions of one agent of ``spec``."""
    return steps_of(segment(spec, length=length, carry=carry))


def step_message(number: int = 1, **steps: StepBatch) -> StepMessage:
    """A message of ``steps``, by behaviour, whose agent 0 is there afterwards."""
    return StepMessage(
        actor="0123456789abcdef",
        number=number,
        version=1,
        dropped=0,
        closed={},
        steps=steps,
        episodes={},
        agents={name: np.zeros(1, np.int64) for name in steps},
    )


HELLO = Hello(protocol=1, actor="a", host="h", pid=1)
WELCOME = Welcome(run="r", learner="l", seed=1, slot=0, number=0, synchronous=False, heartbeat=2.0)
TAKEN = Receipt(state="taken", version=7, warming_up={"default": False})
JOIN = Join(actor="a", agreed='{"x": [1, {"y": null}]}', version=0, number=3, taken_steps=5)
