"""Functions of tensors, compiled by ``torch.compile`` as one graph for each kind of call."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, fx
from torch.nn import functional

Returned = TypeVar("Returned")


class NotCompilableError(Exception):
    """Error of a function that cannot be compiled; its text is the reason, for a message."""


class CompiledFunction(Generic[Returned]):
    """Function that changes tensors in place, as one graph of ``torch.compile`` for each kind of call.

    The compiler traces the function's Python and guards what it depends on: attributes, types, layouts. A
    function is refused if it reads numbers of a tensor, or if its graph would have to change later.

    guarded: text in the names of guards to be kept; other guards depend on the kind of call alone. None: all
    """

    def __init__(self, function: Callable[..., Returned], *, guarded: str | None = None) -> None:
        self._function, self._guarded = function, guarded
        self._graphs = dict[Hashable, Callable[..., Returned]]()
        self._compiles = False

    def __call__(self, kind: Hashable, *args: object) -> Returned:
        """Return the function's result. Raises NotCompilableError, with nothing changed.

        kind: all that the function depends on besides tensors and guarded attributes
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
        """Return a compiled function for a new kind of call; its first call compiles it."""

        def call(*args: object) -> Returned:
            return self._function(*args)

        # The compiler finds graphs by a function's code object, so each kind of call has its own.
        call.__code__ = call.__code__.replace(co_name=f"graph_{len(self._graphs)}")
        options: dict[str, Any] = {}
        if self._guarded is not None:
            options["guard_filter_fn"] = partial(_kept_guards, self._guarded)
        return torch.compile(
            call, fullgraph=True, dynamic=False, backend=self._compile, options=options or None
        )

    def _compile(self, module: fx.GraphModule, inputs: list[Tensor], **_: object) -> Callable[..., Any]:
        if not self._compiles:
            raise NotCompilableError("it depends on Python values that change from update to update")
        for node in list(module.graph.nodes):
            if node.target is functional.linear:
                _replace_linear(module.graph, node)
        module.recompile()
        device = next((x.device for x in inputs if x.is_cuda), None)
        if device is not None:
            return _OneLaunch(module, inputs, device)
        compiled: Callable[..., Any] = torch._inductor.compile(module, [*inputs], options=_OPTIONS)
        return compiled


_OF_TORCH = re.compile(r"G\['(__import_)?torch(_dot_|'\])")
"""Names of guards on torch's own globals."""


def _kept_guards(guarded: str, entries: Sequence[Any]) -> list[bool]:
    """Return the mask of the guards to keep: those named by ``guarded``, and of globals outside of torch.

    Guards on parameters and on the training mode are dropped: parameters are views of storages that do not
    move, and the mode is always training.
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
    """Compiled graph in one launch of a CUDA graph; some hundred small launches would take most of the time.

    Numbers on the CPU, such as learning rates, are copied for each launch. Raises NotCompilableError if the
    first launch has written into one of these; its other writes are not undone.
    """

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Tensor], device: torch.device) -> None:
        self._device = device
        self._apart = [index for index, x in enumerate(inputs) if not x.is_cuda]
        self._launch = torch._inductor.compile(
            module, self._moved(inputs), options={**_OPTIONS, "triton.cudagraphs": True}
        )
        self._first = True

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Launch the graph; return copies of its results, which the next launch overwrites."""
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


def _replace_linear(graph: fx.Graph, node: fx.Node) -> None:
    """Replace a linear layer with a single output by a sum, which is fused with what computes its input."""
    x, weight, bias = cast(tuple[fx.Node, ...], (*node.args, *node.kwargs.values(), None))[:3]
    if len(weight.meta["example_value"]) != 1:
        return
    with graph.inserting_before(node):
        row = graph.call_method("squeeze", (weight, 0))
        product = graph.call_method("sum", (graph.call_method("mul", (x, row)), -1, True))
        if bias is not None:
            product = graph.call_method("add", (product, bias))
    node.replace_all_uses_with(product)
    graph.erase_node(node)


def _reason(error: BaseException) -> str:
    """Return a line with the reason of a compiler's error, and the file and line that it names, if any."""
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in lines if line and not line.endswith(" raised:")), type(error).__name__)
    reason = re.sub(r"^(\w+\.)*\w*(Error|Exception): ", "", reason)[:200]
    if raised := re.match(r"raised exception \w+\(['\"](.+)['\"]\)", str(error.__cause__)):
        return raised[1]
    if "RNN, GRU, or LSTM" in reason:
        return "torch's own nn.GRU and nn.LSTM are not, algorithm.nn.GRU and LSTM are"
    places = [line for line in lines if line.startswith('File "')]
    return f"{reason} ({places[-1]})" if places else reason
