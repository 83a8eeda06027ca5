"""Free memory of machines and control groups, what a replay takes, and the refusal of one that cannot fit."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.core.system.memory import free_memory
from algorithm.replay import PrioritizedSampler, ReplayBuffer, UniformSampler
from algorithm.replay.budget import MemoryBudget, largest_capacity, replay_bytes
from algorithm.replay.storage import MAX_CAPACITY
from tests.lib.oracles_replay import DISCRETE, KINDS, MIXED, STACKED, VECTOR

GB = 2**30
PIXELS = AgentSpec(ObsSpec(("obs",), ((84, 84, 3),), ("uint8",)), ActionSpec((), 6))


@pytest.mark.parametrize(
    ("groups", "own", "free"),
    [
        ({"job": (10 * GB, 4 * GB, GB)}, "/job", 7 * GB),  # what gives way when needed does not count
        (  # the tightest group on the way up
            {"": ("max", 0, 0), "user": (8 * GB, 3 * GB, 0), "user/b": (9 * GB, GB, 0), "c": (GB, GB, 0)},
            "/user/b",
            5 * GB,
        ),
        ({"": ("max", GB, 0)}, "/", 100 * GB),
        ({"": (6 * GB, GB, 0)}, "/docker/0123", 5 * GB),  # a container that shows only its root
        ({"": (6 * GB, GB, 0)}, "/../../sibling", 5 * GB),
        ({"": (GB, 2 * GB, 0)}, "/", 0),  # over its limit
        ({"job": (GB, 0, 0)}, "/gone", 100 * GB),
    ],
)  # fmt: skip
def test_free_memory_is_that_of_the_machine_and_of_each_control_group(
    tmp_path: Path, monkeypatch, groups, own, free
):
    """On a machine with 100 GB free."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100 * GB))
    for path, (limit, used, cache) in groups.items():
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 7\ninactive_file {cache}\nactive_file 7\n")
    membership = tmp_path / "membership"
    membership.write_text(f"2:cpu:/job\n1:name=systemd:/\n0::{own}\n")
    assert free_memory(tmp_path, membership) == free
    assert free_memory(tmp_path, tmp_path / "nowhere") == 100 * GB, "not Linux"


@given(
    spec=st.sampled_from([VECTOR, MIXED, DISCRETE, KINDS, STACKED]),
    capacity=st.one_of(st.integers(2, 5000), st.sampled_from([2**16, 2**16 + 1, 524_289])),
    carry_shape=st.sampled_from([(), (0,), (7,), (2, 3)]),
    prioritised=st.booleans(),
)
def test_bytes_are_what_the_replay_says_of_itself(spec, capacity, carry_shape, prioritised):
    """The largest capacity for them is that one, and with a byte less one row less."""
    sampler = PrioritizedSampler() if prioritised else UniformSampler()
    buffer = ReplayBuffer(spec, capacity=capacity, batch_size=1, carry_shape=carry_shape, sampler=sampler)
    found = replay_bytes(spec, capacity, carry_shape, prioritised=prioritised)
    assert found == buffer.nbytes
    rows = [
        largest_capacity(spec, n, carry_shape, prioritised=prioritised) for n in (found - 1, found, 2**60)
    ]
    assert rows == [capacity - 1 if capacity > 2 else 0, capacity, MAX_CAPACITY]


def reserve(budget: MemoryBudget, behaviour: str, capacity: int) -> str:
    """Return what is advised where it is refused."""
    try:
        budget.reserve(
            behaviour,
            capacity=capacity,
            needed=replay_bytes(PIXELS, capacity, prioritised=True),
            largest_capacity=lambda n: largest_capacity(PIXELS, n, prioritised=True),
            key="replay_config.capacity",
        )
    except UsageError as error:
        return error.fix
    return ""


def test_a_replay_that_cannot_fit_is_refused_with_the_number_that_would():
    """21168 of the image, 4·(6 + 1 + 1) acting half, 12 links, 8.26 tree: 21,220 bytes a row; 0.9 · 12 GB."""
    budget = MemoryBudget(12 * GB)
    assert "546000 or less" in reserve(budget, DEFAULT_BEHAVIOUR, 1_000_000)
    assert not reserve(budget, "walker", 400_000), "what was refused took nothing"
    assert "146000 or less" in reserve(budget, "chaser", 400_000), "several share what is free"
    assert not reserve(budget, "chaser", 146_000)
    assert reserve(MemoryBudget(1000), DEFAULT_BEHAVIOUR, 100).startswith("free some memory"), (
        "not even two rows"
    )
    assert 0 < MemoryBudget().free <= psutil.virtual_memory().total


def test_bytes_of_a_row_by_hand():
    pixels = AgentSpec(ObsSpec(("obs",), ((4, 84, 84),), ("uint8",), stacks=(4,)), ActionSpec((6,), 0))
    row = 84 * 84 + (6 + 6) + 4 * (1 + 1) + 12  # newest frame; mask, one-hot; log-probability, reward; links
    assert replay_bytes(pixels, 1000, prioritised=False) == 1000 * row
    assert replay_bytes(pixels, 1000, (256,), prioritised=True) == 1000 * (row + 4 * 256 + 8)
