"""What a torch function does, as a list of operations that holds for all values.

The function runs on tensors with a shape and a type and no values that Python could get at. So whatever would
read a value raises, and what is done cannot depend on one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

FACTORIES = frozenset(
    {
        "arange",
        "eye",
        "full",
        "full_like",
        "linspace",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "scalar_tensor",
        "zeros",
        "zeros_like",
    }
)
"""Operations whose result follows from shapes: it is made once, by torch."""

DRAWS = frozenset({"rand", "randn"})
"""Operations that draw random numbers; each call makes them anew, by torch."""

_ITSELF = frozenset({"alias", "detach", "lift_fresh"})
"""Operations that give a tensor another name."""

_READS = frozenset(
    {
        "array",
        "bool",
        "contains",
        "data_ptr",
        "dlpack",
        "float",
        "format",
        "index",
        "int",
        "item",
        "numpy",
        "repr",
        "tolist",
    }
)
"""Names of what makes a Python value of a tensor."""

_VISIBLE = (Tensor, int, str, NoneType, torch.Size, torch.dtype, torch.device, torch.layout)
"""Types of what else a call of torch may return."""


class Ref(int):
    """Number of a tensor in a trace."""


class TapedCall(NamedTuple):
    """Operation with its arguments, in which tensors are numbers.

    made:    numbers of the results
    several: whether there is a list of them
    common:  type in which an elementwise operation computes
    """

    name: str
    args: Sequence[object]
    options: Mapping[str, object]
    made: Sequence[int]
    several: bool
    common: torch.dtype


def trace(
    function: Function,
    inputs: Sequence[Tensor],
    *,
    modules: Sequence[nn.Module],
    generator: torch.Generator,
    known: Callable[[str], bool],
) -> Tape:
    """Return what ``function`` does to inputs of these shapes and types, whatever their values.

    modules:   those that it uses, whose attributes it must leave as they are
    generator: the one that it may draw from
    known:     whether an operation, by its name in ATen, is wanted in the list; others come in their parts
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
        """Call ``func``; with the numbers, where the trace is over and somebody has kept the tensor."""
        with torch._C.DisableTorchFunctionSubclass():
            if torch._C._len_torch_dispatch_stack():
                return func(*args, **(kwargs or {}))
            return cls.__torch_dispatch__(func, types, args, kwargs)

    @classmethod
    @override
    def __torch_dispatch__(  # type: ignore[override]  # torch's own annotation lacks an argument
        cls,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call ``func`` with the numbers: the trace is over."""
        given, options = tree_map_only(_Blind, _numbers, (tuple(args), dict(kwargs or {})))
        return func(*given, **options)


def _numbers(blind: _Blind) -> Tensor:
    return blind.numbers


class Tape(TorchDispatchMode):
    """List of a function's operations, on numbered tensors: first the inputs. Each number is made once.

    calls:   the operations
    tensors: by their numbers, of this one call
    held:    numbers of those that the function did not get and did not make: parameters, buffers, constants
    fixed:   numbers of those that factories have made, the same for all calls
    results: numbers of the function's results
    """

    def __init__(
        self, inputs: Sequence[Tensor], generator: torch.Generator, known: Callable[[str], bool]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self._generator, self._known, self._refusal = generator, known, ""
        self.calls, self.tensors = list[TapedCall](), list[Tensor]()
        self.held, self.fixed, self.results = set[int](), set[int](), list[Ref]()
        self._blinds = dict[int, _Blind]()  # by the id of what they stand for
        self._sharing = Counter[int]()  # tensors on a storage, and one more if it is not the function's
        self.inputs = [self._foreign(one) for one in inputs]

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler, which takes two seconds."""
        return False

    def record(self, function: Function) -> None:
        """Fill the list. Raises RefusalError where there can be none."""
        try:
            with self, _BlindCalls(self):
                results = list(function(self.inputs))
        except Exception as error:
            raise RefusalError(self._refusal or str(error).partition("\n")[0]) from error
        if self._refusal:  # the function has caught it
            raise RefusalError(self._refusal)
        self.results = [Ref(self._blind(result).place) for result in results]

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

    def blind(self, values: Any) -> Any:  # noqa: ANN401  # whatever torch is called with
        """Return arguments with tensors that have no values. Raises RefusalError for another generator."""
        if any(
            isinstance(one, torch.Generator) and one is not self._generator for one in tree_leaves(values)
        ):
            raise self.refused("forward draws from a generator of its own")
        return tree_map_only(Tensor, self._blind, values)

    def _blind(self, tensor: Tensor) -> Any:  # noqa: ANN401  # one of ours, but inside of vmap
        if is_functorch_wrapped_tensor(tensor) or (isinstance(tensor, _Blind) and self._is_ours(tensor)):
            return tensor
        numbers = tensor.numbers if isinstance(tensor, _Blind) else tensor
        if id(numbers) not in self._blinds:
            if numbers.device.type != "cpu" or numbers.layout is not torch.strided:
                raise self.refused(f"a tensor is on {numbers.device}, {numbers.layout}")
            self.held.add(len(self.tensors))
            self._foreign(numbers)
        return self._blinds[id(numbers)]

    def _is_ours(self, blind: _Blind) -> bool:
        return blind.place < len(self.tensors) and self.tensors[blind.place] is blind.numbers

    def _foreign(self, numbers: Tensor) -> _Blind:
        self._sharing[_storage(numbers)] += 1
        return self._made(numbers)

    def _made(self, numbers: Tensor) -> _Blind:
        made = self._blinds[id(numbers)] = _Blind(numbers, self._number(numbers))
        return made

    def _number(self, numbers: Tensor) -> int:
        self.tensors.append(numbers)
        self._sharing[_storage(numbers)] += 1
        return len(self.tensors) - 1

    @override
    def __torch_dispatch__(
        self,
        func: Any,  # an operation, whose class torch does not show
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given, options = tree_map_only(Tensor, self._blind, (tuple(args), dict(kwargs or {})))
        written = [one.name for one in func._schema.arguments if one.alias_info and one.alias_info.is_write]
        name = func._schema.name.removeprefix("aten::")
        name = name.removesuffix("_") if written else name
        if self._known(f"{name}.{func._overloadname}"):
            name = f"{name}.{func._overloadname}"
        if name in _ITSELF:
            return given[0]
        if name in DRAWS and options.get("generator") is not None:
            options["generator"] = self._generator  # torch has another object for it
        elif not (name in FACTORIES or self._known(name)):
            return self._in_parts(func, name, given, options)
        if written:
            return self._written(func, written, name, given, options)
        numbers = tree_map_only(_Blind, _numbers, given)
        result = func(*numbers, **options)
        if name in FACTORIES:
            self.fixed.add(len(self.tensors))
            return self._made(result)
        same = [one for one in given if isinstance(one, _Blind) and one.numbers is result]
        if same:
            return same[0]
        first = len(self.tensors)
        made = tree_map_only(Tensor, self._made, result)
        places = range(first, len(self.tensors))
        if places:  # not those of a list without any
            self._note(name, given, options, places, several=isinstance(result, list | tuple))
        return made

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

    def _written(
        self,
        func: Any,  # noqa: ANN401
        written: Sequence[str],
        name: str,
        args: Sequence[_Blind],
        options: Mapping[str, object],
    ) -> _Blind:
        """Return the tensor that is written into. It stands for the result, another tensor, from now on."""
        into, numbers = args[0], tree_map_only(_Blind, _numbers, args)
        if written != ["self"] or self._sharing[_storage(into.numbers)] > 1:
            raise self.refused(f"forward writes into what others see ({name}_)")
        result = func(into.numbers.clone(), *numbers[1:], **options)
        if result.shape != into.shape or result.dtype != into.dtype:
            raise self.refused(f"forward uses {name}_")
        self._note(name, args, options, [self._number(result)], several=False)
        into.numbers, into.place = result, len(self.tensors) - 1
        return into

    def _note(
        self,
        name: str,
        args: Sequence[object],
        options: Mapping[str, object],
        made: Sequence[int],
        *,
        several: bool,
    ) -> None:
        read = [one.numbers for one in args if isinstance(one, _Blind)]
        common = self.tensors[made[0]].dtype
        if common is torch.bool and read:
            common = torch.result_type(read[0], read[-1])
        references = tree_map_only(_Blind, lambda one: Ref(one.place), args)
        self.calls.append(TapedCall(name, references, options, made, several, common))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _BlindCalls(TorchFunctionMode):
    """Exchange of every tensor in every call of torch for one without values."""

    def __init__(self, made: Tape) -> None:
        self._trace = made

    @override
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = func.__name__.strip("_")
        if name in _READS:
            raise self._trace.refused(f"forward reads a value ({name})")
        given, options = self._trace.blind((tuple(args), dict(kwargs or {})))
        try:
            result = func(*given, **options)
        except Exception as error:
            known = isinstance(error, RefusalError)
            raise self._trace.refused(str(error) if known else f"forward uses {name}") from error
        if name == "set" or not all(isinstance(one, _VISIBLE) for one in tree_leaves(result)):
            raise self._trace.refused(f"forward uses {name}")
        return result
