"""Trajectories as actors make them, of every kind of observation and action."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from algorithm.core.data import Segment
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.net.protocol import TrajectoryChunk, TrajectoryMessage, Transitions

ACTOR = "a1b2"

SPECS = {
    "vector": AgentSpec(ObsSpec(("obs",), ((4,),), ("float32",)), ActionSpec((), 2)),
    "camera": AgentSpec(ObsSpec(("camera",), ((3, 3, 1),), ("uint8",)), ActionSpec((3,), 0)),
    "mixed": AgentSpec(
        ObsSpec(("vector", "count", "flag"), ((2,), (), (2, 2)), ("float32", "int32", "bool")),
        ActionSpec((3, 2), 1),
    ),
    "choices": AgentSpec(
        ObsSpec(("one", "many"), ((), (2,)), ("int64", "uint8"), categories=((5,), (2, 3))),
        ActionSpec((2,), 0),
    ),
    "stack": AgentSpec(ObsSpec(("frames",), ((3, 2, 2),), ("uint8",), stacks=(3,)), ActionSpec((), 1)),
    "memory": AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec((2,), 2)),
}
CARRIES = {name: (2, 3) if name == "memory" else (0,) for name in SPECS}
"""By behaviour; the replay's own tests know these dimensions as C."""


def segment(
    behaviour: str = "vector",
    *,
    agent: int = 0,
    start: int = 0,
    length: int = 3,
    terminated: bool = False,
    truncated: bool = False,
    seed: int = 0,
) -> Segment:
    """``length`` steps from step ``start`` on, with random numbers that follow from ``seed``."""
    spec, rng, n = SPECS[behaviour], np.random.default_rng((seed, agent, start)), length + 1
    obs: dict[str, np.ndarray] = {}
    for (name, shape, dtype), counts in zip(spec.obs.items(), spec.obs.categories, strict=True):
        if counts:
            value = rng.integers(np.array(counts).reshape(shape), size=(n, *shape))
        elif dtype == "float32":
            value = rng.normal(size=(n, *shape))
        else:
            value = rng.integers(2 if dtype == "bool" else 100, size=(n, *shape))
        obs[name] = np.asarray(value).astype(dtype)
    mask = rng.random((n, spec.action.discrete)) < 0.6
    for branch in spec.action.branch_slices:
        mask[np.arange(n), branch.start + rng.integers(branch.stop - branch.start, size=n)] = True
    action, z, logp = spec.action.random(rng, mask[:-1])
    ends = np.arange(length) == length - 1
    return Segment(
        stream=agent,
        start_step=start,
        obs=obs,
        action_mask=mask,
        carry=rng.normal(size=(n, *CARRIES[behaviour])).astype(np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=rng.normal(size=length).astype(np.float32),
        terminated=ends & terminated,
        truncated=ends & truncated,
    )


def chunk(behaviour: str = "vector", **kwargs) -> TrajectoryChunk:
    """A chunk of one segment; arguments are those of :func:`segment`."""
    one = segment(behaviour, **kwargs)
    return TrajectoryChunk(behaviour, one.stream, transitions_of(one))


def chunks_of(steps: int) -> tuple[TrajectoryChunk, ...]:
    """A chunk of so many transitions, or none."""
    return (chunk(length=steps),) if steps else ()


def transitions_of(one: Segment) -> Transitions:
    """The transitions of a segment as they are sent."""
    return Transitions(**{name: getattr(one, name) for name in Transitions.__struct_fields__})


def trajectory(*chunks: TrajectoryChunk, **changes) -> TrajectoryMessage:
    """Number 1 of channel 0, by default with one episode of three steps."""
    if not chunks:
        chunks = (chunk(terminated=True),)
    plain = TrajectoryMessage(
        actor=ACTOR,
        channel=0,
        number=1,
        version=0,
        chunks=chunks,
        episodes=(),
        dropped=0,
    )
    return replace(plain, **changes)


def with_column(one: TrajectoryChunk, name: str, value) -> TrajectoryChunk:
    """The same chunk with another value of a field of its segment."""
    assert one.transitions is not None
    return replace(one, transitions=replace(one.transitions, **{name: value}))


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
