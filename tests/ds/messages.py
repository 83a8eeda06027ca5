"""Messages as actors make them, of every kind of observation and action."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import structs

from algorithm.core.data import Segment, StepBatch
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.net.protocol import Episodes, StepMessage

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
    behaviour: str | AgentSpec = "vector",
    *,
    carry: tuple[int, ...] = (0,),
    agent: int = 0,
    start: int = 0,
    length: int = 3,
    terminated: bool = False,
    truncated: bool = False,
    seed: int = 0,
) -> Segment:
    """``length`` steps from step ``start`` on, with random numbers that follow from ``seed``.

    carry: shape of those of a spec that is no behaviour's
    """
    if isinstance(behaviour, str):
        spec, carry = SPECS[behaviour], CARRIES[behaviour]
    else:
        spec = behaviour
    rng, n = np.random.default_rng((seed, agent, start)), length + 1
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
        carry=rng.normal(size=(n, *carry)).astype(np.float32),
        action=action,
        z=z,
        behaviour_logp=logp,
        reward=rng.normal(size=length).astype(np.float32),
        terminated=ends & terminated,
        truncated=ends & truncated,
    )


class Chunk(NamedTuple):
    """Consecutive transitions of one agent; without any its open episode ends where it is."""

    behaviour: str
    agent: int
    steps: StepBatch | None


def chunk(behaviour: str = "vector", **kwargs) -> Chunk:
    """A chunk of one segment; arguments are those of :func:`segment`."""
    one = segment(behaviour, **kwargs)
    return Chunk(behaviour, one.stream, steps_of(one))


def chunks_of(steps: int) -> tuple[Chunk, ...]:
    """A chunk of so many transitions, or none."""
    return (chunk(length=steps),) if steps else ()


def steps_of(one: Segment) -> StepBatch:
    """The transitions of a segment as rows, of which each follows the one before."""
    columns = vars(one)
    return StepBatch(
        streams=np.full(one.length, one.stream),
        start_steps=one.start_step + np.arange(one.length),
        obs={name: value[:1] for name, value in one.obs.items()},
        next_obs={name: value[1:] for name, value in one.obs.items()},
        **{name: columns[name][:1] for name in ("action_mask", "carry")},
        **{f"next_{name}": columns[name][1:] for name in ("action_mask", "carry")},
        **{name: columns[name] for name in ("action", "z", "behaviour_logp", "reward")},
        **{name: columns[name] for name in ("terminated", "truncated")},
    )


def together(batches: Sequence[StepBatch]) -> StepBatch:
    """All their rows, one batch after the other, as one."""
    if len(batches) == 1:
        return batches[0]
    own = ("obs", "action_mask", "carry")
    whole = []
    for one in batches:
        columns = one.columns()
        for name, value in columns.items():
            if name.partition("/")[0] in own:
                columns[name] = one.acted_on(value, columns[f"next_{name}"])
        whole.append(columns)
    found = {name: np.concatenate([columns[name] for columns in whole]) for name in whole[0]}
    follows = StepBatch.of_columns(found).follows
    for name in found if follows is not None else ():
        if name.partition("/")[0] in own:
            found[name] = found[name][follows < 0]
    return StepBatch.of_columns(found)


def by_behaviour(pairs: Iterable[tuple[str, object]]) -> dict[str, list]:
    """Behaviour -> what comes with it, in its order."""
    found: dict[str, list] = {}
    for behaviour, one in pairs:
        found.setdefault(behaviour, []).append(one)
    return found


def ids(agents: Iterable[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Behaviour -> agents, each once."""
    return {name: np.array(list(dict.fromkeys(of_one))) for name, of_one in by_behaviour(agents).items()}


def episodes_of(*ended: tuple[str, int, float, int]) -> dict[str, Episodes]:
    """Of behaviour, agent, return and length of each."""
    found = by_behaviour((behaviour, rest) for behaviour, *rest in ended)
    return {
        name: Episodes(
            agents=np.array([one[0] for one in rows]),
            returns=np.array([one[1] for one in rows], np.float64),
            lengths=np.array([one[2] for one in rows]),
        )
        for name, rows in found.items()
    }


def step_message(*chunks: Chunk, ended: Sequence[tuple[str, int, float, int]] = (), **changes) -> StepMessage:
    """Message 1, by default with one episode of three steps; ``ended``: episodes.

    All agents in it are there afterwards.
    """
    if not chunks and "steps" not in changes:
        chunks = (chunk(terminated=True),)
    steps = by_behaviour((one.behaviour, one.steps) for one in chunks if one.steps is not None)
    plain = StepMessage(
        actor=ACTOR,
        number=1,
        version=0,
        dropped=0,
        closed=ids((one.behaviour, one.agent) for one in chunks if one.steps is None),
        steps={name: together(batches) for name, batches in steps.items()},
        episodes=episodes_of(*ended),
        agents=ids((one.behaviour, one.agent) for one in chunks),
    )
    return structs.replace(plain, **changes)


def with_column(one: Chunk, name: str, value) -> Chunk:
    """The same chunk with another value of a field of its steps."""
    assert one.steps is not None
    return one._replace(steps=replace(one.steps, **{name: value}))


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
