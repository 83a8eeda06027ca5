"""Convolutional networks of each kind: sizes, gradients, and what is too small for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from algorithm.core.errors import ModelError
from algorithm.nn.layers.conv import KINDS, Conv, conv
from algorithm.nn.layers.images import image_layout


def layout_of(height: int, width: int, channels: int = 3):
    return image_layout((height, width, channels), "uint8")


def test_a_pixel_by_hand():
    """51/255 = 0.2, times 2, plus 0.5."""
    layout = image_layout((8, 8), "uint8")
    layer = nn.Conv2d(1, 1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(0.5)
    net = Conv(layout, [layer])
    picture = torch.zeros(8, 8, dtype=torch.uint8)
    picture[0, 1] = 51
    features = net(layout.to_planes(picture))
    assert features.shape == (1, net.out_size) == (1, 64)
    assert features[0, :3].tolist() == pytest.approx([0.5, 0.9, 0.5])


@pytest.mark.parametrize(("kind", "size", "features", "parameters"), [
    ("nature", (84, 84), 64 * 7 * 7, (8 * 8 * 3 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64),
    ("nature", (36, 40), 64, (8 * 8 * 3 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64),
    ("resnet", (84, 84), 32 * 11 * 11, (27 + 1) * 16 + 4 * (144 + 1) * 16
     + (144 + 1) * 32 + 4 * (288 + 1) * 32 + (288 + 1) * 32 + 4 * (288 + 1) * 32),
    ("resnet", (8, 9), 32 * 1 * 2, None),
    ("simple", (24, 32), 32 * 6 * 8, (27 + 1) * 16 + (144 + 1) * 32),
    ("simple", (8, 8), 32 * 2 * 2, None),
])  # fmt: skip
def test_sizes_are_those_of_the_papers(kind, size, features, parameters):
    net = conv(layout_of(*size), kind)
    assert net.out_size == features
    assert net(torch.rand(2, 3, *size)).shape == (2, features)
    if parameters is not None:
        assert sum(p.numel() for p in net.parameters()) == parameters


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_reaches_every_parameter(kind):
    net = conv(layout_of(36, 36), kind)
    net(torch.rand(8, 3, 36, 36)).square().sum().backward()
    assert [name for name, p in net.named_parameters() if not p.grad.any()] == []


def test_the_kind_follows_from_the_size():
    assert conv(layout_of(35, 80)).out_size == conv(layout_of(35, 80), "simple").out_size
    assert conv(layout_of(36, 80)).out_size == conv(layout_of(36, 80), "nature").out_size


def test_too_small_an_image_is_told_what_fits():
    with pytest.raises(ModelError) as caught:
        conv(layout_of(35, 80), "nature", where="observation 'left'")
    for part in ("35 × 80", "nature needs at least 36", "take simple or resnet", "observation 'left'"):
        assert part in str(caught.value)


def test_an_unknown_kind_is_told_the_known_ones():
    with pytest.raises(
        ModelError, match=r"'natur'[\s\S]*did you mean nature\? Known: simple, nature, resnet"
    ):
        conv(layout_of(84, 84), "natur")
