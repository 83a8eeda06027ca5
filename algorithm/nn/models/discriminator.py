"""Discriminator of demonstrated and own transitions, which a task's own replaces, and its check."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import shape_of
from algorithm.nn.layers.conv import conv
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.layers.mlp import LOG_STD_RANGE, mlp

BOTTLENECK = 128
"""Z, numbers of the code of a discriminator with a bottleneck."""


class ModelDiscriminator(nn.Module):
    """``dense_depth`` layers of ``dense_n`` units with tanh, over the vector and the images' features.

    Images go through convolutions of their own, of the kind that suits their size. The gradient with respect
    to the inputs is part of the loss, so a second derivative is needed.

    outputs: D, numbers of a transition; 1: its logit
    """

    def __init__(
        self, spec: AgentSpec, vector_size: int, dense_n: int = 128, dense_depth: int = 2, outputs: int = 1
    ) -> None:
        super().__init__()
        layouts = image_layouts(spec.obs)
        convolutions = {name: conv(layout, where=f"observation {name!r}") for name, layout in layouts.items()}
        self._names = tuple(convolutions)
        self.convolutions = nn.ModuleList(convolutions.values())
        width = vector_size + sum(one.out_size for one in convolutions.values())
        self.net = mlp(width, [dense_n] * dense_depth, outputs, activation=nn.Tanh)

    @override
    def forward(self, vector: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        """Return the logit [P] of P transitions, or more ``outputs`` [P, D].

        vector: [P, vector_size] all observations that are no images, choices as one-hots; then the flat
                action, unless ``use_actions`` is false; then 1 where the task terminated, else 0
        images: name -> [P, C, H, W] in [0, 1] for bytes
        """
        seen = [one(images[name]) for name, one in zip(self._names, self.convolutions, strict=True)]
        logit: Tensor = self.net(torch.cat([vector, *seen], -1)).squeeze(-1)
        return logit


class BottleneckDiscriminator(nn.Module):
    """Discriminator of a code z ~ N(μ(x), σ²(x)) of ``BOTTLENECK`` numbers (arXiv 1810.00821, section 4).

    body: of 2 · ``BOTTLENECK`` outputs, μ and log σ
    beta: β [], the price of what z says of x
    """

    beta: Tensor

    def __init__(self, body: ModelDiscriminator) -> None:
        super().__init__()
        self.body = body
        self.last = nn.Linear(BOTTLENECK, 1)
        self.register_buffer("beta", torch.zeros(()))

    @override
    def forward(self, vector: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        """Return the logit [P] of the means; arguments as of :class:`ModelDiscriminator`."""
        return self.logit(self.code(vector, images)[0])

    def code(self, vector: Tensor, images: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return μ and log σ [P, Z] of the code."""
        mean, log_std = self.body(vector, images).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def logit(self, z: Tensor) -> Tensor:
        """Return the logit [P] of codes [P, Z]."""
        logit: Tensor = self.last(z).squeeze(-1)
        return logit


def check_discriminator(network: nn.Module, spec: AgentSpec, vector_size: int) -> None:
    """Run a network on zeros. Raises ModelError for another shape than [P], or its own exception."""
    layouts = image_layouts(spec.obs).items()
    for p in (3, 1):
        images = {key: torch.zeros(p, one.channels, one.height, one.width) for key, one in layouts}
        shape_of(network, (torch.zeros(p, vector_size), images), (p,))
