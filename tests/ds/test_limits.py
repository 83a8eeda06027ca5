from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.limits import SMALLEST_LIMIT, largest_trajectory, message_limit
from ds.protocol import TrajectoryChunk
from ds.wire import encode
from tests.ds.samples import trajectory, transitions

dtypes = st.sampled_from(("float32", "uint8", "bool", "int64"))
shapes = st.lists(st.integers(1, 6), max_size=3).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> AgentSpec:
    names = draw(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4, unique=True))
    obs = ObsSpec(tuple(names), tuple(draw(shapes) for _ in names), tuple(draw(dtypes) for _ in names))
    branches = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    return AgentSpec(obs, ActionSpec(branches, draw(st.integers(0 if branches else 1, 4))))


def actual(name: str, spec: AgentSpec, carry: tuple[int, ...], length: int, agents: int) -> int:
    """Bytes of a real trajectory whose numbers take as much as numbers can."""
    long = 2**63
    chunk = TrajectoryChunk(name, long, transitions(spec, length, carry, priority=True))
    episodes = ((name, long, 1.0, long),) * agents
    return len(encode(trajectory(*[chunk] * agents, number=long, episodes=episodes)))


@given(specs(), st.sampled_from(((0,), (8,), (2, 16))), st.integers(1, 60), st.text(max_size=40))
@settings(max_examples=30)
def test_the_limit_is_a_little_above_the_largest_segment(
    spec: AgentSpec, carry: tuple[int, ...], length: int, name: str
) -> None:
    limit = largest_trajectory({name: spec}, {name: carry}, length)
    real = actual(name, spec, carry, length, 1)
    assert real <= limit <= 1.2 * real + 64 * 1024


IMAGE = AgentSpec(ObsSpec(("obs",), ((84, 84, 4),), ("uint8",)), ActionSpec((6,)))
VECTOR = AgentSpec(ObsSpec(("obs",), ((27,),), ("float32",)), ActionSpec(continuous=8))


@pytest.mark.parametrize("carry", [(0,), (2, 16)])
def test_every_column_of_a_long_segment_is_counted(carry: tuple[int, ...]) -> None:
    """One byte a transition too few or too many is forty thousand."""
    spec = AgentSpec(ObsSpec(("a", "b"), ((1,), (2,)), ("bool", "float32")), ActionSpec((3, 2), 2))
    real = actual("leg", spec, carry, 40_000, 1)
    assert real <= largest_trajectory({"leg": spec}, {"leg": carry}, 40_000) <= real + 20_000


def test_of_several_behaviours_the_largest_counts() -> None:
    both = {"eye": IMAGE, "leg": VECTOR}
    carries = {"eye": (0,), "leg": (2, 64)}
    limit = largest_trajectory(both, carries, 50)
    for name, spec in both.items():
        assert actual(name, spec, carries[name], 50, 1) <= limit
    assert limit <= 1.2 * actual("eye", IMAGE, (0,), 50, 1) + 64 * 1024


@pytest.mark.parametrize("agents", [1, 7, 300])
def test_a_step_of_all_agents_fits_too(agents: int) -> None:
    limit = largest_trajectory({"leg": VECTOR}, {"leg": (0,)}, 1, agents=agents)
    real = actual("leg", VECTOR, (0,), 1, agents)
    assert real <= limit <= 1.2 * real + 64 * 1024


def test_the_other_messages_always_fit() -> None:
    assert message_limit({"leg": VECTOR}, {"leg": (0,)}, 1) == SMALLEST_LIMIT
    assert message_limit({"eye": IMAGE}, {"eye": (0,)}, 500) > 500 * 84 * 84 * 4
