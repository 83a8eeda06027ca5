"""Recurrent layers for windows with padding, by torch's kernels: missing tokens do not change the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override


class _Alignment:
    """Shift of each row's valid tokens to its beginning, and of their outputs back.

    Torch's recurrent kernels take no mask. They may process tokens after the last valid one, whose outputs
    are not used. The True entries of ``valid`` [B, T] must be contiguous in each row.
    """

    def __init__(self, valid: Tensor) -> None:
        batch, steps = valid.shape
        self._valid = valid
        count = valid.sum(1, keepdim=True)
        first = valid.to(torch.int8).argmax(1, keepdim=True)
        time = torch.arange(steps, device=valid.device)
        last = (count - 1).clamp(min=0)
        row = torch.arange(batch, device=valid.device).unsqueeze(1) * steps
        self._there = (row + first + torch.minimum(time, last)).flatten()
        self._back = (row + (time - first).clamp(min=0).minimum(last)).flatten()
        self._begun = (time >= first) & (count > 0)  # padding at the end keeps the last valid token's carry

    def to_front(self, x: Tensor) -> Tensor:
        """Shift each row's valid tokens of x [B, T, ...] to the front."""
        return x.flatten(0, 1).index_select(0, self._there).view(x.shape)

    def outputs(self, x: Tensor) -> Tensor:
        """Return outputs x [B, T, H] shifted back to their tokens; 0 where no token exists."""
        back = x.flatten(0, 1).index_select(0, self._back).view(x.shape)
        return torch.where(self._valid.unsqueeze(-1), back, 0.0)

    def carries(self, x: Tensor, initial: Tensor) -> Tensor:
        """Return carries x [B, T, *C] shifted back to their tokens; ``initial`` [B, *C] before the first."""
        back = x.flatten(0, 1).index_select(0, self._back).view(x.shape)
        begun = self._begun.view(*self._begun.shape, *[1] * (x.dim() - 2))
        return torch.where(begun, back, initial.unsqueeze(1))


Kernel = Callable[..., tuple[Tensor, ...]]


class RecurrentLayer(nn.Module):
    """Recurrent layer in one direction, batch first, with the weights of ``nn.RNNBase``.

    ``torch.compile`` does not accept ``nn.RNNBase`` itself.

    kernel: ``torch.gru`` or ``torch.lstm``
    gates:  number of gates of a unit, each with its own weights
    """

    def __init__(self, kernel: Kernel, gates: int, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self._kernel = kernel
        bound, rows = hidden_size**-0.5, gates * hidden_size
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size), "bias_ih": (rows,)}
        for name, shape in {**shapes, "bias_hh": (rows,)}.items():
            self.register_parameter(f"{name}_l0", nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    @override
    def forward(self, x: Tensor, *before: Tensor) -> tuple[Tensor, ...]:
        """Return outputs [B, T, H] of x [B, T, I], and last states [1, B, H]; before: initial ones [B, H]."""
        states = [state.unsqueeze(0).contiguous() for state in before]  # required by CUDA's kernels
        initial = states[0] if len(states) == 1 else states
        return self._kernel(x, initial, list(self.parameters()), True, 1, 0.0, False, False, True)


class Recurrent(nn.Module, ABC):
    """Stack of ``depth`` recurrent layers of ``hidden_size`` units.

    Initial recurrent weights are orthogonal and biases zero: at first a state neither fades nor grows.

    carry_shape: C of one agent, its state between two tokens; zeros at an episode's start
    out_size:    hidden_size
    cell:        kernel and gates of :class:`RecurrentLayer`
    """

    carry_shape: tuple[int, ...]
    cell: ClassVar[tuple[Kernel, int]]

    def __init__(self, input_size: int, hidden_size: int, depth: int = 1) -> None:
        super().__init__()
        self.out_size = hidden_size
        sizes = [input_size, *[hidden_size] * (depth - 1)]
        self.layers = nn.ModuleList(RecurrentLayer(*self.cell, size, hidden_size) for size in sizes)
        for name, parameter in self.layers.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            elif "weight_hh" in name:
                for gate in parameter.split(hidden_size):
                    nn.init.orthogonal_(gate)

    @abstractmethod
    def _scan(self, x: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs [B, T, H] and the carry after each token [B, T, *C]; all tokens are valid.

        x: [B, T, I]; carry: [B, *C]
        """

    @override
    def forward(self, x: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Process T tokens.

        x:     [B, T, input_size]
        carry: [B, *C] before the first valid token
        valid: [B, T] tokens that exist, contiguous in each row
        Returns outputs [B, T, hidden_size], 0 where a token does not exist, and the carry after each token
        [B, T, *C], without gradient; a missing token does not change it.
        """
        alignment = _Alignment(valid)
        out, after = self._scan(alignment.to_front(x), carry)
        return alignment.outputs(out), alignment.carries(after, carry)


class GRU(Recurrent):
    """Gated recurrent units (Cho et al. 2014, arXiv 1406.1078); carry [depth, hidden_size]."""

    cell = torch.gru, 3

    def __init__(self, input_size: int, hidden_size: int, depth: int = 1) -> None:
        super().__init__(input_size, hidden_size, depth)
        self.carry_shape = (depth, hidden_size)

    @override
    def _scan(self, x: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        after = []
        for layer, h in zip(self.layers, carry.unbind(1), strict=True):
            x, _ = layer(x, h)
            after.append(x.detach())
        return x, torch.stack(after, 2)


class LSTM(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); carry [2, depth, hidden_size]: h, then c.

    The initial bias of f, the gate on the old cell state, is 1 (Jozefowicz et al. 2015).
    """

    cell = torch.lstm, 4

    def __init__(self, input_size: int, hidden_size: int, depth: int = 1) -> None:
        super().__init__(input_size, hidden_size, depth)
        self.carry_shape = (2, depth, hidden_size)
        for layer in self.layers:
            with torch.no_grad():
                layer.get_parameter("bias_ih_l0")[hidden_size : 2 * hidden_size].fill_(1.0)

    @override
    def _scan(self, x: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cells = [], []
        for layer, h, c in zip(self.layers, *(part.unbind(1) for part in carry.unbind(1)), strict=True):
            out, _, last = layer(x, h, c)
            cells.append(last.detach().movedim(0, 1) if x.shape[1] == 1 else _cells(layer, x, out, h, c))
            hidden.append(out.detach())
            x = out
        return x, torch.stack([torch.stack(hidden, 2), torch.stack(cells, 2)], 2)


@torch.no_grad()
def _cells(layer: nn.Module, x: Tensor, out: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """Return the cell state after each token [B, T, H], which torch's kernel does not return.

    With all outputs known it is a linear recurrence: c' = f ⊙ c + i ⊙ g.
    """
    before = torch.cat([h.unsqueeze(1), out[:, :-1]], 1)
    weight_ih, weight_hh, bias_ih, bias_hh = (
        layer.get_parameter(f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    gates = linear(x, weight_ih, bias_ih + bias_hh) + linear(before, weight_hh)
    i, f, g, _ = gates.chunk(4, -1)
    f, new = f.sigmoid(), i.sigmoid() * g.tanh()
    cells = []
    for t in range(x.shape[1]):
        c = torch.addcmul(new[:, t], f[:, t], c)
        cells.append(c)
    return torch.stack(cells, 1)
