"""Positions in attention, which are relative: distances between tokens, not steps of the episode.

In both kinds the tokens have slots 0 … S−1, oldest first, and the queries are the last Q of them. Only
differences of slots matter, not where the tokens are in an episode or a window.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from typing_extensions import override

LONGEST = 10000.0
"""Ratio of wave lengths, from 2π to almost 2π · LONGEST slots (arXiv 1706.03762, section 3.5)."""


def _frequencies(count: int) -> Tensor:
    """Return LONGEST^(−i / count), [count], in radians per slot."""
    return LONGEST ** (-torch.arange(count) / count)


def _split(x: Tensor, heads: int) -> Tensor:
    """Split [..., S, size] into heads, [..., heads, S, size / heads]."""
    split: Tensor = x.unflatten(-1, (heads, -1))
    return split.transpose(-3, -2)


class Rotary(nn.Module):
    """Rotation of queries and keys by the slot's angle (RoPE, arXiv 2104.09864, section 3.4.2).

    The product of a query and a key then depends on the difference of their slots. Channels i and
    i + size / 2 rotate as a pair, and within each half the heads follow one another. On a CPU such long
    blocks are faster than pairs of neighbours, and unlike complex numbers they can be exported.

    size, heads: widths; raises ``ValueError`` unless a head's is even
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        if size // heads % 2:
            raise ValueError(
                f"Attention: rotary positions turn pairs, but each head has {size // heads} channels. Make "
                f"size / heads even, for example size={2 * size}, or use positions='sinusoidal'."
            )
        self.heads = heads
        self.frequency: Tensor
        frequency = _frequencies(size // heads // 2).repeat(heads)
        self.register_buffer("frequency", frequency, persistent=False)

    @override
    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate the queries and the keys by their positions.

        q:    [B, Q, size] divided by √(size / heads)
        k:    [B, S, size]
        mask: [B, 1, Q, S] added to the scores
        Returns q [B, heads, Q, d] and k [B, heads, S, d], d = size / heads, and what is added to q kᵀ: the
        mask.
        """
        angle = torch.outer(torch.arange(k.shape[1], device=k.device), self.frequency)
        cos, sin = angle.cos(), angle.sin()
        first = k.shape[1] - q.shape[1]
        return self.turn(q, cos[first:], sin[first:]), self.turn(k, cos, sin), mask

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x [B, S, size] by cos and sin [S, size / 2]; returns [B, heads, S, d]."""
        a, b = x.chunk(2, -1)
        turned = torch.cat([torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)], -1)
        split: Tensor = turned.unflatten(-1, (2, self.heads, -1))
        return split.permute(0, 3, 1, 2, 4).flatten(-2)


class RelativeSinusoidal(nn.Module):
    """Scores of content plus scores of distance (Transformer-XL, arXiv 1901.02860, section 3.3).

    score(i, j) = (q_i + u)·k_j + (q_i + v)·W R_{i−j}, with sines and cosines R of the distance. The initial u
    and v are zero: before learning no content or distance is preferred.

    size, heads: widths
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.size = size
        self.scale = (size // heads) ** -0.5
        self.distance = nn.Linear(size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(size))
        self.distance_bias = nn.Parameter(torch.zeros(size))
        self.frequency: Tensor
        self.register_buffer("frequency", _frequencies((size + 1) // 2), persistent=False)

    @override
    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys, and the mask plus the scores of distances; shapes as in :class:`Rotary`."""
        content = torch.add(q, self.content_bias, alpha=self.scale)
        position = torch.add(q, self.distance_bias, alpha=self.scale)
        by_distance = _split(position, self.heads) @ self.encode(k.shape[1]).transpose(-2, -1)
        return _split(content, self.heads), _split(k, self.heads), mask + _by_slot(by_distance)

    def encode(self, slots: int) -> Tensor:
        """Return W R of the distances slots, slots − 1, …, 0: [heads, slots + 1, d]."""
        distance = torch.arange(slots, -1, -1, device=self.frequency.device)
        angle = torch.outer(distance, self.frequency)
        table = torch.cat([angle.sin(), angle.cos()], -1)[:, : self.size]
        return _split(self.distance(table), self.heads)


def _by_slot(by_distance: Tensor) -> Tensor:
    """Reorder scores by distance S … 0 [..., Q, S + 1] to scores by the key's slot [..., Q, S].

    Each row must be shifted by one against the row above, which a view with rows shorter by one gives without
    a copy (arXiv 1901.02860, appendix B). Keys later than their query get scores of other rows; the mask
    excludes them.
    """
    queries, columns = by_distance.shape[-2:]
    by_slot: Tensor = by_distance.flatten(-2)[..., queries:].unflatten(-1, (queries, columns - 1))
    return by_slot


POSITIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "rotary": Rotary,
    "sinusoidal": RelativeSinusoidal,
}
"""Kind of positions -> its module for (size, heads)."""
