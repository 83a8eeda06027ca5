"""Substitutes for recorded operations in a compiled graph, which can be compiled better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, fx

LARGE = 2**20
"""Multiplications of a matrix product from which its factors are worth being rounded."""

_aten = torch.ops.aten


class GradientSums:
    """Gradients that are added part by part to storages that were zeroed, put together when they are read.

    Of an addition to a part, the compiler would make a new whole.

    graph: to which what is put together is added
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._sizes: dict[int, int] = {}
        self._parts: dict[int, dict[range, fx.Node]] = {}

    def begin(self, storage: int, size: int) -> None:
        """Note that a storage of so many numbers was zeroed."""
        self._sizes[storage], self._parts[storage] = size, {}

    def add(self, storage: int, part: range, term: Callable[[], fx.Node]) -> bool:
        """Note what is added to a part; return whether that is all there is to do.

        term: returns the node of what is added, in the shape that the part has each time
        """
        parts = self._parts.get(storage)
        if parts is None or any(
            other != part and other.start < part.stop and part.start < other.stop for other in parts
        ):
            return False
        node = term()
        if part in parts:
            node = self._graph.call_function(_aten.add.Tensor, (parts[part], node))
        parts[part] = node
        return True

    def end(self, storage: int, base: fx.Node) -> None:
        """Write what a storage has become, if it was zeroed, into its first tensor."""
        parts = self._parts.pop(storage, None)
        if parts is None:
            return
        size, pieces = self._sizes.pop(storage), list[fx.Node]()
        borders = [range(0), *sorted(parts, key=lambda part: part.start), range(size, size)]
        for before, part in pairwise(borders):
            if part.start > before.stop:
                gap = [part.start - before.stop]
                pieces.append(self._graph.call_function(_aten.new_zeros.default, (base, gap)))
            if part in parts:
                pieces.append(self._graph.call_function(_aten.reshape.default, (parts[part], [-1])))
        whole = self._graph.call_function(_aten.cat.default, (pieces,))
        self._graph.call_function(_aten.copy_.default, (base, whole))


def adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    _: list[Tensor],
    counts: list[Tensor],
    *,
    lr: float | Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    found_inf: Tensor,
    **unused: object,
) -> None:
    """Take the step of torch's fused kernel (arXiv 1412.6980), in operations that can be fused."""
    usable, count = found_inf == 0.0, counts[0].double()
    rate = _once((lr / (1.0 - beta1**count)).float())
    root = _once((1.0 - beta2**count).sqrt().float())
    for parameter, gradient, mean, square in zip(parameters, gradients, means, squares, strict=True):
        new_mean = mean + (gradient - mean) * (1.0 - beta1)
        new_square = square * beta2 + gradient * gradient * (1.0 - beta2)
        moved = parameter - rate * new_mean / (new_square.sqrt() / root + eps)
        for old, new in ((parameter, moved), (mean, new_mean), (square, new_square)):
            old.copy_(torch.where(usable, new, old))


def _once(number: Tensor) -> Tensor:
    """Have a number computed once, instead of in each place where the compiler would put its formula."""
    return number.as_strided((), ())


PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default)
"""Operations that multiply the last two of their arguments, and add the first if there are three."""


def product(left: Tensor, right: Tensor, *, rounded: bool) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what computes the product of such factors better than a library; None: nothing does.

    rounded: large ones are those of factors in bfloat16
    """
    if left.dim() == 2 and right.shape[-1] == 1:
        return _column
    if left.dim() == 2 and left.shape[-1] == 1:
        return torch.mul
    return _of_rounded if rounded and left.numel() * right.shape[-1] >= LARGE else None


def _column(left: Tensor, right: Tensor) -> Tensor:
    """Return the product with one column, which can be fused with what makes the left factor."""
    return (left * right.t()).sum(-1, keepdim=True)


def _of_rounded(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of factors in bfloat16, summed in single precision and rounded once more."""
    return (left.bfloat16() @ right.bfloat16()).float()
