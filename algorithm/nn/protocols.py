"""What the classes of an ``nn.py`` must offer: single networks, from which ensembles and targets are made.

Every class is built with the agent's spec first; ``ModelQ`` and ``ModelPolicy`` also get the state's width.
Whatever stands in ``nn_config.rep``, ``.q`` and ``.policy`` arrives as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.spec import ActionSpec, AgentSpec


def q_size(action: ActionSpec) -> int:
    """N, the outputs of one critic: a value per discrete choice, or one if there is none."""
    return max(1, action.discrete)


class Rep(nn.Module):
    """Base of every ``ModelRep(spec, **nn_config.rep)``: observations -> state, with a carry for memory.

    A model without memory leaves the shapes as they are and hands its carry through.

    carry_shape:        C, the carry of one agent while acting.
    stored_carry_shape: what the replay stores of it per row; empty where it is rebuilt from the window.
    """

    carry_shape: tuple[int, ...] = (0,)
    stored_carry_shape: tuple[int, ...] = (0,)

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__()

    def initial_carry(self, batch: int) -> Tensor:
        """The carry at an episode's start, [batch, *C]: zeros."""
        return torch.zeros(batch, *self.carry_shape)

    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode T tokens.

        obs:         name -> [B, T, ...]
        prev_action: [B, T, A] zeros before an episode's first step
        carry:       [B, *C] before the first valid token
        valid:       [B, T] tokens that exist; the others must change no output
        Returns state [B, T, S] and the carry after each token [B, T, *C] (a memory-less model: ``carry``).
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(obs, prev_action, carry, valid)"
        )


class QFunction(Protocol):
    """``ModelQ(spec, state_size, **nn_config.q)``."""

    def __call__(self, state: Tensor, c_action: Tensor) -> Tensor:
        """state [..., S], c_action [..., A_c] in [-1, 1] -> q [..., N], N = :func:`q_size`."""
        ...


class Policy(Protocol):
    """``ModelPolicy(spec, state_size, **nn_config.policy)``."""

    def __call__(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """state [..., S], obs name -> [..., shape] of the same positions -> distribution over actions."""
        ...
