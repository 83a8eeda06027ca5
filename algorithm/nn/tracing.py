"""What a torch function does, as a list of operations that holds for all values.

The function runs on tensors with a shape and a type and no values that Python could get at. So whatever would
read a value raises, and what is done cannot depend on one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from typing_extensions import override

from algorithm.nn.unchanged import RefusalError, unchanged

Function = Callable[[Sequence[Tensor]], Sequence[Tensor]]

_OF_SHAPES = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
"""Operations whose result follows from their tensor's shape."""

_FACTORIES = _OF_SHAPES | {"arange", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"}
"""Those, and operations that make a tensor of none. It is made once, by torch."""

DRAWS = frozenset({"rand", "randn"})
"""Operations that draw random numbers; each call makes them anew."""

_ITSELF = frozenset({"alias", "detach", "detach_", "lift_fresh"})
"""Operations that give a tensor another name."""

_READS = frozenset({"data_ptr", "item", "numpy", "tolist"}) | {
    f"__{name}__"
    for name in ("array", "bool", "contains", "dlpack", "float", "format", "index", "int", "repr")
}
"""Names of what makes a Python value of a tensor."""

_VISIBLE = (Tensor, int, str, NoneType, torch.Size, torch.dtype, torch.device, torch.layout)
"""Types of what else a call of torch may return."""


class Ref(int):
    """Number of a tensor in a trace."""


class TapedCall(NamedTuple):
    """Operation with its arguments, in which tensors are numbers.

    read:    numbers of the tensors among the arguments
    made:    numbers of the results
    several: whether there is a list of them
    """

    name: str
    args: Sequence[object]
    options: Mapping[str, object]
    read: Sequence[int]
    made: Sequence[int]
    several: bool


def trace(
    function: Function,
    inputs: Sequence[Tensor],
    *,
    modules: Sequence[nn.Module],
    generator: torch.Generator,
    known: Container[str],
) -> Tape:
    """Return what ``function`` does to inputs of these shapes and types, whatever their values.

    modules:   those that it uses, whose attributes it must leave as they are
    generator: the one that it may draw from
    known:     operations that are wanted in the list, by their names in ATen; others come in their parts
    Raises RefusalError if it reads a value, changes anything, draws from another generator, does something
    else the second time, or uses what is not known. Nothing but ``generator`` is changed in any case.
    """
    with unchanged(modules), torch.inference_mode():
        first, second = (Tape(inputs, generator, known) for _ in range(2))
        first.record(function)
        second.record(function)
    if not first.same_as(second):
        raise RefusalError("forward does not do the same each time")
    return second


class _Blind(Tensor):
    """Tensor without memory: Python sees its shape and type. The trace alone knows the numbers."""

    numbers: Tensor
    place: int

    @staticmethod
    def __new__(cls: type[_Blind], numbers: Tensor, place: int) -> _Blind:
        """Return one that stands for ``numbers``, as tensor ``place`` of the trace."""
        made: _Blind = Tensor._make_wrapper_subclass(
            cls, numbers.shape, strides=numbers.stride(), dtype=numbers.dtype, device=numbers.device
        )
        made.numbers, made.place = numbers, place
        return made

    @classmethod
    @override
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call ``func`` with the numbers: the trace is over, and somebody has kept the tensor."""
        given, options = tree_map_only(_Blind, _numbers, (tuple(args), dict(kwargs or {})))
        return func(*given, **options)

    __torch_dispatch__ = __torch_function__  # type: ignore[assignment]  # torch's own lacks an argument


def _numbers(blind: _Blind) -> Tensor:
    return blind.numbers


class Tape(TorchDispatchMode):
    """List of a function's operations, on numbered tensors. Each number is made once.

    generator: the one that the function may draw from
    tensors:   by their numbers, of this one call
    inputs:    numbers of the inputs
    held:      numbers of those that the function neither got nor made: parameters, buffers, constants, and
               views of them
    fixed:     numbers of those that follow from shapes alone, the same for all calls
    calls:     the operations that make all others
    results:   numbers of the function's results
    """

    def __init__(self, inputs: Sequence[Tensor], generator: torch.Generator, known: Container[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self.generator, self._known, self._refusal = generator, known, ""
        self.calls, self.tensors = list[TapedCall](), list[Tensor]()
        self.held, self.fixed, self.results = set[int](), set[int](), list[int]()
        self._blinds = dict[int, _Blind]()  # by the id of what they stand for
        self._given = [self._made(one) for one in inputs]
        self.inputs = range(len(inputs))

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler, which takes two seconds."""
        return False

    def record(self, function: Function) -> None:
        """Fill the list. Raises RefusalError where there can be none."""
        try:
            with self, _BlindCalls(self):
                results = list(function(self._given))
        except Exception as error:
            raise RefusalError(self._refusal or str(error).partition("\n")[0]) from error
        if self._refusal:  # the function has caught it
            raise RefusalError(self._refusal)
        self.results = [self.blind(result).place for result in results]

    def same_as(self, other: Tape) -> bool:
        """Return whether both do the same on the same."""
        if (self.calls, self.results, self.held) != (other.calls, other.results, other.held):
            return False
        held = ((self.tensors[place], other.tensors[place]) for place in self.held | self.fixed)
        return all(one is two or (one.dtype == two.dtype and torch.equal(one, two)) for one, two in held)

    def refused(self, why: str) -> RefusalError:
        """Return the error to raise, and note its reason: the function may catch it."""
        self._refusal = why
        return RefusalError(why)

    def blind(self, tensor: Tensor) -> Any:  # noqa: ANN401  # one of ours, but inside of vmap
        """Return a tensor without values that stands for this one."""
        if is_functorch_wrapped_tensor(tensor):
            return tensor
        numbers = tensor.numbers if isinstance(tensor, _Blind) else tensor
        if id(numbers) not in self._blinds:  # not for those of another trace
            self.held.add(len(self.tensors))
            self._made(numbers)
        return self._blinds[id(numbers)]

    def _made(self, numbers: Tensor) -> _Blind:
        made = self._blinds[id(numbers)] = _Blind(numbers, len(self.tensors))
        self.tensors.append(numbers)
        return made

    @override
    def __torch_dispatch__(
        self,
        func: Any,  # an operation, whose class torch does not show
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given, options = tree_map_only(Tensor, self.blind, (tuple(args), dict(kwargs or {})))
        written = [one.name for one in func._schema.arguments if one.alias_info and one.alias_info.is_write]
        name = func._schema.name.removeprefix("aten::")
        if written and torch.Tag.inplace_view not in func.tags:
            name = name.removesuffix("_")
        if name in _ITSELF:
            return given[0]
        if name in DRAWS and options.get("generator") is not None:
            options["generator"] = self.generator  # torch has another object for it
        elif name in DRAWS or not (name in _FACTORIES or name in self._known):
            return self._in_parts(func, name, given, options)
        numbers = tree_map_only(_Blind, _numbers, given)
        if written:
            self._check_writing(written, name, given[0])
            numbers = numbers[0].clone(), *numbers[1:]
        result = func(*numbers, **options)
        if id(result) in self._blinds:  # one of its arguments
            return self._blinds[id(result)]
        made = self._noted(name, given, options, result)
        if not written:
            return made
        # What is written into stands for the result, another tensor, from now on.
        into = self._blinds[id(result)] = given[0]
        into.numbers, into.place = result, made.place
        return into

    def _in_parts(
        self,
        func: Any,  # noqa: ANN401
        name: str,
        args: Sequence[object],
        options: Mapping[str, object],
    ) -> object:
        with self:
            result = func.decompose(*args, **options)
        if result is NotImplemented:
            self.refused(f"forward uses {name}")
            raise NotImplementedError(name)
        return result

    def _check_writing(self, written: Sequence[str], name: str, into: _Blind) -> None:
        """Raise RefusalError unless the function has made the tensor, and has no views of it."""
        foreign = into.place in self.inputs or into.place in self.held
        there = [one for one in self.tensors if _storage(one) == _storage(into.numbers)]
        if written != ["self"] or foreign or len(there) > 1:
            raise self.refused(f"forward writes into what others see ({name}_)")

    def _noted(self, name: str, args: Sequence[object], options: Mapping[str, object], result: object) -> Any:  # noqa: ANN401
        """Return the result without values. Note the call, if its result is not there in any case."""
        first, read = len(self.tensors), [one.place for one in tree_leaves(args) if isinstance(one, _Blind)]
        made = tree_map_only(Tensor, self._made, result)
        places = range(first, len(self.tensors))
        held = {_storage(self.tensors[place]) for place in self.held.intersection(read)}
        if name in _OF_SHAPES or (name not in DRAWS and self.fixed.issuperset(read)):
            self.fixed.update(places)
        elif all(_storage(self.tensors[place]) in held for place in places):
            self.held.update(places)
        else:
            references = tree_map_only(_Blind, lambda one: Ref(one.place), args)
            several = isinstance(result, list | tuple)
            self.calls.append(TapedCall(name, references, options, read, places, several))
        return made


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _BlindCalls(TorchFunctionMode):
    """Exchange of every tensor in every call of torch for one without values."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    @override
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name, all_args = func.__name__.strip("_"), (tuple(args), dict(kwargs or {}))
        if func.__name__ in _READS:
            raise self._tape.refused(f"forward reads a value ({name})")
        generators = [one for one in tree_leaves(all_args) if isinstance(one, torch.Generator)]
        if any(one is not self._tape.generator for one in generators):
            raise self._tape.refused("forward draws from a generator of its own")
        given, options = tree_map_only(Tensor, self._tape.blind, all_args)
        try:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*given, **options)
        except Exception as error:
            known = isinstance(error, RefusalError)
            raise self._tape.refused(str(error) if known else f"forward uses {name}") from error
        if name == "set" or not all(isinstance(one, _VISIBLE) for one in tree_leaves(result)):
            raise self._tape.refused(f"forward uses {name}")
        return result
