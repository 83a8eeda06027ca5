"""Replacements for modules and action parts, in the few elementary operators that Unity's runtimes have.

They are chosen by type. Other modules are traced as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from algorithm.actions.continuous import Noise, logits_of
from algorithm.actions.parts import (
    ActionParts,
    Categorical,
    GreedyBranches,
    MeanQ,
    RecordedCategorical,
)
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.attention import Attention, Rotary
from algorithm.nn.layers.noisy import NoisyLinear
from algorithm.nn.layers.recurrent import GRU, LSTM, Recurrent
from algorithm.nn.protocols import HybridAction
from algorithm.ops import discrete as ops

LOWEST = -1e30
"""Score of a forbidden choice. Not every backend of Unity's computes with infinity."""

TINY, BELOW_ONE = torch.finfo(torch.float32).tiny, 1.0 - 2.0**-24
"""Bounds of uniform numbers, so that both logarithms of a Gumbel number are finite.

A runtime may draw 0, and by rounding 1. A NaN among the scores would choose what is forbidden.
"""


class _Gates(nn.Module):
    """Weights of a recurrent layer, and its gates before their activation."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            self.register_parameter(name, layer.get_parameter(f"{name}_l0"))
        self.units = self.get_parameter("weight_hh").shape[1]

    def of(self, x: Tensor, kind: str) -> list[Tensor]:
        """Return each gate's summand [B, H] from the input, with kind ``ih``, or from the state, ``hh``."""
        both = linear(x, self.get_parameter(f"weight_{kind}"), self.get_parameter(f"bias_{kind}"))
        return [both[:, at : at + self.units] for at in range(0, both.shape[-1], self.units)]


class _GruCell(_Gates):
    @override
    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor]:
        (r_x, z_x, n_x), (r_h, z_h, n_h) = self.of(x, "ih"), self.of(h, "hh")
        z = torch.sigmoid(z_x + z_h)
        new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        return ((1.0 - z) * new + z * h,)


