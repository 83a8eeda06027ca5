"""Inverted residual blocks with batch norm, as in FlashSAC (arXiv 2604.04539)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from typing_extensions import override

from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.norm import EPSILON, BatchNorm, RmsNorm

EXPANSION = 4
"""Width of the hidden layer of a block, in widths of the block (FlashSAC)."""

_norm = partial(BatchNorm, epsilon=EPSILON)


class InvertedBlock(nn.Module):
    """x + relu(BN(W₂ relu(BN(W₁ x)))), with 4d hidden units and without biases (FlashSAC).

    size: d, the width of x; activation: builds another one than ReLU
    """

    def __init__(self, size: int, activation: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        inner = EXPANSION * size
        self.net = nn.Sequential(
            nn.Linear(size, inner, bias=False),
            _norm(inner),
            activation(),
            nn.Linear(inner, size, bias=False),
            _norm(size),
            activation(),
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return [..., d] of x [..., d]."""
        added: Tensor = x + self.net(x)
        return added


def inverted_mlp(
    in_size: int,
    size: int,
    depth: int,
    out_size: int | None = None,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Return a batch norm, a linear layer without bias, ``depth`` inverted blocks, and an RMS norm.

    All initial weights are orthogonal with gain 1.

    size:       d, the width of the blocks
    out_size:   width of a last linear layer; None leaves it out.
    activation: builds the blocks' activation
    Returns a module [..., in_size] -> [..., out_size or size] (FlashSAC).
    """
    last = [] if out_size is None else [nn.Linear(size, out_size)]
    blocks = (InvertedBlock(size, activation) for _ in range(depth))
    first = _norm(in_size), nn.Linear(in_size, size, bias=False)
    net = nn.Sequential(*first, *blocks, RmsNorm(size), *last)
    set_orthogonal(net, 1.0)
    return net
