"""Blocks for vectors: a plain MLP and the layer that turns features into an action distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.spec import ActionSpec

LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of the policy's log standard deviation (arXiv 1801.01290, the authors' own choice)."""


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def mlp(
    in_size: int,
    hidden: Sequence[int],
    out_size: int | None = None,
    activation: Callable[[], nn.Module] = _relu,
) -> nn.Sequential:
    """Linear layers with ``activation`` between them.

    hidden:     width of each hidden layer; may be empty.
    out_size:   width of a last linear layer without activation; None leaves it out.
    activation: builds one; the default works in place, which halves the memory a layer touches.
    Returns a module [..., in_size] -> [..., out_size or hidden[-1] or in_size].
    """
    layers: list[nn.Module] = []
    width = in_size
    for size in hidden:
        layers += [nn.Linear(width, size), activation()]
        width = size
    if out_size is not None:
        layers.append(nn.Linear(width, out_size))
    return nn.Sequential(*layers)


class ActionHead(nn.Module):
    """Features -> :class:`HybridAction`: mean and clamped log standard deviation from one linear layer.

    in_size: width of the features
    action:  the spec the distribution is for
    """

    def __init__(self, in_size: int, action: ActionSpec) -> None:
        super().__init__()
        self.continuous = nn.Linear(in_size, 2 * action.continuous)

    def forward(self, features: Tensor) -> HybridAction:
        """features [..., in_size] -> distribution over [..., A_c]."""
        mean, log_std = self.continuous(features).chunk(2, -1)
        return HybridAction(continuous=TanhNormal(mean, log_std.clamp(*LOG_STD_RANGE)))
