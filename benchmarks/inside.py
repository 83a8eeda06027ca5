"""The parts of this project that some questions measure by themselves; nowhere else are its insides used.

What is distributed is measured in ``inbox_*.py``, checkpoints in ``checkpoints.py``.
"""

from __future__ import annotations

from typing import Any

import torch

from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.agents.roles import AgentInputs
from algorithm.agents.sac.family import SAC
from algorithm.config import load_config
from algorithm.core.data import Demonstrations, Segment
from algorithm.core.spec import AgentSpec
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import PrioritizedSampler, UniformSampler

SAMPLERS = {"prioritised": PrioritizedSampler, "uniform": UniformSampler}


def make_replay(
    spec: AgentSpec, *, capacity: int, batch_size: int = 256, kind: str = "prioritised", **more: Any
) -> ReplayBuffer:
    """An empty replay."""
    sampler: Any = SAMPLERS[kind]()
    return ReplayBuffer(spec, capacity=capacity, batch_size=batch_size, sampler=sampler, seed=0, **more)


def fill(replay: ReplayBuffer, segment: Segment, rows: int) -> None:
    """Add one episode again and again, as long as another one fits into so many rows."""
    for _ in range(rows // (segment.length + 1)):
        replay.add(segment)


def make_agent(
    spec: AgentSpec,
    folder: str,
    section: str | None,
    changes: list[str],
    seed: int,
    shown: Demonstrations | None = None,
    device: str = "cpu",
) -> OffPolicyAgent:
    """The agent that ``main.py`` would train with these keys; preset: plain unless one is named."""
    config = load_config(folder, section, changes).config
    return OffPolicyAgent(
        SAC,
        AgentInputs(
            spec,
            config,
            nn_file=None,
            behaviour="default",
            seed=seed,
            device=torch.device(device),
            memory=MemoryBudget(),
            demonstrations=shown,
        ),
    )
