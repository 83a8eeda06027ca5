"""Messages between the process of a run and the workers that train its networks. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from algorithm.agents.roles import Contribution
from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Episode
from algorithm.env.objects import EnvSource

GRANT = b""
"""Permission for one more rollout. It is small: a parent that sends must not wait for a worker that does."""


@dataclass(frozen=True)
class Shares:
    """Memory of the weights: its name, and how many numbers of which behaviour it holds.

    sizes: of weights; widths: of running statistics
    """

    name: str
    sizes: Mapping[str, Sequence[int]]
    widths: Mapping[str, int]


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
    given:    what its environment is had from instead of a name
    """

    index: int
    n: int
    loaded: LoadedConfig
    seed: int
    networks: Path
    task: str
    files: Path
    render: bool
    given: EnvSource | None = None

    def number(self, agent: int) -> int:
        """Return the id that the worker's agent has in the run, where no other one has it."""
        return agent * self.n + self.index


@dataclass(frozen=True, kw_only=True)
class Report:
    """Steps, episodes and updates of a worker for one grant.

    steps:    transitions, by behaviour
    episodes: that ended; agents: that are there now
    work:     by behaviour
    lines:    for the console
    restarts, dropped: environments that were restarted, episodes that were dropped
    """

    steps: Mapping[str, int]
    episodes: Sequence[Episode]
    agents: frozenset[tuple[str, int]]
    work: Mapping[str, Contribution]
    lines: Sequence[str] = field(default_factory=list)
    restarts: int = 0
    dropped: int = 0
