"""Functions of tensors, compiled as one graph for each kind of call."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, fx
from torch.nn import functional

LARGE = 2**20
"""Multiplications of a matrix product from which its factors are worth being rounded."""

Returned = TypeVar("Returned")


class NotCompilableError(Exception):
    """Reason why a function cannot be compiled, for a person."""


class CompiledFunction(Generic[Returned]):
    """A function that changes tensors in place, as one graph of ``torch.compile`` for each kind of call.

    The compiler follows the function's Python and guards what it depends on: attributes, types, layouts. It
    refuses a function that reads numbers of a tensor, and one whose graph would have to be another one later.

    rounded: large matrix products are those of factors in bfloat16
    guarded: part of the names of what may change; the rest depends on the kind of call alone. None: all may
    """

    def __init__(
        self, function: Callable[..., Returned], *, rounded: bool = False, guarded: str | None = None
    ) -> None:
        self._function, self._rounded, self._guarded = function, rounded, guarded
        self._graphs = dict[Hashable, Callable[..., Returned]]()
        self._compiles = False

    def __call__(self, kind: Hashable, *args: object) -> Returned:
        """Return the function's result. Raises NotCompilableError, with nothing changed.

        kind: of all that the function depends on, besides tensors and what is guarded
        """
        self._compiles = kind not in self._graphs
        try:
            if not self._compiles:
                return self._graphs[kind](*args)
            hooks = torch._dynamo.config.patch(skip_nnmodule_hook_guards=False)  # so that new ones are seen
            with warnings.catch_warnings(), hooks:
                warnings.simplefilter("ignore")  # of the compiler about itself
                self._graphs[kind] = self._prepared()
                return self._graphs[kind](*args)
        except Exception as error:  # whatever a compiler or the lack of one raises
            torch._C._autograd._saved_tensors_hooks_enable()  # torch.func forbids them, and an error stays so
            raise NotCompilableError(_reason(error)) from error

    def _prepared(self) -> Callable[..., Returned]:
        """Return the function, to be compiled by its first call."""

        def own(*args: object) -> Returned:
            return self._function(*args)

        # The compiler finds graphs by the code of a function, so each kind of call has its own.
        own.__code__ = own.__code__.replace(co_name=f"graph_{len(self._graphs)}")
        options: dict[str, Any] = {}
        if self._guarded is not None:
            options["guard_filter_fn"] = partial(_matter, self._guarded)
        return torch.compile(
            own, fullgraph=True, dynamic=False, backend=self._compile, options=options or None
        )

    def _compile(self, module: fx.GraphModule, inputs: list[Tensor], **_: object) -> Callable[..., Any]:
        if not self._compiles:
            raise NotCompilableError("it depends on Python values that change from update to update")
        for node in list(module.graph.nodes):
            if node.target is functional.linear:
                _suit(module.graph, node, rounded=self._rounded)
        module.recompile()
        device = next((x.device for x in inputs if x.is_cuda), None)
        if device is not None:
            return _OneLaunch(module, inputs, device)
        compiled: Callable[..., Any] = torch._inductor.compile(module, [*inputs], options=_OPTIONS)
        return compiled


_OF_TORCH = re.compile(r"G\['(__import_)?torch(_dot_|'\])")
"""Guards' names of what lies in torch."""


def _matter(guarded: str, entries: Sequence[Any]) -> list[bool]:
    """Return which guards are kept: of what is guarded, and of global names outside of torch.

    Of what is guarded, parameters are views of storages that stay, and the mode is that of training.
    """
    return [
        not _OF_TORCH.match(entry.name)
        if entry.is_global
        else guarded in entry.name
        and entry.guard_type != "TENSOR_MATCH"
        and not entry.name.endswith(".training")
        for entry in entries
    ]


_OPTIONS = {
    "compile_threads": 1,  # no processes of its own that outlive the run
    "fallback_random": True,  # numbers that a network draws are those that it draws uncompiled
}


class _OneLaunch:
    """A compiled graph as one launch on a GPU, where some hundred small ones take most of the time.

    The compiler refuses to launch again what would then differ: CUDA graphs, in its own words. Numbers on
    the CPU, such as step sizes, are copied for each launch. Raises NotCompilableError where the first launch
    has written into one of these; what else it wrote stays.
    """

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Tensor], device: torch.device) -> None:
        self._device = device
        self._apart = [index for index, x in enumerate(inputs) if not x.is_cuda]
        self._launch = torch._inductor.compile(
            module, self._moved(inputs), options={**_OPTIONS, "triton.cudagraphs": True}
        )
        self._first = True

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Return the results as copies: the next launch writes over them."""
        moved = self._moved(inputs)
        torch.compiler.cudagraph_mark_step_begin()
        results = [x.clone() for x in self._launch(*moved)]
        if self._first and any(not torch.equal(moved[index].cpu(), inputs[index]) for index in self._apart):
            raise NotCompilableError("it writes into numbers on the CPU")
        self._first = False
        return results

    def _moved(self, inputs: Sequence[Tensor]) -> list[Any]:
        moved = list(inputs)
        for index in self._apart:
            moved[index] = moved[index].to(self._device, non_blocking=True)
        return moved


def _suit(graph: fx.Graph, node: fx.Node, *, rounded: bool) -> None:
    """Put a product that suits its shapes in the place of a linear layer.

    One of a single column is a sum that can be fused with what makes its input. A large one may be one of
    factors in bfloat16, summed in single precision and rounded once more.
    """
    x, weight, bias = cast(tuple[fx.Node, ...], (*node.args, *node.kwargs.values(), None))[:3]
    size, columns = x.meta["example_value"].numel(), len(weight.meta["example_value"])
    with graph.inserting_before(node):
        if columns == 1:
            row = graph.call_method("squeeze", (weight, 0))
            product = graph.call_method("sum", (graph.call_method("mul", (x, row)), -1, True))
        elif rounded and size * columns >= LARGE:
            factors = [graph.call_method("bfloat16", (factor,)) for factor in (x, weight)]
            turned = graph.call_method("t", (factors[1],))
            product = graph.call_method("float", (graph.call_method("matmul", (factors[0], turned)),))
        else:
            return
        if bias is not None:
            product = graph.call_method("add", (product, bias))
    node.replace_all_uses_with(product)
    graph.erase_node(node)


def _reason(error: BaseException) -> str:
    """Return the reason within an error of the compiler, and the line of the function where it lies."""
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in lines if line and not line.endswith(" raised:")), type(error).__name__)
    reason = re.sub(r"^(\w+\.)*\w*(Error|Exception): ", "", reason)[:200]
    if raised := re.match(r"raised exception \w+\(['\"](.+)['\"]\)", str(error.__cause__)):
        return raised[1]
    if "RNN, GRU, or LSTM" in reason:
        return "torch's own nn.GRU and nn.LSTM are not, algorithm.nn.GRU and LSTM are"
    places = [line for line in lines if line.startswith('File "')]
    return f"{reason} ({places[-1]})" if places else reason
