"""What the classes of an ``nn.py`` must offer: single networks, from which ensembles and targets are made.

Every class is built with the agent's spec first; ``ModelQ`` and ``ModelPolicy`` also get the state's width.
Whatever stands in ``nn_config.rep``, ``.q`` and ``.policy`` arrives as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.spec import ActionSpec, AgentSpec

Memory = Literal["RNN", "ATTN"]
"""Kinds of memory, ``sac_config.seq_encoder``."""


def q_size(action: ActionSpec) -> int:
    """N, the outputs of one critic: a value per discrete choice, or one if there is none."""
    return max(1, action.discrete)


class Rep(nn.Module):
    """Base of every ``ModelRep(spec, **nn_config.rep)``: observations -> state, with a carry for memory.

    Without memory (``seq_encoder: null``) both shapes stay as they are and the carry is handed through.

    With a recurrent memory (``RNN``) both shapes are that of the carry. It is stored with every row of the
    replay, so that a window begins with what was remembered when its first row was made.

    With attention (``ATTN``), which is also given ``context``, the number of tokens a query may see, itself
    included, ``carry_shape`` is that of a cache for acting, and nothing is stored: in a window, whose carry
    has width 0, it is found among the tokens before. Acting is one token at a time, with the cache as carry.

    carry_shape:        C, the carry of one agent while acting; all zeros when nothing is remembered.
    stored_carry_shape: what the replay stores of it per row.
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
        carry:       [B, *C] before the first valid token; [B, 0] without memory and in attention's windows
        valid:       [B, T] tokens that exist, one run in each row; the others must change no output
        Returns state [B, T, S] and the carry after each token [B, T, *C], where a token does not exist that
        of before; what was given as ``carry`` if that has width 0.
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
