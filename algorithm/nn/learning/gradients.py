"""Gradients of losses by backward passes, the optimisers' steps along them, and the training mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import TypeVarTuple, Unpack

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.learning.optimiser import FlatOptimiser

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True)
class Loss:
    """Scalar losses of one step.

    value: loss of all parameters
    gated: loss whose gradient in the gate, the encoder's parameters, is dropped unless its cosine with that
        of ``value`` is positive; None for none
    free:  loss that is added without that condition; None for none
    idle:  optimisers without a loss, which take no step
    """

    value: Tensor
    gated: Tensor | None = None
    free: Tensor | None = None
    idle: Sequence[FlatOptimiser] = ()


class Gradients(Protocol):
    """Method by which gradients of losses are computed, and optimisers take their steps."""

    def descend(
        self,
        optimisers: Sequence[FlatOptimiser],
        losses: Callable[[Unpack[Arguments]], tuple[Loss, Result]],
        *arguments: Unpack[Arguments],
    ) -> tuple[Result, list[Tensor]]:
        """Take a step of each optimiser along the gradient of ``losses(*arguments)``.

        losses: returns the loss, and nested tuples and dictionaries of tensors without gradient
        Returns the second result of ``losses``, and the norms of the optimisers' gradients.
        """


class Autograd:
    """Gradients by backward passes into the optimisers' storages.

    gate: range of the first optimiser's gradient in which a loss may be gated
    mode: training mode of the networks, on while losses are computed; None: set by the caller
    """

    def __init__(self, gate: slice = slice(0), mode: TrainingMode | None = None) -> None:
        self._gate, self._mode = gate, mode or TrainingMode([])

    def descend(
        self,
        optimisers: Sequence[FlatOptimiser],
        losses: Callable[[Unpack[Arguments]], tuple[Loss, Result]],
        *arguments: Unpack[Arguments],
    ) -> tuple[Result, list[Tensor]]:
        """Take a step of each optimiser; see :meth:`Gradients.descend`."""
        for optimiser in optimisers:
            optimiser.gradient.zero_()
        self._mode.set(True)
        try:
            loss, result = losses(*arguments)
        finally:
            self._mode.set(False)
        if loss.gated is None:
            (loss.value if loss.free is None else loss.value + loss.free).backward()
        else:  # the gated gradient is compared with that of the value alone, so the free one is added last
            loss.value.backward(retain_graph=True)
            self._add_if_it_agrees(optimisers[0], loss.gated, retain_graph=loss.free is not None)
            if loss.free is not None:
                loss.free.backward()
        return result, [x.step_along(x.gradient) for x in optimisers if x not in loss.idle]

    def _add_if_it_agrees(self, optimiser: FlatOptimiser, loss: Tensor, *, retain_graph: bool) -> None:
        """Add the gradient of ``loss``; in the gate only if its cosine with the previous sum is positive."""
        gate = optimiser.gradient[self._gate]
        before = gate.clone()
        gate.zero_()
        loss.backward(retain_graph=retain_graph)
        gate.mul_(torch.dot(before, gate) > 0.0).add_(before)


class TrainingMode:
    """Switch of networks to training mode and back, with the same effect as ``nn.Module.train``.

    ``nn.Module.train`` visits all modules with a slow setter, twice per update: an eighth of an update of
    A2C. Here the modules are listed once; ``train`` is called only on modules that override it.

    never: kinds of modules whose mode is not changed
    """

    def __init__(self, networks: Iterable[nn.Module], *, never: tuple[type[nn.Module], ...] = ()) -> None:
        modules = [m for network in networks for m in _all_modules(network) if not isinstance(m, never)]
        plain = (nn.Module.train, Ensemble.train)  # an ensemble's further modules are in the list
        self._overriding = [module for module in modules if type(module).train not in plain]
        self._plain = [module for module in modules if type(module).train in plain]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Set training mode inside the context: dropout, random shifts and the like."""
        self.set(True)
        try:
            yield
        finally:
            self.set(False)

    def set(self, mode: bool) -> None:
        """Set training mode, or evaluation mode if ``mode`` is false."""
        for module in self._plain:
            object.__setattr__(module, "training", mode)
        for module in self._overriding:
            module.train(mode)


def _all_modules(network: nn.Module) -> Iterator[nn.Module]:
    """Yield all modules of a network, and those that its ensembles hold unregistered."""
    for module in network.modules():
        yield module
        if isinstance(module, Ensemble):
            yield from (inner for copy in module.copies for inner in copy.modules())
