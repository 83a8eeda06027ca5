"""Target networks: slowly following copies without gradient."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from algorithm.nn.learning.flat import FlatParameters


class Target:
    """Copies of ``modules`` whose parameters follow by Polyak averaging.

    modules: the copies, in the order of the originals
    flat:    their parameters

    online: [P] storage of the originals' parameters
    """

    def __init__(self, modules: Sequence[nn.Module], online: Tensor) -> None:
        self._originals = tuple(modules)
        self.modules = tuple(copy.deepcopy(module).requires_grad_(False) for module in modules)
        self._online = online
        self.flat = FlatParameters(self.modules, with_grad=False)
        if len(self.flat) != len(online):
            raise ValueError("Target: modules and online must hold the same parameters")

    @torch.no_grad()
    def polyak_(self, tau: float) -> None:
        """Update by ``θ' ← θ' + τ (θ − θ')`` in one kernel; buffers (statistics) are copied as they are."""
        self.flat.data.lerp_(self._online, tau)
        for original, module in zip(self._originals, self.modules, strict=True):
            for own, source in zip(module.buffers(), original.buffers(), strict=True):
                own.copy_(source)


class NoTarget:
    """Absent target networks: the online ones stand for them (CrossQ, arXiv 1902.05605).

    modules: the online networks
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = tuple(modules)

    def polyak_(self, tau: float) -> None:
        """Do nothing: nothing follows."""
