"""Weights and counts in memory that several processes share, without a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithm.agents.roles import Contributor


@dataclass(frozen=True)
class SharedWeights:
    """Weights and running statistics of the agents, by behaviour, and the counts of n workers.

    The tensors are in shared memory, also those of a copy that came through a pipe. The system frees it with
    the last process that has it open.

    steps:   [n] steps of each worker, which counts its own
    updates: [n] updates of each worker, by behaviour, likewise
    base:    steps of the run before its workers started
    """

    weights: Mapping[str, Sequence[Tensor]]
    statistics: Mapping[str, Tensor]
    steps: Tensor
    updates: Mapping[str, Tensor]
    base: int

    @classmethod
    def of(cls, agents: Mapping[str, Contributor], n: int, base: int) -> SharedWeights:
        """Return copies of the agents' weights and statistics, for n workers."""
        return cls(
            {name: [_shared(weight) for weight in agent.weights()] for name, agent in agents.items()},
            {name: _shared(agent.statistics()) for name, agent in agents.items()},
            _shared(torch.zeros(n, dtype=torch.int64)),
            {name: _shared(torch.zeros(n, dtype=torch.int64)) for name in agents},
            base,
        )

    @property
    def run_step(self) -> int:
        """Steps that all workers have taken, and those before they started."""
        return self.base + int(self.steps.sum())

    def progress(self, worker: int) -> int:
        """Return the worker's steps and updates, a number that grows with its progress."""
        return int(self.steps[worker] + sum(updates[worker] for updates in self.updates.values()))

    def read(self, behaviour: str, weights: Sequence[Tensor]) -> None:
        """Copy the shared weights of a behaviour into ``weights``."""
        for shared, weight in zip(self.weights[behaviour], weights, strict=True):
            weight.copy_(shared)


def _shared(tensor: Tensor) -> Tensor:
    """Return a copy in shared memory."""
    shared: Tensor = tensor.detach().clone().share_memory_()
    return shared
