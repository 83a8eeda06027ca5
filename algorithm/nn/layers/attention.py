"""Memory by attention over the last few tokens of an episode, with relative positions.

Positions are distances between tokens, not steps of the episode: the tokens have slots 0 … S−1, oldest first,
and the queries are the last Q of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
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


DENSE_FACTOR = 4
"""Width of the feed-forward layer in multiples of ``size`` (arXiv 1706.03762, section 3.3)."""


class SelfAttention(nn.Module):
    """Attention of several heads with one projection for queries, keys and values.

    size, heads: widths
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (size // heads) ** -0.5
        self.qkv = nn.Linear(size, 3 * size)
        self.positions = Rotary(size, heads)
        self.out = nn.Linear(size, size)

    @override
    def forward(self, x: Tensor, mask: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attend from each of Q tokens to the P + Q tokens past and present.

        x:    [B, Q, size]
        mask: [B, 1, Q, P + Q] 0 where a query may attend, −∞ elsewhere
        past: [B, P, 2 size] keys, before their positions, and values of earlier tokens; None is P = 0
        Returns the weighted values [B, Q, size], and keys and values of these tokens [B, Q, 2 size].
        """
        size = x.shape[-1]
        q, kv = self.qkv(x).split([size, 2 * size], -1)
        k, v = (kv if past is None else torch.cat([past, kv], 1)).chunk(2, -1)
        q, k = self.positions(q * self.scale, k)
        # Plain products: on a CPU, torch's fused attention is nowhere faster for windows this short.
        scores = q @ k.transpose(-2, -1)
        scores += mask  # in place: this is the largest tensor of the block
        weights = scores.softmax(-1)
        attended = weights @ v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.out(attended.transpose(1, 2).flatten(-2)), kv


class Layer(nn.Module):
    """Attention, then two dense layers; each works on the normalised residual stream and is added to it.

    size, heads: as in :class:`SelfAttention`
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(size)
        self.attention = SelfAttention(size, heads)
        self.norm_dense = nn.LayerNorm(size)
        self.dense_in = nn.Linear(size, DENSE_FACTOR * size)
        self.dense_out = nn.Linear(DENSE_FACTOR * size, size)

    @override
    def forward(self, x: Tensor, mask: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Apply attention, then the dense layers; shapes as in :meth:`SelfAttention.forward`."""
        attended, kv = self.attention(self.norm_attention(x), mask, past)
        x = x + attended
        dense = self.dense_out(F.gelu(self.dense_in(self.norm_dense(x))))
        return x + dense, kv


class Attention(nn.Module):
    """Causal self-attention over the last ``context`` tokens, in a window or token by token.

    In every layer token t attends to the tokens s with 0 ≤ t − s < context. With L layers its output depends
    on tokens up to L · (context − 1) before it. Layers normalise their inputs, not the residual stream
    (pre-norm, arXiv 2002.04745), and the last layer's output is normalised.

    While acting, the carry holds the last context − 1 tokens, oldest first: for each token a 1, and for each
    layer its key, without position, and its value. A token of zeros does not exist. Positions are distances
    between slots, so nothing grows with the length of an episode.

    Initial weights are uniform with variance 1 / inputs, so that scores and values have a variance of about
    one. Those of layers that add to the residual stream are divided by √(2 depth), against its growth with
    depth (GPT-2, Radford et al. 2019, section 2.3). Biases are zero.

    size:      width of tokens and result, a multiple of ``heads``
    context:   number of tokens that a token attends to, itself included; at least 2
    depth:     number of layers
    heads:     number of heads, each of an even width; raises ``ValueError`` for other sizes
    """

    def __init__(self, size: int, context: int, depth: int = 1, heads: int = 4) -> None:
        super().__init__()
        self.out_size = size
        self.context = context
        self.carry_shape = (context - 1, 1 + depth * 2 * size)
        layers = [Layer(size, heads) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(size)
        self._initialise(layers)

    @torch.no_grad()
    def _initialise(self, layers: list[Layer]) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = (3 / module.in_features) ** 0.5
                module.weight.uniform_(-bound, bound)
                module.bias.zero_()
        for layer in layers:
            for writer in (layer.attention.out, layer.dense_out):
                writer.weight.mul_((2 * len(layers)) ** -0.5)

    @override
    def forward(self, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each token to itself and those before it.

        x:     [B, T, size]
        carry: [B, 0] for a window; [B, *carry_shape] while acting, with T = 1
        valid: bool [B, T] tokens that exist, contiguous; the others have no influence, and outputs of 0
        Returns [B, T, size] and the carry after each token: [B, 0] or [B, 1, *carry_shape].
        """
        absent = ~valid[..., None]
        x = x.masked_fill(absent, 0.0)  # first of all: not even a NaN of padding may spread
        if carry.dim() == 2:
            out, after = self._window(x, valid), carry
        else:
            out, after = self._step(x, carry, valid)
        return self.norm(out).masked_fill(absent, 0.0), after

    def _window(self, x: Tensor, valid: Tensor) -> Tensor:
        """Map x [B, T, size] to the same shape; each token attends to valid ones of the last ``context``."""
        mask = _band(valid, self.context, x.dtype)
        for layer in self.layers:
            x, _ = layer(x, mask)
        return x

    def _step(self, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Map x [B, 1, size] to [B, 1, size] and the carry after it [B, 1, *carry_shape]."""
        exists, *past = carry.split([1] + [2 * self.out_size] * len(self.layers), -1)
        mask = F.pad(_additive(exists[..., 0] > 0, x.dtype), (0, 1))[:, None, None]  # and the token itself
        token = [torch.ones_like(x[..., :1])]
        for layer, kv in zip(self.layers, past, strict=True):
            x, new = layer(x, mask, kv)
            token.append(new)
        shifted = torch.cat([carry[:, 1:], torch.cat(token, -1)], 1)
        return x, torch.where(valid[..., None], shifted, carry)[:, None]


def _additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask of the same shape to be added to scores: 0 where ``allowed``, else −∞."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)


def _band(valid: Tensor, context: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask [B, 1, queries T, keys T] of a window with valid [B, T].

    Each token attends to itself even if it does not exist: a row without any key would have no softmax.
    """
    slot = torch.arange(valid.shape[1], device=valid.device)
    distance = slot[:, None] - slot
    mask = _additive((distance >= 0) & (distance < context), dtype) + _additive(valid, dtype)[:, None, None]
    mask.diagonal(dim1=-2, dim2=-1).zero_()
    return mask
