"""Weights and counts in memory that several processes share, without a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import Int


class SharedWeights:
    """Weights and running statistics of the agents that n workers train, and what the workers have done.

    The system's resource tracker removes the memory if the process that created it is killed.

    sizes: behaviour -> numbers of each of its weights, in single precision
    widths: behaviour -> numbers of its running statistics, in double precision
    n:     workers
    base:  steps of the run before
    name:  of existing memory to open; without it memory is created, which :meth:`close` removes
    """

    def __init__(
        self,
        sizes: Mapping[str, Sequence[int]],
        widths: Mapping[str, int],
        n: int,
        *,
        base: int = 0,
        name: str | None = None,
    ) -> None:
        counts = (len(sizes) + 1) * n + 1
        doubles, floats = sum(widths.values()), sum(map(sum, sizes.values()))
        self._owns = name is None
        size = 8 * (counts + doubles) + 4 * floats
        self._memory = SharedMemory(name, create=self._owns, size=size if self._owns else 0)
        whole = np.ndarray((counts,), np.int64, self._memory.buf)
        self._base, self.steps = whole[:1], whole[1 : n + 1]  # [n]: each worker writes its own number
        self._updates: Int = whole[n + 1 :].reshape(len(sizes), n)
        self._rows = {name: row for row, name in enumerate(sizes)}
        known = torch.from_numpy(np.ndarray((doubles,), np.float64, self._memory.buf, 8 * counts))
        self.statistics = dict(zip(widths, known.split([*widths.values()]), strict=True))
        begin = 8 * (counts + doubles)
        rest = torch.from_numpy(np.ndarray((floats,), np.float32, self._memory.buf, begin))
        parts = iter(rest.split([size for own in sizes.values() for size in own]))
        self.weights = {name: [next(parts) for _ in own] for name, own in sizes.items()}
        if self._owns:
            whole[:] = 0
            self._base[0] = base

    @property
    def name(self) -> str:
        """Name by which another process opens the memory."""
        return self._memory.name

    @property
    def run_step(self) -> int:
        """Steps of the run."""
        return int(self._base[0] + self.steps.sum())

    def updates(self, behaviour: str) -> Int:
        """Return the updates [n] of each worker, which it writes itself."""
        row: Int = self._updates[self._rows[behaviour]]
        return row

    def progress(self, worker: int) -> int:
        """Return a number that grows as the worker gets on."""
        return int(self.steps[worker] + self._updates[:, worker].sum())

    def write(self, behaviour: str, weights: Sequence[Tensor]) -> None:
        """Set the weights of an agent."""
        for own, given in zip(self.weights[behaviour], weights, strict=True):
            own.copy_(given)

    def read(self, behaviour: str, weights: Sequence[Tensor]) -> None:
        """Copy the weights of an agent into its own."""
        for own, taken in zip(self.weights[behaviour], weights, strict=True):
            taken.copy_(own)

    def close(self) -> None:
        """Release the memory; its creator removes it. The weights are gone afterwards."""
        del self.weights, self.statistics, self.steps, self._base, self._updates
        self._memory.close()
        if self._owns:
            self._memory.unlink()
