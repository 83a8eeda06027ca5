"""One Adam over everything a loss trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from algorithm.nn.flat import FlatParameters


class FlatAdam:
    """Adam (arXiv 1412.6980), fused, over the flat storage of ``modules``."""

    def __init__(self, modules: Sequence[nn.Module], learning_rate: float) -> None:
        self.flat = FlatParameters(modules)
        leaf = nn.Parameter(self.flat.data)
        leaf.grad = self.flat.grad
        self._leaf = leaf
        self._adam = torch.optim.Adam([leaf], lr=learning_rate, fused=True)

    def step(self, loss: Tensor) -> Tensor:
        """Gradient of ``loss`` and one step along it. Returns the gradient's norm, a scalar on the device."""
        assert self.flat.grad is not None
        self.flat.grad.zero_()
        loss.backward()
        self._adam.step()
        return torch.linalg.vector_norm(self.flat.grad)

    def tensors(self) -> dict[str, Tensor]:
        """Adam's state by name: both moments and the step count; empty before the first step."""
        return dict(self._adam.state[self._leaf])

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` gave. Raises ``ValueError`` if the sizes differ."""
        for name, value in tensors.items():
            if value.ndim and value.shape != self.flat.data.shape:
                raise ValueError(f"optimiser state {name} has {value.numel()} values, not {len(self.flat)}")
        self._adam.state[self._leaf] = {
            name: value.to(self.flat.data.device, torch.float32).clone() for name, value in tensors.items()
        }
