"""Parameters of one optimiser as views of one tensor, gradients as views of another, and slow copies.

One fused Adam step and one ``lerp_`` then replace a kernel per tensor: in small networks these kernels take
most of an update's time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatParameters:
    """One storage for the parameters of ``modules``, which become views of it.

    Parameters must be on one device and of one dtype, and must not be replaced afterwards (no ``.to()``).
    Modules that alias parameters of others (:class:`~algorithm.nn.ensemble.Ensemble`) offer ``realias()``.

    data:  [P] all parameters
    grad:  [P] their gradients; None if ``with_grad`` is false
    parts: range of each parameter in ``data``, in order
    Raises ``ValueError`` for mixed devices or dtypes.
    """

    def __init__(self, modules: Sequence[nn.Module], *, with_grad: bool = True) -> None:
        parameters = list(nn.ModuleList(modules).parameters())
        kinds = {(p.device, p.dtype) for p in parameters}
        if len(kinds) > 1:
            raise ValueError(f"FlatParameters: all parameters need one device and dtype, got {kinds}")
        device, dtype = kinds.pop() if kinds else (torch.device("cpu"), torch.float32)
        size = sum(p.numel() for p in parameters)
        self.data = torch.empty(size, device=device, dtype=dtype)
        self.parts: list[range] = []
        self.grad: Tensor | None = torch.zeros_like(self.data) if with_grad else None
        start = 0
        for p in parameters:
            view = self.data[start : start + p.numel()].view(p.shape)
            view.copy_(p.detach())
            p.data = view
            if self.grad is not None:
                p.grad = self.grad[start : start + p.numel()].view(p.shape)
            self.parts.append(range(start, start + p.numel()))
            start += p.numel()
        for module in modules:
            for part in module.modules():
                if realias := getattr(part, "realias", None):
                    realias()

    def first(self, size: int) -> FlatParameters:
        """Return a storage of the first ``size`` numbers, on the same memory; these are whole parameters."""
        beginning = copy.copy(self)
        beginning.data, beginning.grad = self.data[:size], None if self.grad is None else self.grad[:size]
        beginning.parts = [place for place in self.parts if place.stop <= size]
        return beginning

    def __len__(self) -> int:
        """Return P, the number of parameters."""
        return self.data.numel()


def weight_matrices(modules: Sequence[nn.Module]) -> Tensor:
    """Return a mask [P] in the order of the flat storage: 1 for entries of weight matrices and kernels.

    Biases, factors of norms and other vectors have 0. The first dimension of an ensemble's stacked parameters
    is ignored, so that they are treated like those of a single member.
    """
    seen, parts = set[int](), []
    for module in nn.ModuleList(modules).modules():
        lead = int(hasattr(module, "realias"))
        for p in module.parameters(recurse=False):
            if id(p) not in seen:
                parts.append(
                    torch.full((p.numel(),), float(p.dim() - lead >= 2), dtype=p.dtype, device=p.device)
                )
                seen.add(id(p))
    return torch.cat(parts) if parts else torch.empty(0)


class Target:
    """Target networks: copies of ``modules`` whose parameters follow by Polyak averaging.

    modules: the copies, in the order of the originals; as an argument, the originals
    flat:    storage of the copies' parameters
    online:  [P] storage of the originals' parameters
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
        """Update by ``θ' ← θ' + τ (θ − θ')`` in one kernel; buffers, such as statistics, are copied."""
        self.flat.data.lerp_(self._online, tau)
        for original, module in zip(self._originals, self.modules, strict=True):
            for copied, source in zip(module.buffers(), original.buffers(), strict=True):
                copied.copy_(source)


class NoTarget:
    """Online networks in the place of target networks (CrossQ, arXiv 1902.05605).

    modules: the online networks
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = tuple(modules)

    def polyak_(self, tau: float) -> None:
        """Do nothing: the online networks are used themselves."""
