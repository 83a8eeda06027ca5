"""Steps of optimisers along the gradient of losses, by backward passes."""

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
    """Scalar losses of one backward pass.

    value: of all parameters
    gated: its gradient on the first parameters counts if its cosine with that of ``value`` is positive, and
        not at all otherwise; or None
    free:  added without that condition; or None
    idle:  optimisers for which there is no loss, and which take no step
    """

    value: Tensor
    gated: Tensor | None = None
    free: Tensor | None = None
    idle: Sequence[FlatOptimiser] = ()


class Gradients(Protocol):
    """Way from losses to the steps of their optimisers."""

    def descend(
        self,
        optimisers: Sequence[FlatOptimiser],
        losses: Callable[[Unpack[Arguments]], tuple[Loss, Result]],
        *arguments: Unpack[Arguments],
    ) -> tuple[Result, list[Tensor]]:
        """Take a step of each optimiser along the gradient of ``losses(*arguments)``.

        Returns the second result of ``losses``, nested tuples and dictionaries of tensors without gradient,
        and the norms of the gradients.
        """


class Autograd:
    """Gradients by backward passes into the optimisers' storages.

    gate: part of the first optimiser's gradient for which a loss may be gated
    mode: of networks that learn, on while losses are computed; None: whoever calls sets it
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
        else:  # compared with the gradient of the value alone, so the free one comes last
            loss.value.backward(retain_graph=True)
            self._add_if_it_agrees(optimisers[0], loss.gated, retain_graph=loss.free is not None)
            if loss.free is not None:
                loss.free.backward()
        return result, [x.step_along(x.gradient) for x in optimisers if x not in loss.idle]

    def _add_if_it_agrees(self, optimiser: FlatOptimiser, loss: Tensor, *, retain_graph: bool) -> None:
        """Add the gradient of ``loss``; on the gate only if its cosine with the other is positive."""
        gate = optimiser.gradient[self._gate]
        before = gate.clone()
        gate.zero_()
        loss.backward(retain_graph=retain_graph)
        gate.mul_(torch.dot(before, gate) > 0.0).add_(before)


class TrainingMode:
    """Switch of networks to training and back, each of them in every mode that ``nn.Module.train`` gives it.

    ``nn.Module.train`` visits all modules with a setter that is slow, twice an update: an eighth of an update
    of A2C. Here the modules are listed once; one that has a ``train`` of its own is asked.

    never: kinds of modules that stay as they are
    """

    def __init__(self, networks: Iterable[nn.Module], *, never: tuple[type[nn.Module], ...] = ()) -> None:
        parts = [part for one in networks for part in _all_modules(one) if not isinstance(part, never)]
        plain = (nn.Module.train, Ensemble.train)  # what an ensemble asks besides is listed
        self._own = [part for part in parts if type(part).train not in plain]
        self._plain = [part for part in parts if type(part).train in plain]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Enable dropout, batch statistics and the like inside the context."""
        self.set(True)
        try:
            yield
        finally:
            self.set(False)

    def set(self, mode: bool) -> None:
        """Switch to training, or back to evaluation."""
        for part in self._plain:
            object.__setattr__(part, "training", mode)
        for part in self._own:
            part.train(mode)


def _all_modules(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a network, and those that its ensembles run."""
    for part in network.modules():
        yield part
        if isinstance(part, Ensemble):
            yield from (inner for copy in part.copies for inner in copy.modules())
