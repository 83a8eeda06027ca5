"""Gradients and optimiser steps as pure functions of flat tensors, which ``torch.compile`` can trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.func import vjp
from typing_extensions import Unpack

from algorithm.nn.learning.compiled import NotCompilableError
from algorithm.nn.learning.gradients import Arguments, Loss
from algorithm.nn.learning.optimiser import FlatOptimiser

Output = TypeVar("Output")


@dataclass(frozen=True)
class _Span:
    """Range of a flat tensor of which a parameter or buffer is a view."""

    flat: int  # index of the flat tensor
    start: int  # offset in it
    shape: torch.Size
    strides: tuple[int, ...]
    learned: bool  # it has a gradient
    dense: bool  # a plain view suffices, into which compiled code can write

    def of(self, flat: Tensor, first: int = 0) -> Tensor:
        """Return the view of ``flat``, whose first entry has the offset ``first`` in the whole tensor."""
        start, size = self.start - first, self.shape.numel()
        x = flat if (start, size) == (0, len(flat)) else flat[start : start + size]
        if not self.dense:
            return x.as_strided(self.shape, self.strides)
        return x if len(self.shape) == 1 else x.view(self.shape)


@dataclass(frozen=True)
class _Home:
    """The parameters or the buffers of one module, without those of its submodules.

    place: name of the dictionary that holds them: ``_parameters`` or ``_buffers``
    spans: name in the dictionary -> range in a flat tensor
    """

    module: nn.Module
    place: str
    spans: dict[str, _Span]

    def of(self, views: Mapping[_Span, Tensor]) -> dict[str, Tensor]:
        """Return the views of this module's tensors, by name; those without a view are left out."""
        return {name: views[span] for name, span in self.spans.items() if span in views}

    def put(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put tensors into the module by name; return the tensors that they replace."""
        place = getattr(self.module, self.place)
        before = {name: place[name] for name in tensors}
        place.update(tensors)
        return before


class Functional(nn.Module):
    """Gradients of networks as pure functions of a few flat tensors, by ``torch.func``.

    A compiler can trace views of its inputs, but not parameters that share a storage unseen. So while
    :meth:`call` runs, every parameter and buffer is replaced by a view of its storage.

    modules: all networks that are used, each once, with modules that alias their parameters
    steps:   optimisers
    gate:    as in :class:`Autograd`
    """

    def __init__(
        self,
        modules: Iterable[nn.Module],
        steps: Sequence[FlatOptimiser],
        gate: slice = slice(0),
    ) -> None:
        super().__init__()
        self._gate = gate
        self.networks = nn.ModuleList(modules)
        self._steps = tuple(steps)
        for step in self._steps:
            for x in step.written():  # for a launch on a GPU, which writes to their fixed addresses
                torch._dynamo.mark_static_address(x, guard=False)
        self._flats = [step.flat.data for step in self._steps]
        self._numbers = {_storage(flat): number for number, flat in enumerate(self._flats)}
        self._homes = [
            _Home(module, place, {name: self._span(x) for name, x in tensors if not x.is_meta})
            for module in self.modules()
            for place, tensors in (
                ("_parameters", module.named_parameters(recurse=False)),
                ("_buffers", module.named_buffers(recurse=False)),
            )
        ]
        self._spans = list(dict.fromkeys(span for home in self._homes for span in home.spans.values()))
        buffers = (home.spans.values() for home in self._homes if home.place == "_buffers")
        flats = {span.flat for spans in buffers for span in spans}
        self._written = [number for number in flats if number >= len(self._steps)]
        self._members = [
            (f"{prefix}.{name}".split(".", 2)[-1], place, name, member)
            for prefix, module in self.named_modules()
            for place in (module._modules, module._parameters, module._buffers)
            for name, member in place.items()
        ]
        tensors = [(name, member) for name, _, _, member in self._members if isinstance(member, Tensor)]
        self._tensors = [(name, x, x.data_ptr(), x.requires_grad) for name, x in tensors]

    def check(self) -> None:
        """Raise NotCompilableError if a module or tensor has changed in a way that no guard notices."""
        for name, place, key, member in self._members:
            if place.get(key) is not member:
                raise NotCompilableError(f"{name} was replaced")
        for name, x, start, learned in self._tensors:
            if x.data_ptr() != start:
                raise NotCompilableError(f"{name} lies elsewhere")
            if x.requires_grad != learned:
                raise NotCompilableError(f"{name} is learned no longer" if learned else f"{name} is learned")
            if x._backward_hooks:
                raise NotCompilableError(f"{name} has a hook")

    def _span(self, x: Tensor) -> _Span:
        number = self._numbers.get(_storage(x))
        if number is None:
            storage = x.untyped_storage()
            whole = torch.empty(0, dtype=x.dtype, device=x.device)
            whole.set_(storage, 0, (storage.nbytes() // x.element_size(),), (1,))
            self._numbers[_storage(x)] = number = len(self._flats)
            self._flats.append(whole)
        dense = x.requires_grad or x.is_contiguous()
        return _Span(number, int(x.storage_offset()), x.shape, x.stride(), x.requires_grad, dense)

    def call(self, function: Callable[..., Output], *args: object) -> Output:
        """Return ``function(*args)``, called with parameters and buffers replaced by views of storages."""
        return self._with({span: span.of(self._flats[span.flat]) for span in self._spans}, function, *args)

    def _with(self, views: Mapping[_Span, Tensor], function: Callable[..., Output], *args: object) -> Output:
        """Return the function's result with the tensors ``views``. Raises ValueError if it replaces one."""
        by_home = ((home, home.of(views)) for home in self._homes)
        replaced = [(home, tensors) for home, tensors in by_home if tensors]
        before = [(home, home.put(tensors)) for home, tensors in replaced]
        try:
            result = function(*args)
        finally:
            after = [home.put(tensors) for home, tensors in before]
        for (_, was), now in zip(replaced, after, strict=True):
            for name, x in was.items():
                if now[name] is not x:
                    raise ValueError(f"forward replaces {name}")
        return result

    def descend(
        self,
        optimisers: Sequence[FlatOptimiser],
        losses: Callable[[Unpack[Arguments]], tuple[Loss, Output]],
        *arguments: Unpack[Arguments],
    ) -> tuple[Output, list[Tensor]]:
        """Take a step of each optimiser; see :meth:`.Gradients.descend`."""
        numbers = [self._steps.index(step) for step in optimisers]
        pieces = {
            (number, part.start): step.flat.data[part.start : part.stop]
            for number, step in zip(numbers, optimisers, strict=True)
            for part in step.flat.parts
        }
        idle: Sequence[FlatOptimiser] = ()

        def losses_of(
            pieces: dict[tuple[int, int], Tensor],
        ) -> tuple[list[Tensor], tuple[Output, dict[int, Tensor]]]:
            """Return the losses with these parameters, the result, and the flat tensors afterwards."""
            written = {number: self._flats[number].clone() for number in self._written}
            views = {
                span: self._view(span, pieces, written)
                for span in self._spans
                if span.flat in written or (span.flat in numbers and span.learned)
            }
            nonlocal idle
            loss, result = self._with(views, losses, *arguments)
            idle = loss.idle
            if loss.gated is None:
                return [loss.value if loss.free is None else loss.value + loss.free], (result, written)
            return [x for x in (loss.value, loss.gated, loss.free) if x is not None], (result, written)

        values, pull, (result, written) = vjp(losses_of, pieces, has_aux=True)  # type: ignore[misc]
        gradients = [pull([torch.full_like(x, float(x is loss)) for x in values])[0] for loss in values]
        for number, x in written.items():
            self._flats[number].copy_(x)
        norms = []
        for number, optimiser in zip(numbers, optimisers, strict=True):
            if optimiser not in idle:
                gradient = self._joined(number, optimiser, gradients, gated=optimiser is optimisers[0])
                norms.append(optimiser.step_along(gradient))
        return result, norms

    def _joined(
        self,
        number: int,
        optimiser: FlatOptimiser,
        gradients: Sequence[Mapping[tuple[int, int], Tensor]],
        *,
        gated: bool,
    ) -> Tensor:
        """Return the sum [P] of the losses' gradients by an optimiser's parameters.

        number:    index of the optimiser
        gradients: of each loss, by (optimiser, offset of a parameter)
        gated:     add the second loss's gradient in the gate only if its cosine with the first is positive
        """
        first, *more = (
            torch.cat([gradient[number, part.start] for part in optimiser.flat.parts])
            for gradient in gradients
        )
        if more and gated:
            agrees = torch.dot(first[self._gate], more[0][self._gate]) > 0.0
            more[0][self._gate].mul_(agrees)
        return sum(more, start=first)

    def _view(
        self, span: _Span, pieces: Mapping[tuple[int, int], Tensor], written: Mapping[int, Tensor]
    ) -> Tensor:
        if span.flat in written:
            return span.of(written[span.flat])
        parts = self._steps[span.flat].flat.parts
        first = next(part.start for part in parts if span.start in part)
        return span.of(pieces[span.flat, first], first)


def _storage(x: Tensor) -> int:
    """Return the address of a tensor's storage, which identifies it."""
    return x.untyped_storage().data_ptr()
