"""Networks of exploration, the protocols for a task's own, and their check.

Each is built with the agent's spec and the state's width S. Actions are flat, [..., A]: one-hots, then the
continuous part in [-1, 1].
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import shape_of
from algorithm.nn.layers.mlp import JoinedMlp


class ForwardDynamic(Protocol):
    """Protocol of ``ModelForwardDynamic(spec, state_size)``."""

    def __call__(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the state that follows [..., S], from state [..., S] and action [..., A]."""
        ...


class InverseDynamic(Protocol):
    """Protocol of ``ModelInverseDynamic(spec, state_size)``."""

    def __call__(self, state: Tensor, next_state: Tensor) -> Tensor:
        """Return the action [..., A] between state and next_state [..., S]."""
        ...


class Features(Protocol):
    """Protocol of ``ModelRND(spec, state_size)``, built twice with different initial weights."""

    def __call__(self, state: Tensor, action: Tensor) -> Tensor:
        """Return features [..., F] of any width F, from state [..., S] and action [..., A]."""
        ...


class ModelForwardDynamic(JoinedMlp):
    """Forward model of ``dense_depth`` layers of ``dense_n`` units over state and action."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, state_size)


class ModelInverseDynamic(JoinedMlp):
    """Inverse model of ``dense_depth`` layers of ``dense_n`` units over two states."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(2 * state_size, dense_n, dense_depth, spec.action.size)


class ModelRND(JoinedMlp):
    """``dense_depth`` layers of ``dense_n`` units over state and action, then ``feature_n`` features."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: int = 128,
        dense_depth: int = 2,
        feature_n: int = 64,
    ) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, feature_n)


def check_dynamic(network: nn.Module, sizes: tuple[int, int], out_size: int | str) -> None:
    """Run a network on zeros.

    sizes:    widths of its two inputs
    out_size: width of its result, or the letter of a free width
    Raises :class:`ModelError` for another shape, or an exception of the network's own.
    """
    for lead in (2, 3), (1,):
        shape_of(network, [torch.zeros(*lead, size) for size in sizes], (*lead, out_size))
