"""Default networks of exploration, which a task's own replace, and their check.

Each is built with the agent's spec and the state's width S. Actions are flat, [..., A]: one-hots, then the
continuous part in [-1, 1].
"""

from __future__ import annotations

import torch
from torch import nn

from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import shape_of
from algorithm.nn.layers.mlp import JoinedMlp


class ModelForwardDynamic(JoinedMlp):
    """Forward model: state [..., S] and action [..., A] -> the state that follows [..., S].

    ``dense_depth`` layers of ``dense_n`` units.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, state_size)


class ModelInverseDynamic(JoinedMlp):
    """Inverse model: state and next state [..., S] -> the action between them [..., A].

    ``dense_depth`` layers of ``dense_n`` units.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(2 * state_size, dense_n, dense_depth, spec.action.size)


class ModelRND(JoinedMlp):
    """Features of any width F: state [..., S] and action [..., A] -> [..., F]; ``feature_n`` here.

    It is built twice, with different initial weights. ``dense_depth`` layers of ``dense_n`` units.
    """

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
