"""Convolutional networks for images, from small to large."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.core.spec import MIN_SIDE
from algorithm.nn.layers.images import ImageLayout

NATURE_MIN_SIDE = 36
"""Smallest side from which the three unpadded layers of the Nature network leave a pixel."""


class Residual(nn.Module):
    """Residual block of IMPALA: x + conv(relu(conv(relu(x)))), 3 × 3 (arXiv 1802.01561, figure 3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.ReLU(),  # not in place: the input is added again
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map x [P, C, H, W] to the same shape."""
        residual: Tensor = self.net(x)
        return x + residual


def _simple(channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
    ]


def _nature(channels: int) -> list[nn.Module]:
    """Return the layers of Mnih et al. 2015, doi 10.1038/nature14236."""
    return [
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(inplace=True),
    ]


def _resnet(channels: int) -> list[nn.Module]:
    """Return the layers of IMPALA's large network (arXiv 1802.01561, figure 3)."""
    layers: list[nn.Module] = []
    for width in (16, 32, 32):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            Residual(width),
            Residual(width),
        ]
        channels = width
    return [*layers, nn.ReLU(inplace=True)]


Kind = Literal["simple", "nature", "resnet"]
"""Names of the convolutions."""

KINDS: dict[str, tuple[int, Callable[[int], list[nn.Module]]]] = {
    "simple": (MIN_SIDE, _simple),
    "nature": (NATURE_MIN_SIDE, _nature),
    "resnet": (MIN_SIDE, _resnet),
}
"""Kind -> smallest side in pixels, and its layers for a number of channels."""


class Conv(nn.Sequential):
    """Layers for one layout, their output flattened.

    out_size: width of the features
    """

    def __init__(self, layout: ImageLayout, layers: list[nn.Module]) -> None:
        super().__init__(*layers, nn.Flatten())
        with torch.no_grad():
            probe = torch.zeros(1, layout.channels, layout.height, layout.width)
            self.out_size = self(probe).shape[1]


def default_kind(layout: ImageLayout) -> str:
    """Return ``nature`` for images that are large enough for it, else ``simple``."""
    return "nature" if min(layout.height, layout.width) >= NATURE_MIN_SIDE else "simple"


def conv(layout: ImageLayout, kind: str | None = None, *, where: str = "") -> Conv:
    """Return a convolutional network for images of that layout: float [P, C, H, W] -> [P, out_size].

    kind:  ``simple``: two strided layers, from 8 pixels;
           ``nature``: Mnih et al. 2015, from 36 pixels;
           ``resnet``: the residual network of IMPALA (arXiv 1802.01561), from 8 pixels, the slowest;
           None: see :func:`default_kind`.
    where: description of the images for an error's message
    Raises :class:`ModelError` for an unknown kind and for images too small for it.
    """
    kind = default_kind(layout) if kind is None else kind
    if kind not in KINDS:
        close = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ModelError(
            f"unknown kind of convolution {kind!r}", where=where, fix=f"{hint}Known: {', '.join(KINDS)}."
        )
    smallest, layers = KINDS[kind]
    if min(layout.height, layout.width) < smallest:
        fitting = [name for name, (side, _) in KINDS.items() if min(layout.height, layout.width) >= side]
        raise ModelError(
            f"images of {layout.height} × {layout.width} pixels are too small for the convolution {kind}",
            where=where,
            why=f"{kind} needs at least {smallest} pixels on each side",
            fix=f"take {' or '.join(fitting)}" if fitting else "flatten them with VectorEncoder",
        )
    return Conv(layout, layers(layout.channels))
