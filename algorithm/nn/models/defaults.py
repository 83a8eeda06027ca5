"""Default networks of off-policy families, for tasks without an ``nn.py``; default encoders of all families.

They have convolutions for images, MLPs for everything else, and the memory that ``seq_encoder`` selects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.layers.attention import Attention
from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder
from algorithm.nn.layers.images import Kind, image_layouts
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.mlp import (
    ACTIVATIONS,
    ActionHead,
    Activation,
    Body,
    LogStd,
    Norm,
    hidden_layers,
    hidden_widths,
    mlp,
)
from algorithm.nn.layers.noisy import NoisyLinear
from algorithm.nn.layers.recurrent import GRU, LSTM
from algorithm.nn.protocols import HybridAction, Memory, Rep, q_size
from algorithm.ops import library


class ModelRep(Rep):
    """Concatenated encodings of all observations, then ``dense_depth`` layers of ``dense_n`` units.

    Vectors are flattened, choices are one-hots, and each image has convolutions and a layer of ``dense_n``
    units. With the default depth 0 the state of a task without images is the observation itself, as usual in
    SAC.

    conv:         kind of convolutions, see ``conv``; None by the size of the image
    random_shift: largest shift of images while learning, in pixels, see
                  ``RandomShift``; 0: none; None: by the size of the image
    bounded:      features of images are normalised and bounded, see
                  :class:`~algorithm.nn.layers.encode.ImageEncoder`
    activation:   of the layers
    out_size:     width of the state
    """

    lib = library.TORCH

    def __init__(
        self,
        spec: AgentSpec,
        dense_n: AtLeastOne = 256,
        dense_depth: Natural = 0,
        conv: Kind | None = None,
        random_shift: Natural | None = None,
        bounded: bool = True,
        activation: Activation = "relu",
    ) -> None:
        super().__init__(spec)
        self.image_names = tuple(image_layouts(spec.obs))
        images = [
            ImageEncoder(spec.obs, name, conv, dense_n, random_shift=random_shift, bounded=bounded)
            for name in self.image_names
        ]
        self.images = nn.ModuleList(images)
        self.vectors = VectorEncoder(spec.obs)
        self.has_vectors = bool(self.vectors.names)
        self.only_vector = None if images else self.vectors.as_it_is
        width = self.vectors.out_size + sum(image.out_size for image in images)
        self.net = mlp(width, [dense_n] * dense_depth, activation=ACTIVATIONS[activation])
        self.out_size = dense_n if dense_depth else width

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode each token on its own: return states [B, T, out_size], and ``carry`` unchanged."""
        if self.only_vector is not None:
            return self.net(obs[self.only_vector]), carry
        parts = [self.vectors(obs)] if self.has_vectors else []
        parts += [encoder(obs[name]) for name, encoder in zip(self.image_names, self.images, strict=True)]
        return self.net(parts[0] if len(parts) == 1 else self.lib.cat(parts, -1)), carry


CELLS = {"gru": GRU, "lstm": LSTM}


class _RepWithMemory(Rep, ABC):
    """Base of encoders with a memory over features, by :class:`ModelRep`, and previous actions.

    The state is the features and the memory's output, concatenated: the current observation need not pass
    through the memory.
    """

    lib = library.TORCH

    def __init__(self, spec: AgentSpec, features: ModelRep) -> None:
        super().__init__(spec)
        self.features = features
        self.token_size = self.features.out_size + spec.action.size

    @abstractmethod
    def remember(self, token: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory's output [B, T, M] for tokens [B, T, token_size], and the carries after them."""

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return states and carries as in :meth:`Rep.forward`; a missing token has a state of zeros."""
        features, _ = self.features(obs, prev_action, carry, valid)
        lib = self.lib
        remembered, after = self.remember(lib.cat([features, prev_action], -1), carry, valid)
        state = lib.cat([features, remembered], -1)
        return lib.where(valid[..., None], state, 0.0), after


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

    context:    number of tokens that a token attends to, itself included
    dense_n, dense_depth, conv, random_shift, activation: of the features, see :class:`ModelRep`
    attn_n:     width of a token
    attn_depth: layers
    attn_heads: heads of a layer
    """

    def __init__(
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
        activation: Activation = "relu",
    ) -> None:
        features = ModelRep(spec, dense_n, dense_depth, conv, random_shift, activation=activation)
        super().__init__(spec, features)
        self.embed = nn.Linear(self.token_size, attn_n)
        self.memory = Attention(attn_n, context, depth=attn_depth, heads=attn_heads)
        self.carry_shape = self.memory.carry_shape

    @override
    def remember(self, token: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return attention's outputs and carries for the embedded tokens."""
        state, after = self.memory(self.embed(token), carry, valid)
        return state, after


REPS_WITH_MEMORY: Mapping[Memory, type[Rep]] = {"RNN": RecurrentRep, "ATTN": AttentionRep}
"""Default ``ModelRep`` of each ``seq_encoder``."""


class ModelQ(nn.Module):
    """Critic of 2 layers of 256 units over state and continuous action.

    dense_n, dense_depth: other numbers of units and layers
    hidden: width of each layer, in place of the two above
    norm:   of the layers, see :func:`~algorithm.nn.layers.mlp.mlp`
    block:  ``residual`` or ``inverted``: each layer is a block that adds to its input, see
            :func:`~algorithm.nn.layers.mlp.residual_mlp`, :func:`~algorithm.nn.layers.inverted.inverted_mlp`
    activation: between the layers
    """

    lib = library.TORCH

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        hidden: Sequence[AtLeastOne] | None = None,
        norm: Norm | None = None,
        block: Body = "plain",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 256)
        in_size, out_size = state_size + spec.action.continuous, q_size(spec.action)
        self.net = hidden_layers(in_size, widths, out_size, norm=norm, block=block, activation=activation)

    @override
    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [..., N] of state [..., S] and c_action [..., A_c]."""
        q: Tensor = self.net(self.lib.cat([state, c_action], -1))
        return q


class ModelPolicy(nn.Module):
    """Policy of 2 layers of 256 units, then the action head.

    dense_n, dense_depth, hidden, norm, block, activation: as of :class:`ModelQ`
    noisy: layers have noisy weights, see :class:`~algorithm.nn.layers.noisy.NoisyLinear`
    log_std: how log σ is bounded, see :class:`~algorithm.nn.layers.mlp.ActionHead`
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        noisy: bool = False,
        hidden: Sequence[AtLeastOne] | None = None,
        norm: Norm | None = None,
        block: Body = "plain",
        activation: Activation = "relu",
        log_std: LogStd = "clamp",
    ) -> None:
        super().__init__()
        linear = NoisyLinear if noisy else nn.Linear
        widths = hidden_widths(dense_n, dense_depth, hidden, 256)
        self.net = hidden_layers(
            state_size, widths, norm=norm, block=block, linear=linear, activation=activation
        )
        self.head = ActionHead([state_size, *widths][-1], spec.action, linear, log_std)
        if block == "inverted":
            set_orthogonal(self.head, 1.0)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """Return the distribution over actions in state [..., S]."""
        policy: HybridAction = self.head(self.net(state))
        return policy
