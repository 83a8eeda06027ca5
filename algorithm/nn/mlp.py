"""Blocks for vectors: a plain MLP, and the layer from features to an action distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from typing_extensions import override

from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.spec import ActionSpec

LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of the policy's log standard deviation (arXiv 1801.01290, the authors' own choice)."""

Linear = Callable[[int, int], nn.Module]
"""(in_size, out_size) -> a layer [..., in_size] -> [..., out_size]."""


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def mlp(
    in_size: int,
    hidden: Sequence[int],
    out_size: int | None = None,
    activation: Callable[[], nn.Module] = _relu,
    linear: Linear = nn.Linear,
) -> nn.Sequential:
    """Return linear layers with ``activation`` between them.

    hidden:     width of each hidden layer; may be empty.
    out_size:   width of a last linear layer without activation; None leaves it out.
    activation: builds one; the default works in place, which halves the memory a layer touches.
    linear:     builds a layer from its widths, such as :class:`~algorithm.nn.noisy.NoisyLinear`.
    Returns a module [..., in_size] -> [..., out_size or hidden[-1] or in_size].
    """
    layers: list[nn.Module] = []
    width = in_size
    for size in hidden:
        layers += [linear(width, size), activation()]
        width = size
    if out_size is not None:
        layers.append(linear(width, out_size))
    return nn.Sequential(*layers)


def hidden_widths(
    dense_n: int | None, dense_depth: int | None, hidden: Sequence[int] | None, default_n: int
) -> list[int]:
    """Return the widths of hidden layers: those of ``hidden``, or ``dense_depth`` (2) times ``dense_n``.

    default_n: the width without ``dense_n``. Raises ValueError if both ways are taken.
    """
    if hidden is None:
        return [default_n if dense_n is None else dense_n] * (2 if dense_depth is None else dense_depth)
    if dense_n is not None or dense_depth is not None:
        raise ValueError("hidden lists the width of every layer; leave dense_n and dense_depth out")
    return list(hidden)


class ActionHead(nn.Module):
    """Linear layer for each kind of action, from features to a :class:`HybridAction`.

    The continuous one gives mean and clamped log standard deviation, the discrete one the logits of all
    branches.

    in_size: width of the features
    action:  the spec the distribution is for
    linear:  builds a layer from its widths
    """

    def __init__(self, in_size: int, action: ActionSpec, linear: Linear = nn.Linear) -> None:
        super().__init__()
        self.continuous = linear(in_size, 2 * action.continuous) if action.continuous else None
        self.discrete = linear(in_size, action.discrete) if action.discrete else None

    @override
    def forward(self, features: Tensor) -> HybridAction:
        """Return the distribution over actions for features [..., in_size]."""
        part = None
        if self.continuous is not None:
            mean, log_std = self.continuous(features).chunk(2, -1)
            part = TanhNormal(mean, log_std.clamp(*LOG_STD_RANGE))
        return HybridAction(part, None if self.discrete is None else self.discrete(features))
