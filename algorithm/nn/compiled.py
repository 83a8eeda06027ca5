"""Functions with effects on tensors, recorded operation by operation and compiled as one graph.

A function that computes gradients and steps along them is broken at each of these by ``torch.compile``.
Here it runs once, and every operation is written down where it reaches the tensors: forward, backward,
optimiser. What is compiled is that list.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from algorithm.nn.compiled_operations import PRODUCTS, GradientSums, adam, product

InPlace = Callable[[Sequence[Tensor]], Sequence[Tensor]]

_LIMITS, _ROUNDED_LIMITS = (1e-3, 0.01), (0.05, 0.05)
"""Largest difference from the function itself, and the share of numbers that may be further away.

Adam's first step has the size of the learning rate, whatever that of the gradient. Where the gradient is
rounding, so is the direction.
"""

MOST = 16
"""Graphs of a function; one that needs more is of a kind that changes all the time."""

_aten = torch.ops.aten


class NotCompilableError(Exception):
    """Reason why a function cannot be compiled, for a person."""


class CompiledFunction:
    """A function that changes tensors in place, as a compiled graph for each key.

    Tensors that it reads and writes besides its inputs must keep their storage. Anything else that it depends
    on, such as an attribute that is a number, is taken as it was when the function was recorded, unless it is
    part of the key. Random numbers are drawn before a graph runs, in the order in which the function draws
    them, so they are the same ones. A graph's first results are compared with the function's own.

    function:  it leaves its inputs as they are, and draws random numbers from ``generator`` alone
    rounded:   large matrix products are those of factors in bfloat16
    """

    def __init__(self, function: InPlace, generator: torch.Generator, *, rounded: bool = False) -> None:
        self._function, self._generator, self._rounded = function, generator, rounded
        self._graphs: dict[Hashable, _Graph] = {}

    def __call__(self, key: Hashable, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the function's results. Raises NotCompilableError, with nothing changed.

        key: of all that the function depends on, besides tensors and their layouts
        """
        full_key = key, tuple((x.shape, x.stride(), x.storage_offset(), x.dtype) for x in inputs)
        graph = self._graphs.get(full_key)
        if graph is None:
            if len(self._graphs) == MOST:
                raise NotCompilableError(f"there are more than {MOST} kinds of it")
            graph = self._compile(inputs)
            self._graphs[full_key] = graph
        return graph(inputs)

    def _compile(self, inputs: Sequence[Tensor]) -> _Graph:
        random = self._generator.get_state()
        recorder = _Trace(inputs, self._generator)
        try:
            with recorder:
                results = list(self._function(inputs))
            expected = recorder.written(), [x.clone() for x in results]
            graph = _Graph(recorder, results, rounded=self._rounded)
            recorder.restore()
            self._generator.set_state(random)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler about itself
                found = graph(inputs)
        except NotCompilableError:
            raise
        except Exception as error:  # whatever a compiler or the lack of one raises
            lines = [line for line in str(error).splitlines() if line and not line.endswith(" raised:")]
            raise NotCompilableError((lines or [type(error).__name__])[0][:200]) from error
        else:
            limits = _ROUNDED_LIMITS if self._rounded else _LIMITS
            pairs = zip([*recorder.written(), *found], [*expected[0], *expected[1]], strict=True)
            if not all(_alike(x, y, *limits) for x, y in pairs):
                raise NotCompilableError("its results differ")
            return graph
        finally:
            recorder.restore()
            self._generator.set_state(random)


def _alike(found: Tensor, expected: Tensor, tolerance: float, outliers: float) -> bool:
    close = torch.isclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return (
        found.shape == expected.shape and float((~close).float().mean() if close.numel() else 0.0) <= outliers
    )


@dataclass
class _Recorded:
    """Operation as it was called."""

    operation: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    drawn: bool = False


@dataclass
class _Outside:
    """A storage that the function did not make: of a tensor of its own, or an input."""

    tensor: Tensor
    before: Tensor | None = None  # its numbers before it was written, [n]
    numbers: Tensor = field(init=False)  # all of it, [n]

    def __post_init__(self) -> None:
        storage = self.tensor.untyped_storage()
        size = storage.nbytes() // self.tensor.element_size()
        with torch.no_grad():
            whole = torch.empty(0, dtype=self.tensor.dtype, device=self.tensor.device)
            self.numbers = whole.set_(storage, 0, (size,), (1,))


