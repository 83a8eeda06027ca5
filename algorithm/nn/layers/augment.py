"""Augmentation of observations while learning: shifts of images, noise on vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.images import ImageLayout, image_layouts
from algorithm.nn.normalise import vector_names

MAX_PAD = 4
"""Largest default shift of an image, in pixels."""

NOISE = 0.1
"""Standard deviation of the noise on a vector's elements, as a share of theirs in the batch."""


def shift_images(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Shift each image by whole pixels, with its border repeated outside of it.

    images: [P, H, W, C] of any dtype
    down, right: int64 [P], offsets in pixels: out[p, y, x] = in[p, y + down_p, x + right_p]
    Returns a tensor like ``images``.

    Clamping the indices has the same result as cropping from a padded image. To gather whole pixels from a
    list of pixels is the fastest way on a CPU.
    """
    count, height, width, channels = images.shape
    device = images.device
    rows = (torch.arange(height, device=device) + down[:, None]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=device) + right[:, None]).clamp_(0, width - 1)
    rows += height * torch.arange(count, device=device)[:, None]
    pixels = (rows[:, :, None] * width + columns[:, None, :]).flatten()
    return images.reshape(-1, channels).index_select(0, pixels).view(images.shape)


class RandomShift(nn.Module):
    """DrQ's random shift of each image by up to ``pad`` pixels while training (arXiv 2004.13649).

    Images are shifted in train mode only, inside an update; acting and target networks get them unshifted.
    With a memory all images of a window are shifted alike, see :class:`OneView`.

    pad: largest shift in either direction, in pixels; DrQ uses 4 for images of 84 pixels
    """

    def __init__(self, pad: int = 4) -> None:
        super().__init__()
        if pad < 1:
            raise ValueError(f"RandomShift: pad must be at least 1 pixel, got {pad}")
        self.pad = pad
        self.view: OneView | None = None

    @override
    def forward(self, images: Tensor) -> Tensor:
        """Shift images [P, H, W, C] at random in train mode; shape and dtype stay the same."""
        if not self.training:
            return images
        down, right = self.view.offsets(self, images) if self.view else self.draw(len(images), images.device)
        return shift_images(images, down, right)

    def draw(self, count: int, device: torch.device) -> Tensor:
        """Draw random offsets of ``count`` images down and right, [2, count]."""
        return torch.randint(-self.pad, self.pad + 1, (2, count), device=device)


class OneView:
    """Context in which each :class:`RandomShift` of a network shifts all images of a window alike.

    A memory learns from the changes between images, and different offsets would add movements that never
    happened. A window may be encoded in several passes inside this context: offsets are drawn in the first
    pass and kept.

    network: its inputs are images of windows in flat batches, [B·T, H, W, C], one window after the other
    windows: B
    """

    def __init__(self, network: nn.Module, windows: int) -> None:
        self._shifts = [module for module in network.modules() if isinstance(module, RandomShift)]
        self._windows = windows
        self._drawn: dict[RandomShift, Tensor] = {}

    def offsets(self, shift: RandomShift, images: Tensor) -> Tensor:
        """Return the offsets [2, P] down and right of the images [P, ...] in a pass."""
        if shift not in self._drawn:
            self._drawn[shift] = shift.draw(self._windows, images.device)
        return self._drawn[shift].repeat_interleave(len(images) // self._windows, 1)

    def __enter__(self) -> None:
        for shift in self._shifts:
            shift.view = self

    def __exit__(self, *_: object) -> None:
        for shift in self._shifts:
            shift.view = None


class Augmentation:
    """Augmentation of a batch of windows: images are shifted by whole pixels, vectors get Gaussian noise.

    All tokens of a window, and so all frames of a stack, are shifted alike and get the same noise: different
    offsets would add movements that never happened. DrQ treats the frames of a stack so (arXiv 2004.13649).

    An image is shifted in either direction by up to 1/32 of its shorter side, from 1 to 4 pixels, with its
    border repeated. The noise of a vector's element has a tenth of the element's standard deviation in the
    batch, so it does not depend on units, and a constant element is not changed. Choices, booleans, and whole
    numbers that are not normalised are not changed either.

    normalised: vectors have been normalised, so that whole numbers are real ones now
    """

    def __init__(self, obs: ObsSpec, *, normalised: bool) -> None:
        self._images = image_layouts(obs)
        stacks = dict(zip(obs.names, obs.stacks, strict=True))
        dtypes = dict(zip(obs.names, obs.dtypes, strict=True))
        real = [name for name in vector_names(obs) if normalised or dtypes[name].startswith("float")]
        self._stacked = {name: stacks[name] > 1 for name in real}

    def changes_anything(self) -> bool:
        """Return true if any observation is an image or a vector of real numbers."""
        return bool(self._images or self._stacked)

    def draw(self, obs: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw offsets of images, int64 [2, B, 1], and noise of vectors, [B, 1, *shape]."""
        noise = {}
        for name, layout in self._images.items():
            pad = max(1, default_shift(layout))
            offsets = (2, len(obs[name]), 1)
            noise[name] = torch.randint(-pad, pad + 1, offsets, generator=generator, device=obs[name].device)
        for name, stacked in self._stacked.items():
            batch, _, *shape = obs[name].shape
            size = (batch, 1, 1, *shape[1:]) if stacked else (batch, 1, *shape)
            noise[name] = torch.randn(size, generator=generator, device=obs[name].device)
        return noise

    def __call__(
        self, obs: Mapping[str, Tensor], exists: Tensor, noise: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return augmented obs, name -> [B, W+1, *shape]; shapes and dtypes stay the same.

        Tensors that are not changed are shared with ``obs``.

        exists: [B, W+1] bool; the content of other tokens has no influence on these
        noise:  result of :meth:`draw`
        """
        result = dict(obs)
        for name, layout in self._images.items():
            result[name] = _moved(obs[name], layout, noise[name])
        for name, stacked in self._stacked.items():
            result[name] = _noisy(obs[name], exists, stacked, noise[name])
        return result


def default_shift(layout: ImageLayout) -> int:
    """Return the default largest shift of an image in pixels: 1/32 of its shorter side, from 1 to 4.

    Below 16 pixels it is 0: in such images a pixel is often an object of its own, such as a cell of a grid.
    """
    return min(MAX_PAD, *(max(int(side >= 16), side // 32) for side in (layout.height, layout.width)))


def _moved(windows: Tensor, layout: ImageLayout, offsets: Tensor) -> Tensor:
    """Return images [B, T, *shape] shifted by offsets [2, B, 1], all of a window alike."""
    batch, time = windows.shape[:2]
    down, right = offsets.expand(2, batch, time).flatten(1)
    return layout.restore(shift_images(layout.arrange(windows), down, right), (batch, time))


def _noisy(windows: Tensor, exists: Tensor, stacked: bool, noise: Tensor) -> Tensor:
    """Return vectors [B, T, *shape] with noise, the same for all tokens of a window and frames of a stack.

    exists: [B, T] bool; noise: standard normal, which broadcasts to the vectors
    """
    shape = windows.shape[2:]
    dims = (0, 1, 2) if stacked else (0, 1)
    there = exists.view(*exists.shape, *(1 for _ in shape))
    count = exists.sum().clamp(min=1) * (shape[0] if stacked else 1)

    def mean(x: Tensor) -> Tensor:
        return x.masked_fill(~there, 0.0).sum(dims, keepdim=True) / count

    deviation = mean((windows - mean(windows)).square()).sqrt()
    return windows + NOISE * deviation * noise
