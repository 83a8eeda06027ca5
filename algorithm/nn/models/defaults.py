"""Default networks of a task without its own: convolutions for images, MLPs for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.distributions import HybridAction
from algorithm.nn.layers.conv import Kind
from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder
from algorithm.nn.layers.images import image_layouts
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
from algorithm.nn.protocols import Rep, q_size


class ModelRep(Rep):
    """Concatenated encodings of all observations, then ``dense_depth`` layers of ``dense_n`` units.

    Vectors are flattened, choices one-hot, each image goes through convolutions and a layer of ``dense_n``.
    With the default depth 0 the state of a task without images is the observation itself, as usual in SAC.

    conv:         kind of convolutions, see ``conv``; None by the size of the image
    random_shift: largest shift of images while learning, in pixels, see
                  ``RandomShift``; 0 is none, None goes by the size of the image
    bounded:      features of images are normalised and bounded, see
                  :class:`~algorithm.nn.layers.encode.ImageEncoder`
    activation:   of the layers
    out_size:     width of the state
    """

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
        width = self.vectors.out_size + sum(image.out_size for image in images)
        self.net = mlp(width, [dense_n] * dense_depth, activation=ACTIVATIONS[activation])
        self.out_size = dense_n if dense_depth else width

    @override
    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode each token on its own."""
        parts = [self.vectors(obs)] if self.vectors.names else []
        parts += [encoder(obs[name]) for name, encoder in zip(self.image_names, self.images, strict=True)]
        return self.net(parts[0] if len(parts) == 1 else torch.cat(parts, -1)), carry


class ModelQ(nn.Module):
    """Critic of 2 layers of 256 units over state and continuous action.

    dense_n, dense_depth: other numbers of units and layers
    hidden: the width of each layer instead
    norm:   of the layers, see :func:`~algorithm.nn.layers.mlp.mlp`
    block:  ``residual`` or ``inverted``: each layer is a block that adds to its input, see
            :func:`~algorithm.nn.layers.mlp.residual_mlp`, :func:`~algorithm.nn.layers.inverted.inverted_mlp`
    activation: between the layers
    """

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
        q: Tensor = self.net(torch.cat([state, c_action], -1))
        return q


class ModelPolicy(nn.Module):
    """Policy of 2 layers of 256 units, then the action head.

    dense_n, dense_depth, hidden, norm, block, activation: as of :class:`ModelQ`
    noisy: all of these layers have noisy weights, see :class:`~algorithm.nn.layers.noisy.NoisyLinear`
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