class _Trace(TorchDispatchMode):
    """List of all operations on tensors while it is entered, and the numbers that they have overwritten."""

    def __init__(self, inputs: Sequence[Tensor], generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self.inputs, self.calls = list(inputs), list[_Recorded]()
        self.found: dict[int, _Outside] = {}  # by storage, in the order of their first use
        self._generator = generator
        self._made: set[int] = {_storage(x) for x in inputs}
        self._used: set[int] = set()

    @override
    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        tensors, drawn = _tensors((args, kwargs)), torch.Tag.nondeterministic_seeded in func.tags
        self._check(func, args, kwargs, tensors, drawn=drawn)
        for x in tensors:
            if _storage(x) not in self._made:
                self.found.setdefault(_storage(x), _Outside(x.detach()))
        for x in _written(func, args, kwargs):
            own = self.found.get(_storage(x))
            if own is not None and own.before is None:
                own.before = own.numbers.clone()
        result = func(*args, **kwargs)
        if not drawn and not func.is_view:
            computed = [] if "empty" in str(func) else _tensors(result)
            self._used.update(map(_storage, [*tensors, *computed]))
        self._made.update(_storage(x) for x in _tensors(result) if _storage(x) not in self.found)
        self.calls.append(_Recorded(func, args, kwargs, result, drawn))
        return result

    def _check(
        self,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: list[Tensor],
        *,
        drawn: bool,
    ) -> None:
        name = str(func).removeprefix("aten.")
        if name.startswith(("_local_scalar_dense", "nonzero", "equal.", "is_nonzero")):
            raise NotCompilableError("a number of a tensor decides what is done")
        if drawn and not any(map(self._is_own, (*args, *kwargs.values()))):
            raise NotCompilableError(f"{name} draws random numbers that are not the learner's")
        if drawn and any(_storage(x) in self._used for x in tensors):
            raise NotCompilableError(f"{name} draws random numbers from computed ones")

    def _is_own(self, value: object) -> bool:
        """Return whether a value is the generator; operations get objects of their own for the same one."""
        if not isinstance(value, torch.Generator):
            return False
        return torch.equal(value.get_state(), self._generator.get_state())

    def written(self) -> list[Tensor]:
        """Return copies of all numbers that were overwritten."""
        return [one.numbers.clone() for one in self.found.values() if one.before is not None]

    def restore(self) -> None:
        """Undo all that was overwritten."""
        with torch.no_grad():
            for one in self.found.values():
                if one.before is not None:
                    one.numbers.copy_(one.before)


class _Graph:
    """The recorded operations as a compiled graph of inputs, random numbers and whole storages."""

    def __init__(self, recorder: _Trace, results: Sequence[Tensor], *, rounded: bool) -> None:
        self._graph, self._rounded = fx.Graph(), rounded
        self._nodes: dict[Hashable, fx.Node] = {}  # of tensors, by where they lie
        self._bases: dict[int, fx.Node] = {}  # of storages: the first tensor there
        self._own = [one.numbers for one in recorder.found.values()]
        self._draws: list[Callable[[], Tensor]] = []
        self._gradients = GradientSums(self._graph)
        for index, x in enumerate(recorder.inputs):
            self._enter(x, self._graph.placeholder(f"input_{index}"))
        for index, x in enumerate(self._own):
            self._enter(x, self._graph.placeholder(f"own_{index}"))
        drawn = [
            self._draw(call, _storage(_tensors(call.result)[0]) in recorder.found)
            for call in recorder.calls
            if call.drawn
        ]
        for call in recorder.calls:
            if not call.drawn:
                self._add(call)
        for storage, base in self._bases.items():
            self._gradients.end(storage, base)
        outputs = tuple(self._node(x) for x in results)
        if any(node is not None and not _matters(node) for node in drawn):
            raise NotCompilableError("a random number decides what is done")
        self._graph.output(outputs)
        module = fx.GraphModule(torch.nn.Module(), self._graph)
        options: dict[str, Any] = {
            "compile_threads": 1,  # no processes of its own that outlive the run
            "guard_filter_fn": torch.compiler.skip_all_guards_unsafe,  # the layouts are part of the key
        }
        self._run = torch.compile(module.forward, fullgraph=True, dynamic=False, options=options)

    def __call__(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the results for these inputs."""
        with torch.no_grad():
            drawn = [x for draw in self._draws if (x := draw()) is not None]
            found: Sequence[Tensor] = self._run(*inputs, *self._own, *drawn)
        return found

    def _enter(self, x: Tensor, node: fx.Node) -> None:
        self._nodes[_place(x)] = node
        self._bases.setdefault(_storage(x), node)

    def _draw(self, call: _Recorded, into_own: bool) -> fx.Node | None:
        """Have the numbers drawn before the graph; return its placeholder, None where they have a place."""
        operation, args, kwargs, x = call.operation, call.args, call.kwargs, _tensors(call.result)[0]
        tensors = _tensors((args, kwargs))
        if into_own:  # such as the noise of a layer

            def redraw() -> None:
                operation(*args, **kwargs)

            self._draws.append(redraw)  # type: ignore[arg-type]
            return None
        if tensors:  # an empty tensor that is filled
            shape, dtype, device = x.shape, x.dtype, x.device

            def fill() -> Tensor:
                empty = torch.empty(shape, dtype=dtype, device=device)
                return operation(empty, *args[1:], **kwargs)  # type: ignore[no-any-return]

            self._draws.append(fill)
        else:
            self._draws.append(lambda: operation(*args, **kwargs))
        node = self._graph.placeholder(f"drawn_{len(self._draws)}")
        self._enter(x, node)
        return node

    def _add(self, call: _Recorded) -> None:
        if self._add_gradient(call):
            return
        if not getattr(call.operation, "is_view", False):
            self._end_gradients(_tensors((call.args, call.kwargs)))
        if self._add_product(call):
            return
        drawn = [x for x in _tensors(call.result) if self._is_drawn(x)]
        if drawn and not _tensors((call.args, call.kwargs)):
            return  # the empty tensor that random numbers were drawn into
        args = tuple(map(self._argument, call.args))
        kwargs = {name: self._argument(value) for name, value in call.kwargs.items()}
        node = self._graph.call_function(_substitute(call.operation), args, kwargs)
        if isinstance(call.result, Tensor):
            self._enter(call.result, node)
        elif isinstance(call.result, list | tuple):
            for index, x in enumerate(call.result):
                if isinstance(x, Tensor):
                    self._enter(x, self._graph.call_function(operator.getitem, (node, index)))

    def _add_gradient(self, call: _Recorded) -> bool:
        """Note a gradient that is added to a zeroed storage; return whether there is nothing else to do."""
        if call.operation is _aten.zero_.default:
            whole = call.args[0]
            base, nbytes = self._bases.get(_storage(whole)), whole.numel() * whole.element_size()
            if base and base.name.startswith("own_") and nbytes == whole.untyped_storage().nbytes():
                self._gradients.begin(_storage(whole), whole.numel())
                return True
        if call.operation is _aten.add_.Tensor and not call.kwargs:
            into, term = call.args
            if isinstance(term, Tensor) and into.is_contiguous() and term.shape == into.shape:
                self._end_gradients([term])
                part = range(into.storage_offset(), into.storage_offset() + into.numel())
                return self._gradients.add(_storage(into), part, lambda: self._node(term))
        return False

    def _end_gradients(self, read: Sequence[Tensor]) -> None:
        """Put together the gradients that these tensors are parts of."""
        for storage in set(map(_storage, read)) & self._bases.keys():
            self._gradients.end(storage, self._bases[storage])

    def _add_product(self, call: _Recorded) -> bool:
        """Add a product of matrices in a way that suits its factors; return whether there is one."""
        if call.operation not in PRODUCTS or call.kwargs:
            return False
        *bias, left, right = call.args
        compute = product(left, right, rounded=self._rounded)
        if compute is None:
            return False
        node = self._graph.call_function(compute, (self._node(left), self._node(right)))
        for x in bias:
            node = self._graph.call_function(_aten.add.Tensor, (node, self._node(x)))
        self._enter(call.result, node)
        return True

    def _is_drawn(self, x: Tensor) -> bool:
        node = self._nodes.get(_place(x))
        return node is not None and node.op == "placeholder"

    def _argument(self, value: Any) -> Any:  # noqa: ANN401 - whatever an operation takes
        """Return an argument with nodes instead of tensors."""
        if isinstance(value, Tensor):
            return self._node(value)
        return [self._argument(one) for one in value] if isinstance(value, list | tuple) else value

    def _node(self, x: Tensor) -> fx.Node:
        """Return the node of a tensor; one that no operation has returned is a view of its storage."""
        place = _place(x)
        if place not in self._nodes:
            base, size = self._bases[_storage(x)], x.numel()
            if x.is_contiguous() and base.name.startswith("own_"):
                first = x.storage_offset()
                part = self._graph.call_function(_aten.slice.Tensor, (base, 0, first, first + size))
                node = self._graph.call_function(_aten.view.default, (part, list(x.shape)))
            else:
                geometry = list(x.shape), list(x.stride()), x.storage_offset()
                node = self._graph.call_function(_aten.as_strided.default, (base, *geometry))
            self._nodes[place] = node
        return self._nodes[place]


def _substitute(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of an operation in a graph, usually itself."""
    if "_fused_adam_" in str(operation):
        return adam
    # The compiler may lay out what is viewed in another way.
    return _aten.reshape.default if operation is _aten.view.default else operation


def _matters(node: fx.Node) -> bool:
    """Return whether a node is used for more than views that nothing uses."""
    return any(not getattr(one.target, "is_view", False) or _matters(one) for one in node.users)


def _storage(x: Tensor) -> int:
    """Return the identity of a tensor's storage."""
    return int(x.untyped_storage()._cdata)


def _place(x: Tensor) -> Hashable:
    return _storage(x), x.storage_offset(), x.shape, x.stride(), x.dtype


def _tensors(value: object) -> list[Tensor]:
    """Return the tensors in nested lists and mappings."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [x for one in value for x in _tensors(one)] if isinstance(value, list | tuple) else []


def _written(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation writes into."""
    found = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            found += _tensors(value)
    return found
