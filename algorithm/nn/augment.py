"""Augmentation of images while learning."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def shift_images(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Each image seen through a window moved by whole pixels; what lies outside repeats the border.

    images: [P, H, W, C] of any dtype
    down, right: int64 [P], by how much the window moves; out[p, y, x] = in[p, y + down_p, x + right_p]
    Returns a tensor like ``images``.

    Cropping from an image padded by its border is the same as limiting the indices, so nothing is padded;
    and picking whole pixels out of a list of pixels is the fastest of the gathers on a CPU.
    """
    count, height, width, channels = images.shape
    device = images.device
    rows = (torch.arange(height, device=device) + down[:, None]).clamp_(0, height - 1)
    columns = (torch.arange(width, device=device) + right[:, None]).clamp_(0, width - 1)
    rows += height * torch.arange(count, device=device)[:, None]
    pixels = (rows[:, :, None] * width + columns[:, None, :]).flatten()
    return images.reshape(-1, channels).index_select(0, pixels).view(images.shape)


class RandomShift(nn.Module):
    """DrQ's random shift (arXiv 2004.13649): while training, each image moves by up to ``pad`` pixels.

    It acts in train mode only, that is inside an update; acting and target networks see images as they are.

    pad: largest shift in either direction, in pixels; DrQ takes 4 for images of 84 pixels
    """

    def __init__(self, pad: int = 4) -> None:
        super().__init__()
        if pad < 1:
            raise ValueError(f"RandomShift: pad must be at least 1 pixel, got {pad}")
        self.pad = pad

    def forward(self, images: Tensor) -> Tensor:
        """images [P, H, W, C] -> the same shape and dtype."""
        if not self.training:
            return images
        shape = (2, len(images))
        down, right = torch.randint(-self.pad, self.pad + 1, shape, device=images.device)
        return shift_images(images, down, right)

    def extra_repr(self) -> str:
        """The shift, where a network is printed."""
        return f"pad={self.pad}"
