"""Positions in attention, which are relative: distances between tokens, not steps of the episode.

The tokens have slots 0 … S−1, oldest first, and the queries are the last Q of them. Only differences of slots
matter, not where the tokens are in an episode or a window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

LONGEST = 10000.0
"""Ratio of wave lengths, from 2π to almost 2π · LONGEST slots (arXiv 1706.03762, section 3.5)."""


class Rotary(nn.Module):
    """Rotation of queries and keys by the slot's angle (RoPE, arXiv 2104.09864, section 3.4.2).

    The product of a query and a key then depends on the difference of their slots. Channels i and
    i + size / 2 rotate as a pair, and within each half the heads follow one another. On a CPU such long
    blocks are faster than pairs of neighbours, and unlike complex numbers they can be exported.

    size, heads: widths; raises ``ValueError`` unless each head has an even one
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        if size % (2 * heads):
            raise ValueError(
                f"Attention: positions turn pairs of channels, so size must be a multiple of 2 · heads, "
                f"{2 * heads}; got {size}"
            )
        self.heads = heads
        self.frequency: Tensor
        pairs = size // heads // 2
        frequency = LONGEST ** (-torch.arange(pairs) / pairs)  # in radians per slot
        self.register_buffer("frequency", frequency.repeat(heads), persistent=False)

    @override
    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries [B, heads, Q, d] and keys [B, heads, S, d], rotated by their positions.

        q: [B, Q, size]; k: [B, S, size]; d = size / heads
        """
        angle = torch.outer(torch.arange(k.shape[1], device=k.device), self.frequency)
        cos, sin = angle.cos(), angle.sin()
        first = k.shape[1] - q.shape[1]
        return self.turn(q, cos[first:], sin[first:]), self.turn(k, cos, sin)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x [B, S, size] by cos and sin [S, size / 2]; returns [B, heads, S, d]."""
        a, b = x.chunk(2, -1)
        turned = torch.cat([torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)], -1)
        split: Tensor = turned.unflatten(-1, (2, self.heads, -1))
        return split.permute(0, 3, 1, 2, 4).flatten(-2)
