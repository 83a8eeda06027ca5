"""Weights and counts in memory that several processes share, without a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
from torch import Tensor

from algorithm.core.data import Int


class SharedWeights:
    """Weights and running statistics of the agents, in memory shared with n workers, and the workers' counts.

    The system's resource tracker removes the memory if the process that created it is killed.

    sizes: behaviour -> numbers of each of its weights, in single precision
    widths: behaviour -> numbers of its running statistics, in double precision
    n:     workers
    base:  steps of the run before its workers started
    name:  of existing memory to open; without it, memory is created, which :meth:`close` removes

    Attributes: steps [n], which each worker counts; weights and statistics by behaviour, as views.
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
        views = iter(rest.split([size for layers in sizes.values() for size in layers]))
        self.weights = {name: [next(views) for _ in layers] for name, layers in sizes.items()}
        if self._owns:
            whole[:] = 0
            self._base[0] = base

    @property
    def name(self) -> str:
        """Name by which another process opens the memory."""
        return self._memory.name

    @property
    def run_step(self) -> int:
        """Steps that all workers have taken, and those before they started."""
        return int(self._base[0] + self.steps.sum())

    def updates(self, behaviour: str) -> Int:
        """Return a view [n] of the number of updates of each worker, which counts its own there."""
        row: Int = self._updates[self._rows[behaviour]]
        return row

    def progress(self, worker: int) -> int:
        """Return the worker's steps and updates, a number that grows with its progress."""
        return int(self.steps[worker] + self._updates[:, worker].sum())

    def write(self, behaviour: str, weights: Sequence[Tensor]) -> None:
        """Copy weights into the shared memory of a behaviour."""
        for shared, weight in zip(self.weights[behaviour], weights, strict=True):
            shared.copy_(weight)

    def read(self, behaviour: str, weights: Sequence[Tensor]) -> None:
        """Copy the shared weights of a behaviour into ``weights``."""
        for shared, weight in zip(self.weights[behaviour], weights, strict=True):
            weight.copy_(shared)

    def close(self) -> None:
        """Release the memory; its creator removes it. The weights are gone afterwards."""
        del self.weights, self.statistics, self.steps, self._base, self._updates
        self._memory.close()
        if self._owns:
            self._memory.unlink()