class _LstmCell(_Gates):
    @override
    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (x + h for x, h in zip(self.of(x, "ih"), self.of(h, "hh"), strict=True))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class RecurrentSteps(nn.Module):
    """A GRU or LSTM for one token, in elementary operators: Barracuda and Sentis have neither.

    cell: makes a layer's cell, which returns the new states; the first of them is its output
    """

    def __init__(self, recurrent: Recurrent, cell: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(cell, recurrent.layers))

    @override
    def forward(self, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [B, 1, H] and the new carry [B, 1, *C], of x [B, 1, I] and the carry [B, *C]."""
        x, after, depths = x[:, 0], [], carry.dim() - 2
        for layer, states in zip(self.layers, carry.unbind(depths), strict=True):
            new = layer(x, *(states.unbind(1) if depths == 2 else (states,)))
            x = new[0]
            after.append(torch.stack(new, 1) if depths == 2 else x)
        return x.unsqueeze(1), torch.stack(after, depths).unsqueeze(1)


class AttentionSteps(nn.Module):
    """Attention for one token. The number of slots is fixed, so positions are tables."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.layers, self.norm = attention.layers, attention.norm
        self.width = 2 * attention.out_size
        for layer in self.layers:
            heads = cast(Any, layer).attention
            heads.positions = RotaryTable(heads.positions, attention.context)

    @override
    def forward(self, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return output and carry; see :meth:`.Attention._step`."""
        ones = torch.ones_like(x[..., :1])
        exists = torch.cat([carry[..., :1], ones], 1)  # and the token itself
        mask = ((exists - 1.0) * -LOWEST).transpose(1, 2).unsqueeze(1)
        token, start = [ones], 1
        for layer in self.layers:
            x, new = layer(x, mask, carry[..., start : start + self.width])
            token.append(new)
            start += self.width
        return self.norm(x), torch.cat([carry[:, 1:], torch.cat(token, -1)], 1).unsqueeze(1)


class RotaryTable(nn.Module):
    """Rotary positions of a fixed number of slots, the query in the last one."""

    def __init__(self, rotary: Rotary, slots: int) -> None:
        super().__init__()
        self.inner = (rotary,)  # not a submodule: it has no parameters
        angle = torch.outer(torch.arange(slots, dtype=torch.float32), rotary.frequency)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    @override
    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Turn q and k; see :meth:`.Rotary.forward`."""
        cos, sin = self.get_buffer("cos"), self.get_buffer("sin")
        turn = self.inner[0].turn
        return turn(q, cos[-1:], sin[-1:]), turn(k, cos, sin)


class Critics(nn.Module):
    """Ensemble whose critics are computed one after the other, each with its own parameters."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.members = nn.ModuleList(copy.deepcopy(ensemble.members))

    @override
    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [E, N, …]."""
        return torch.stack([member(state, c_action) for member in self.members])

    def frozen(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [E, N, …]."""
        q: Tensor = self(state, c_action)
        return q


def _without_noise(noisy: NoisyLinear) -> nn.Linear:
    """Return the linear layer of a noisy one's means."""
    plain = nn.Linear(noisy.weight.shape[1], noisy.weight.shape[0])
    plain.weight, plain.bias = noisy.weight, noisy.bias
    return plain


MODULES: Mapping[type[nn.Module], Callable[[Any], nn.Module]] = {
    GRU: partial(RecurrentSteps, cell=_GruCell),
    LSTM: partial(RecurrentSteps, cell=_LstmCell),
    Attention: AttentionSteps,
    Ensemble: Critics,
    NoisyLinear: _without_noise,
}
"""Type of a module -> function that makes its replacement."""


def rewritten(module: nn.Module) -> nn.Module:
    """Return a copy in which every module of :data:`MODULES` is replaced, and noise is off."""
    copied = copy.deepcopy(module)
    for parent in [*copied.modules()]:
        if hasattr(parent, "zero_noise"):
            cast(Any, parent).zero_noise()
        for name, child in parent.named_children():
            if type(child) in MODULES:
                setattr(parent, name, MODULES[type(child)](child))
    return copied


class FiniteBranches:
    """Discrete part whose scores are always finite: logits, or critics' values with ``asks_critics``.

    A sample is the largest ``logit − log(−log(u))``, as in :func:`~algorithm.ops.discrete.sample_branches`.
    It only acts: a graph has neither distributions nor ratios.

    part: the part that this one replaces
    """

    def __init__(self, part: Categorical | GreedyBranches) -> None:
        self.branches, self.asks_critics = part.branches, part.asks_critics

    def act(
        self, policy: HybridAction, mask: Tensor, mean_q: MeanQ, uniform: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor]:
        """Return one-hots [N, ΣN] of the largest scores, or of samples with ``uniform``; and zeros [N]."""
        scores = mean_q() if self.asks_critics else logits_of(policy)
        if uniform is not None and not self.asks_critics:
            scores = scores - (-uniform.clamp(TINY, BELOW_ONE).log()).log()
        scores = torch.where(ops.or_all(mask, self.branches), scores, LOWEST)
        parts = [scores] if len(self.branches) == 1 else scores.split(list(self.branches), -1)
        onehots = [
            (part.argmax(-1, keepdim=True) == torch.arange(width)).to(scores.dtype)
            for part, width in zip(parts, self.branches, strict=True)
        ]
        return onehots[0] if len(onehots) == 1 else torch.cat(onehots, -1), scores[:, 0] * 0.0


PARTS: Mapping[type, Callable[[Any], Any]] = {
    Categorical: FiniteBranches,
    RecordedCategorical: FiniteBranches,
    GreedyBranches: FiniteBranches,
}
"""Type of a discrete part -> class of its replacement."""


def rewritten_parts(parts: ActionParts) -> ActionParts:
    """Return the parts with discrete ones of :data:`PARTS` replaced."""
    make = PARTS.get(type(parts.discrete))
    return parts if make is None else ActionParts(make(parts.discrete), parts.continuous)
