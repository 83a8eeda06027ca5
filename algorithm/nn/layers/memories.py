"""Default representations with memory, by ``seq_encoder``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.layers.attention import Attention
from algorithm.nn.layers.conv import Kind
from algorithm.nn.layers.mlp import Activation
from algorithm.nn.layers.recurrent import GRU, LSTM
from algorithm.nn.models.defaults import ModelRep
from algorithm.nn.protocols import Memory, Rep

CELLS = {"gru": GRU, "lstm": LSTM}


class _RepWithMemory(Rep, ABC):
    """Features of each token by the memory-less :class:`ModelRep`, and a memory of them and the actions.

    The state is both side by side: the current observation need not pass through the memory.
    """

    def __init__(self, spec: AgentSpec, features: ModelRep) -> None:
        super().__init__(spec)
        self.features = features
        self.token_size = self.features.out_size + spec.action.size

    @abstractmethod
    def remember(self, token: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Map token [B, T, token_size] to [B, T, M] and the carries, as in :meth:`Rep.forward`."""

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return states and carries as in :meth:`Rep.forward`; a missing token has a state of zeros."""
        features, _ = self.features(obs, prev_action, carry, valid)
        remembered, after = self.remember(torch.cat([features, prev_action], -1), carry, valid)
        state = torch.cat([features, remembered], -1)
        return torch.where(valid.unsqueeze(-1), state, 0.0), after


class RecurrentRep(_RepWithMemory):
    """Recurrent layers over features and previous actions, ``seq_encoder: RNN``.

    dense_n, dense_depth, conv, random_shift, bounded, activation: of the features, see :class:`ModelRep`
    rnn:       ``gru`` or ``lstm``
    rnn_n:     units of a layer
    rnn_depth: layers
    """

    def __init__(
        self,
        spec: AgentSpec,
        dense_n: AtLeastOne = 256,
        dense_depth: Natural = 0,
        conv: Kind | None = None,
        random_shift: Natural | None = None,
        bounded: bool = True,
        rnn: Literal["gru", "lstm"] = "gru",
        rnn_n: AtLeastOne = 64,
        rnn_depth: AtLeastOne = 1,
        activation: Activation = "relu",
    ) -> None:
        super().__init__(spec, ModelRep(spec, dense_n, dense_depth, conv, random_shift, bounded, activation))
        self.memory = CELLS[rnn](self.token_size, rnn_n, rnn_depth)
        self.carry_shape = self.stored_carry_shape = self.memory.carry_shape

    @override
    def remember(self, token: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the recurrent layers' outputs and carries."""
        state, after = self.memory(token, carry, valid)
        return state, after


class AttentionRep(_RepWithMemory):
    """Causal self-attention over features and previous actions, ``seq_encoder: ATTN``.

    context:        tokens in a query's reach, itself included
    dense_n, dense_depth, conv, random_shift, activation: of the features, see :class:`ModelRep`
    attn_n:         width of a token
    attn_depth:     layers
    attn_heads:     heads of a layer
    attn_positions: ``rotary`` or ``sinusoidal``
    attn_gated:     gates instead of residual sums
    """

    def __init__(  # noqa: PLR0913 - the keys of nn_config.rep
        self,
        spec: AgentSpec,
        context: int,
        dense_n: AtLeastOne = 256,
        dense_depth: Natural = 0,
        conv: Kind | None = None,
        random_shift: Natural | None = None,
        attn_n: AtLeastOne = 64,
        attn_depth: AtLeastOne = 1,
        attn_heads: AtLeastOne = 4,
        attn_positions: Literal["rotary", "sinusoidal"] = "rotary",
        attn_gated: bool = False,
        activation: Activation = "relu",
    ) -> None:
        features = ModelRep(spec, dense_n, dense_depth, conv, random_shift, activation=activation)
        super().__init__(spec, features)
        self.embed = nn.Linear(self.token_size, attn_n)
        self.memory = Attention(
            attn_n,
            context,
            depth=attn_depth,
            heads=attn_heads,
            positions=attn_positions,
            gated=attn_gated,
        )
        self.carry_shape = self.memory.carry_shape

    @override
    def remember(self, token: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return attention's outputs and carries for the embedded tokens."""
        state, after = self.memory(self.embed(token), carry, valid)
        return state, after


REPS_WITH_MEMORY: Mapping[Memory, type[Rep]] = {"RNN": RecurrentRep, "ATTN": AttentionRep}
"""Default ``ModelRep`` of each ``seq_encoder``."""
