"""MLPs, plain, normalised or of residual blocks, and the layer from features to actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import ActionSpec
from algorithm.nn.layers.inverted import inverted_mlp
from algorithm.nn.layers.norm import BatchNorm
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.ops import library

LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of the policy's log standard deviation (arXiv 1801.01290, the authors' own choice)."""

SQUASHED_LOG_STD_RANGE = (-10.0, 2.0)
"""Bounds of a log standard deviation with ``log_std: tanh`` (arXiv 2604.04539)."""

LogStd = Literal["clamp", "tanh"]
"""Ways to bound the log standard deviation; see :class:`ActionHead`."""

Linear = Callable[[int, int], nn.Module]
"""(in_size, out_size) -> a layer [..., in_size] -> [..., out_size]."""

Norm = Literal["layer", "batch", "batch_first"]
"""Kinds of normalised layers; see :func:`mlp`."""

Body = Literal["plain", "residual", "inverted"]
"""Kinds of hidden layers: one after the other, or blocks that add to their input (SimBa, FlashSAC)."""

WIDENING = 4
"""Width of the hidden layer of a residual block, in widths of the block (arXiv 2410.09754, section 4)."""


Activation = Literal["relu", "tanh", "elu", "gelu", "silu"]
"""Activations of default networks; see `ACTIVATIONS`."""


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


