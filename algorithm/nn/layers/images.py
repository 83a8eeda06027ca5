"""Images among the observations: their layout in memory, their conversion, and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.core.spec import BYTES, MIN_SIDE, ObsSpec, Range, image_order

UNIT: Range = (0.0, 1.0)
"""Range to which numbers of images are scaled for networks."""


@dataclass(frozen=True)
class ImageLayout:
    """Axes of height, width and channels of an observation.

    shape: of the observation, without leading dimensions
    order: its axes as height, width, then those that are merged into the channels
    span:  its smallest and largest number, see :class:`~algorithm.core.spec.ObsSpec`; None: unknown
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    span: Range | None = None

    @property
    def height(self) -> int:
        """H in pixels."""
        return self.shape[self.order[0]]

    @property
    def width(self) -> int:
        """W in pixels."""
        return self.shape[self.order[1]]

    @property
    def channels(self) -> int:
        """C: number of colours, times the number of frames of a stack."""
        count = 1
        for axis in self.order[2:]:
            count *= self.shape[axis]
        return count

    def arrange(self, x: Tensor) -> Tensor:
        """Arrange x [..., *shape] of any dtype as P images [P, H, W, C]; a view where possible.

        Raises ``ValueError`` if x does not end in ``shape``.
        """
        if tuple(x.shape[x.dim() - len(self.shape) :]) != self.shape:
            raise ValueError(f"images of shape {self.shape} were expected, got {tuple(x.shape)}")
        images = x.reshape(-1, *self.shape).permute(0, *(axis + 1 for axis in self.order))
        return images.reshape(-1, self.height, self.width, self.channels)

    def restore(self, images: Tensor, lead: Sequence[int]) -> Tensor:
        """Reverse :meth:`arrange`: images [P, H, W, C] become [*lead, *shape]."""
        axes = images.reshape(-1, *(self.shape[axis] for axis in self.order))
        back = (self.order.index(axis) + 1 for axis in range(len(self.shape)))
        return axes.permute(0, *back).reshape(*lead, *self.shape)

    def to_planes(self, x: Tensor) -> Tensor:
        """Convert x [..., *shape] to float32 [P, C, H, W], see :func:`to_planes`."""
        return to_planes(self.arrange(x), self.span)


def to_planes(images: Tensor, span: Range | None) -> Tensor:
    """Convert images [P, H, W, C] of any dtype to float32 [P, C, H, W], scaled from ``span`` to [0, 1].

    Without a span bytes are divided by 255, and other numbers are kept: the normaliser has scaled them.

    The result keeps the memory order, channels last, with which convolutions on a CPU are faster. Images
    stored with the channels first are transposed before the conversion, as bytes.
    """
    images = images.contiguous()
    return to_unit(images, span).permute(0, 3, 1, 2)


def to_unit(x: Tensor, span: Range | None) -> Tensor:
    """Convert x of any dtype and shape to float32, scaled from ``span`` to [0, 1] as in :func:`to_planes`."""
    low, high = span or (BYTES if x.dtype == torch.uint8 else UNIT)
    if (low, high) == UNIT:
        return x.to(torch.get_default_dtype())
    return x.to(torch.get_default_dtype(), copy=True).sub_(low).mul_(1.0 / (high - low))


def image_layout(shape: Sequence[int], dtype: str, stack: int = 1, axes: str = "") -> ImageLayout | None:
    """Return the layout of an observation that is an image; None for any other.

    stack, axes: as in :func:`~algorithm.core.spec.image_order`
    """
    order = image_order(tuple(shape), dtype, stack, axes)
    return None if order is None else ImageLayout(tuple(shape), order, BYTES if dtype == "uint8" else None)


def image_layouts(obs: ObsSpec) -> dict[str, ImageLayout]:
    """Return name -> layout of every observation that is an image; discrete choices never are."""
    known = dict(zip(obs.names, zip(obs.shapes, obs.ranges, strict=True), strict=True))
    return {
        name: ImageLayout(shape, order, span)
        for name, order in obs.images.items()
        for shape, span in [known[name]]
    }


NATURE_MIN_SIDE = 36
"""Smallest side in pixels for the three unpadded layers of the Nature network."""


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
    """Return two small convolutions of stride 2, with 16 and 32 channels."""
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
    """Convolutional layers for images of one layout, with flattened output.

    out_size: width of the output
    """

    def __init__(self, layout: ImageLayout, layers: list[nn.Module]) -> None:
        super().__init__(*layers, nn.Flatten())
        with torch.no_grad():
            probe = torch.zeros(1, layout.channels, layout.height, layout.width)
            self.out_size = self(probe).shape[1]


def default_kind(layout: ImageLayout) -> str:
    """Return ``nature`` for images of at least :data:`NATURE_MIN_SIDE` pixels a side, else ``simple``."""
    return "nature" if min(layout.height, layout.width) >= NATURE_MIN_SIDE else "simple"


def conv(layout: ImageLayout, kind: str | None = None, *, where: str = "") -> Conv:
    """Return a convolutional network for images of that layout: float [P, C, H, W] -> [P, out_size].

    kind:  ``simple``: two strided layers, from 8 pixels;
           ``nature``: Mnih et al. 2015, from 36 pixels;
           ``resnet``: the residual network of IMPALA (arXiv 1802.01561), from 8 pixels, the slowest;
           None: see :func:`default_kind`.
    where: description of the images for an error's message
    Raises :class:`ModelError` for images too small for it.
    """
    kind = default_kind(layout) if kind is None else kind
    smallest, layers = KINDS[kind]
    if min(layout.height, layout.width) < smallest:
        fitting = [name for name, (side, _) in KINDS.items() if min(layout.height, layout.width) >= side]
        raise ModelError(
            f"images of {layout.height} × {layout.width} pixels are too small for the convolution {kind}",
            where=where,
            why=f"{kind} needs at least {smallest} pixels on each side",
            fix=f"use {' or '.join(fitting)}" if fitting else "flatten them with VectorEncoder",
        )
    return Conv(layout, layers(layout.channels))
