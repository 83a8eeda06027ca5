"""Messages between the process of a run and the workers that train its networks. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.agents.roles import Contribution
from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Episode
from algorithm.env.sources import EnvSource

GRANT = b""
"""Permission for one more rollout. It is small, so that the parent never blocks while it sends one."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Inputs of a worker.

    index:    of ``n`` workers
    loaded:   configuration of the run
    seed:     of all random numbers of the worker
    networks: folder of ``nn.py``
    task:     as the command line names it
    files:    folder of the run
    render:   show the environment
    source:   makes its environment, instead of a name
    """

    index: int
    n: int
    loaded: LoadedConfig
    seed: int
    networks: Path
    task: str
    files: Path
    render: bool
    source: EnvSource | None = None

    def number(self, agent: int) -> int:
        """Return an id for the worker's agent that is unique among all workers."""
        return agent * self.n + self.index


@dataclass(frozen=True, kw_only=True)
class Report:
    """Steps, episodes and updates of a worker for one grant.

    steps:    number of transitions, by behaviour
    episodes: those that ended
    agents:   (behaviour, id in the run) of those that are there now
    work:     metrics and statistics, by behaviour
    lines:    for the console
    restarts, dropped: numbers of restarted environments and of dropped episodes
    """

    steps: Mapping[str, int]
    episodes: Sequence[Episode]
    agents: frozenset[tuple[str, int]]
    work: Mapping[str, Contribution]
    lines: Sequence[str] = field(default_factory=list)
    restarts: int = 0
    dropped: int = 0