ACTIVATIONS: Mapping[Activation, Callable[[], nn.Module]] = {
    "relu": _relu,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
"""Name of an activation -> constructor."""


def mlp(
    in_size: int,
    hidden: Sequence[int],
    out_size: int | None = None,
    activation: Callable[[], nn.Module] = _relu,
    linear: Linear = nn.Linear,
    norm: Norm | None = None,
) -> nn.Sequential:
    """Return linear layers with ``activation`` between them.

    hidden:     width of each hidden layer; may be empty.
    out_size:   width of a last linear layer without activation; None leaves it out.
    activation: builds one; the default works in place, which halves the memory a layer touches.
    linear:     builds a layer from its widths, such as :class:`~algorithm.nn.layers.noisy.NoisyLinear`.
    norm:       ``layer``: layer norm (arXiv 1607.06450) between each hidden layer and its activation, as in
                DroQ (arXiv 2110.02034). ``batch``: batch norm of the input and after each activation, as in
                CrossQ (arXiv 1902.05605). ``batch_first``: of the input and before each activation, without
                biases, as in XQC (arXiv 2509.25174); that of the input has no β, which the next one cancels
    Returns a module [..., in_size] -> [..., out_size or hidden[-1] or in_size].
    Raises ValueError for an unknown norm, and for batch norm with other layers than ``nn.Linear``.
    """
    _check_choice("norm", norm, (None, *get_args(Norm)))
    of_batch = norm in ("batch", "batch_first")
    if of_batch and linear is not nn.Linear:
        raise ValueError(f"norm: {norm} is for plain linear layers; leave noisy out")
    layers: list[nn.Module] = [BatchNorm(in_size, shifts=norm == "batch")] if of_batch else []
    width = in_size
    for size in hidden:
        if norm == "batch":
            layers += [nn.Linear(width, size), activation(), BatchNorm(size)]
        elif norm == "batch_first":
            layers += [nn.Linear(width, size, bias=False), BatchNorm(size), activation()]
        else:
            between = [nn.LayerNorm(size)] if norm == "layer" else []
            layers += [linear(width, size), *between, activation()]
        width = size
    if out_size is not None:
        layers.append(linear(width, out_size))
    return nn.Sequential(*layers)


class JoinedMlp(nn.Module):
    """MLP of ``depth`` layers of ``width`` units over several inputs, concatenated to [..., in_size]."""

    def __init__(self, in_size: int, width: int, depth: int, out_size: int) -> None:
        super().__init__()
        self.net = mlp(in_size, [width] * depth, out_size)

    @override
    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs [..., out_size] for the concatenated inputs [..., in_size]."""
        out: Tensor = self.net(torch.cat(inputs, -1))
        return out


class ResidualBlock(nn.Module):
    """x + W₂ relu(W₁ LN(x)), with 4n hidden units (SimBa, arXiv 2410.09754, section 4).

    size: n, the width of x; activation: builds another one than ReLU
    """

    def __init__(self, size: int, activation: Callable[[], nn.Module] = _relu) -> None:
        super().__init__()
        inner = WIDENING * size
        self.net = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, inner), activation(), nn.Linear(inner, size)
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return [..., n] of x [..., n]."""
        added: Tensor = x + self.net(x)
        return added


def residual_mlp(
    in_size: int,
    size: int,
    depth: int,
    out_size: int | None = None,
    activation: Callable[[], nn.Module] = _relu,
) -> nn.Sequential:
    """Return a linear layer, ``depth`` residual blocks of width ``size``, and a layer norm.

    out_size:   width of a last linear layer; None leaves it out.
    activation: builds the blocks' activation
    Returns a module [..., in_size] -> [..., out_size or size] (SimBa, arXiv 2410.09754, figure 5).
    """
    last = [] if out_size is None else [nn.Linear(size, out_size)]
    blocks = (ResidualBlock(size, activation) for _ in range(depth))
    return nn.Sequential(nn.Linear(in_size, size), *blocks, nn.LayerNorm(size), *last)


def _check_choice(name: str, value: object, known: Sequence[object]) -> None:
    if value not in known:
        shown = ", ".join("null" if choice is None else str(choice) for choice in known)
        raise ValueError(f"{name} is {value!r}; known: {shown}")


def hidden_widths(
    dense_n: int | None, dense_depth: int | None, hidden: Sequence[int] | None, default_n: int
) -> list[int]:
    """Return the widths of hidden layers: ``hidden``, or ``dense_n`` repeated ``dense_depth`` (2) times.

    default_n: width if ``dense_n`` is None. Raises ValueError if both ways are used.
    """
    if hidden is None:
        return [default_n if dense_n is None else dense_n] * (2 if dense_depth is None else dense_depth)
    if dense_n is not None or dense_depth is not None:
        raise ValueError("hidden lists the width of every layer; leave dense_n and dense_depth out")
    return list(hidden)


def hidden_layers(
    in_size: int,
    widths: Sequence[int],
    out_size: int | None = None,
    *,
    norm: Norm | None = None,
    block: Body = "plain",
    linear: Linear = nn.Linear,
    activation: Activation = "relu",
) -> nn.Sequential:
    """Return hidden layers of the kind ``block``: an :func:`mlp`, a :func:`residual_mlp` or an inverted one.

    The latter have a block for each width; see :func:`.inverted_mlp`.
    Raises ValueError for an unknown norm or block, and for residual or inverted blocks of different widths,
    with an unfit norm, or of other layers than ``nn.Linear``.
    """
    _check_choice("block", block, get_args(Body))
    if block == "plain":
        return mlp(in_size, widths, out_size, ACTIVATIONS[activation], linear, norm)
    if block == "inverted" and norm != "batch_first":
        raise ValueError("inverted blocks have batch norms before activations; set norm: batch_first")
    if block == "residual" and norm is not None:
        batch = ", or set block: inverted with norm: batch_first" if norm.startswith("batch") else ""
        raise ValueError(f"residual blocks have their own layer norm; leave norm: {norm} out{batch}")
    if linear is not nn.Linear:
        raise ValueError(f"{block} blocks have no noisy layers; leave noisy out")
    if not widths or len(set(widths)) > 1:
        raise ValueError(f"{block} blocks need the same width for all layers, not {list(widths)}")
    make = residual_mlp if block == "residual" else inverted_mlp
    return make(in_size, widths[0], len(widths), out_size, ACTIVATIONS[activation])


def _squashed(x: Tensor) -> Tensor:
    low, high = SQUASHED_LOG_STD_RANGE
    bounded: Tensor = low + 0.5 * (high - low) * (1.0 + library.of(x).tanh(x))
    return bounded


class ActionHead(nn.Module):
    """Linear layer for each kind of action, from features to a :class:`HybridAction`.

    The continuous one gives mean and log standard deviation, the discrete one the logits of all branches.

    in_size: width of the features
    action:  action space of the distribution
    linear:  builds a layer from its widths
    log_std: log σ of the layer's output x. ``clamp``: x within −20 and 2, which has no gradient beyond them.
             ``tanh``: −10 + 6 (1 + tanh x), which begins near −4 and always has one (arXiv 2604.04539)
    Raises ValueError for an unknown ``log_std``.
    """

    lib = library.TORCH

    def __init__(
        self, in_size: int, action: ActionSpec, linear: Linear = nn.Linear, log_std: LogStd = "clamp"
    ) -> None:
        super().__init__()
        _check_choice("log_std", log_std, get_args(LogStd))
        self.clamps = log_std == "clamp"
        self.sizes = [action.continuous] * 2
        self.continuous = linear(in_size, 2 * action.continuous) if action.continuous else None
        self.discrete = linear(in_size, action.discrete) if action.discrete else None

    @override
    def forward(self, features: Tensor, log_std: Tensor | None = None) -> HybridAction:
        """Return the distribution over actions for features [..., in_size].

        log_std: [A_c] common to all features, if the continuous layer gives the mean alone
        """
        part = None
        if self.continuous is not None:
            lib, mean = self.lib, self.continuous(features)
            if log_std is None:
                mean, log_std = lib.split(mean, self.sizes, -1)
            else:
                log_std = lib.expand(log_std, mean)
            part = TanhNormal(mean, lib.clip(log_std, *LOG_STD_RANGE) if self.clamps else _squashed(log_std))
        return HybridAction(part, None if self.discrete is None else self.discrete(features))
