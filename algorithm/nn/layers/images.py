"""Images among the observations: their layout in memory, and their conversion for convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithm.core.spec import ObsSpec, image_order


@dataclass(frozen=True)
class ImageLayout:
    """Axes of height, width and channels of an observation.

    shape: of the observation, without leading dimensions
    order: its axes as height, width, then those that are merged into the channels
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]

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
        """C: colours, times the frames where there are several."""
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
        return to_planes(self.arrange(x))


def to_planes(images: Tensor) -> Tensor:
    """Convert images [P, H, W, C] of any dtype to float32 [P, C, H, W], uint8 divided by 255.

    The result keeps the memory order, channels last: convolutions on a CPU are faster so. Images stored with
    the channels first are transposed as bytes, before they take four times the memory.
    """
    images = images.contiguous()
    planes = images.to(torch.get_default_dtype())
    if images.dtype == torch.uint8:
        planes.mul_(1.0 / 255.0)
    return planes.permute(0, 3, 1, 2)


def image_layout(shape: Sequence[int], dtype: str, stack: int = 1, axes: str = "") -> ImageLayout | None:
    """Return the layout of an observation that is an image, None for any other.

    stack, axes: as in :func:`~algorithm.core.spec.image_order`
    """
    order = image_order(tuple(shape), dtype, stack, axes)
    return None if order is None else ImageLayout(tuple(shape), order)


def image_layouts(obs: ObsSpec) -> dict[str, ImageLayout]:
    """Return name -> layout of every observation that is an image; choices are none, whatever their shape."""
    shapes = dict(zip(obs.names, obs.shapes, strict=True))
    return {name: ImageLayout(shapes[name], order) for name, order in obs.images.items()}
