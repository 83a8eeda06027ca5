"""Networks of exploration, what a task's own must offer, and the check that they do.

Each is built with the agent's spec and the state's width S. Actions are flat, [..., A]: one-hots, then the
continuous part in [-1, 1].
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from algorithm.errors import ModelError
from algorithm.nn.dry_run import blame, file_of
from algorithm.nn.mlp import mlp
from algorithm.spec import AgentSpec

_BATCHES = (2, 3), (1,)
"""Leading dimensions of the dry runs."""


class ForwardDynamic(Protocol):
    """``ModelForwardDynamic(spec, state_size)``."""

    def __call__(self, state: Tensor, action: Tensor) -> Tensor:
        """state [..., S], action [..., A] -> the state that follows [..., S]."""
        ...


class InverseDynamic(Protocol):
    """``ModelInverseDynamic(spec, state_size)``."""

    def __call__(self, state: Tensor, next_state: Tensor) -> Tensor:
        """state, next_state [..., S] -> the action between them [..., A]."""
        ...


class Features(Protocol):
    """``ModelRND(spec, state_size)``; built twice, with other initial weights each time."""

    def __call__(self, state: Tensor, action: Tensor) -> Tensor:
        """state [..., S], action [..., A] -> features [..., F], of any width F."""
        ...


class ModelForwardDynamic(nn.Module):
    """``dense_depth`` layers of ``dense_n`` units over state and action."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__()
        self.net = mlp(state_size + spec.action.size, [dense_n] * dense_depth, state_size)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """See :class:`ForwardDynamic`."""
        return self.net(torch.cat([state, action], -1))


class ModelInverseDynamic(nn.Module):
    """``dense_depth`` layers of ``dense_n`` units over two states."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__()
        self.net = mlp(2 * state_size, [dense_n] * dense_depth, spec.action.size)

    def forward(self, state: Tensor, next_state: Tensor) -> Tensor:
        """See :class:`InverseDynamic`."""
        return self.net(torch.cat([state, next_state], -1))


class ModelRND(nn.Module):
    """``dense_depth`` layers of ``dense_n`` units over state and action, then ``feature_n`` features."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: int = 128,
        dense_depth: int = 2,
        feature_n: int = 64,
    ) -> None:
        super().__init__()
        self.net = mlp(state_size + spec.action.size, [dense_n] * dense_depth, feature_n)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """See :class:`Features`."""
        return self.net(torch.cat([state, action], -1))


@torch.no_grad()
def check_dynamic(network: nn.Module, sizes: tuple[int, int], out_size: int | str) -> None:
    """Run a network on zeros.

    sizes:    widths of its two inputs
    out_size: width of what it must return, or the letter of a width that is free
    Raises :class:`ModelError` for another shape, or an exception of the network's own.
    """
    name, where = type(network).__name__, file_of(network)
    for lead in _BATCHES:
        with blame(name, "forward", where):
            result = network(*(torch.zeros(*lead, size) for size in sizes))
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        if isinstance(out_size, str) and isinstance(got, tuple) and got:
            got = (*got[:-1], out_size)
        if got != (*lead, out_size):
            raise ModelError(
                f"{name}.forward returned a wrong shape",
                where=where,
                why=f"expected {(*lead, out_size)}, got {got}",
            )
