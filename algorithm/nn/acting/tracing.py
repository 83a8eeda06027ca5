"""List of the operations of a torch function, the same for all values.

The function runs on tensors with a shape and a type and no values that Python could get at. So whatever would
read a value raises, and what is done cannot depend on one. It runs twice, as a copy: what its objects keep of
a call stays in the copy, and is seen there.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Container, Mapping, Sequence
from io import BytesIO
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from typing_extensions import override

Function = Callable[[Sequence[Tensor]], Sequence[Tensor]]

_OF_SHAPES = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
"""Operations whose result follows from their tensor's shape."""

_ITSELF = frozenset({"alias", "detach", "detach_", "lift_fresh"})
"""Operations that give a tensor another name."""

_VISIBLE = (Tensor, int, str, NoneType, torch.Size, torch.dtype, torch.device, torch.layout)
"""Types of what else a call of torch may return."""

_SHARED = (Tensor, torch.Generator, type, FunctionType, BuiltinFunctionType, ModuleType)
"""Types of what a copy of a function has in common with it."""


class RefusalError(Exception):
    """Reason why a function is not a fixed list of operations."""


class Ref(int):
    """Number of a tensor in a trace, and its name in a program."""

    @override
    def __repr__(self) -> str:
        return f"x{int(self)}"


class TapedCall(NamedTuple):
    """Operation, with numbers in the place of the tensors among its arguments and results."""

    name: str
    args: Sequence[object]
    options: Mapping[str, object]
    made: object


@torch.inference_mode()
def trace(function: Function, inputs: Sequence[Tensor], known: Container[str]) -> Tape:
    """Return what ``function`` does to inputs of these shapes and types, whatever their values.

    function: of tensors. It is copied with pickle, all but tensors, functions and classes.
    known:    operations that are wanted in the list, by their names in ATen; others come in their parts
    Raises RefusalError, or what pickle raises, if it reads a value, changes anything, draws random numbers,
    does something else the second time, or uses what is not known. Nothing is changed in any case.
    """
    picture, shared = _picture(function)
    unpickler = pickle.Unpickler(BytesIO(picture))
    unpickler.persistent_load = shared.__getitem__  # type: ignore[method-assign]
    copied = unpickler.load()
    states = random.getstate(), np.random.get_state()
    before = [_picture(one)[0] for one in (function, copied, states)]
    try:
        first, second = (Tape(copied, inputs, known) for _ in range(2))
    finally:
        drawn = random.getstate(), np.random.get_state()
        random.setstate(states[0])
        np.random.set_state(states[1])
    after = [_picture(one)[0] for one in (function, copied, drawn)]
    if after[:2] != before[:2]:
        raise RefusalError("forward changes an attribute")
    if after != before:
        raise RefusalError("forward draws its own random numbers")
    if not first.same_as(second):
        raise RefusalError("forward does not do the same each time")
    return second


def _picture(value: object) -> tuple[bytes, Mapping[int, object]]:
    """Return all that an object is made of but what its copy shares with it, and that by its number."""
    file = BytesIO()
    pickler = _Pickler(file)
    pickler.shared = {}
    pickler.dump(value)
    return file.getvalue(), pickler.shared


class _Pickler(pickle.Pickler):
    shared: dict[int, object]

    @override
    def persistent_id(self, obj: object) -> int | None:
        if isinstance(obj, nn.Module) and (obj._forward_hooks or obj._forward_pre_hooks):
            raise RefusalError("a module has hooks")
        if not isinstance(obj, _SHARED):
            return None
        self.shared[id(obj)] = obj
        return id(obj)


class _Blind(Tensor):
    """Tensor without memory: Python sees its shape and type. The trace alone knows the numbers."""

    numbers: Tensor
    place: Ref

    @staticmethod
    def __new__(cls: type[_Blind], numbers: Tensor, place: Ref) -> _Blind:
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


_numbers = attrgetter("numbers")
_place = attrgetter("place")


class Tape(TorchDispatchMode):
    """List of the operations of a function's call, on numbered tensors. Each number is made once.

    calls:   in their order; all but those that are the same in each call
    tensors: by their numbers: the inputs; those that the function holds, such as parameters; results
    results: numbers of the function's results
    Raises RefusalError where there can be no list.
    """

    def __init__(self, function: Function, inputs: Sequence[Tensor], known: Container[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self._known, self.refusal = known, ""
        self.calls, self.tensors = list[TapedCall](), list[Tensor]()
        self._held, self._fixed = set[int](), set[int]()  # tensors from elsewhere; the same in each call
        self._blinds = dict[int, _Blind]()  # by the id of what they stand for
        given = [self.blind(one) for one in inputs]
        try:
            with self, _BlindCalls(self):
                results = list(function(given))
        except Exception as error:
            raise RefusalError(self.refusal or str(error).partition("\n")[0]) from error
        if self.refusal:  # the function has caught it
            raise RefusalError(self.refusal)
        self.results = [self.blind(result).place for result in results]

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler, which takes two seconds."""
        return False

    def same_as(self, other: Tape) -> bool:
        """Return whether both do the same on the same."""
        made = {place for call in self.calls for place in tree_leaves(call.made)}
        pairs = enumerate(zip(self.tensors, other.tensors, strict=False))
        held = [pair for place, pair in pairs if place not in made]
        return repr((self.calls, self.results)) == repr((other.calls, other.results)) and all(
            one is two or (one.dtype == two.dtype and torch.equal(one, two)) for one, two in held
        )

    def blind(self, tensor: Tensor) -> Any:  # noqa: ANN401  # one of ours, but inside of vmap
        """Return a tensor without values that stands for this one."""
        if is_functorch_wrapped_tensor(tensor):
            return tensor
        numbers = tensor.numbers if isinstance(tensor, _Blind) else tensor
        if id(numbers) not in self._blinds:  # not for those of another trace
            self._held.add(len(self.tensors))
            self._made(numbers)
        return self._blinds[id(numbers)]

    def _made(self, numbers: Tensor) -> _Blind:
        made = self._blinds[id(numbers)] = _Blind(numbers, Ref(len(self.tensors)))
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
        name = func._schema.name.removeprefix("aten::")
        if name in _ITSELF:
            return given[0]
        if func._schema.is_mutable:
            return self._written(name, given, options)
        read = {one.place for one in tree_leaves((given, options)) if isinstance(one, _Blind)}
        fixed = name in _OF_SHAPES or self._fixed.issuperset(read)
        if torch.Tag.nondeterministic_seeded in func.tags or not (fixed or name in self._known):
            return self._in_parts(func, name, given, options)
        numbers, named = tree_map_only(_Blind, _numbers, (given, options))
        result = func(*numbers, **named)
        if id(result) in self._blinds:  # one of its arguments
            return self._blinds[id(result)]
        made = tree_map_only(Tensor, self._made, result)
        call = TapedCall(name, *tree_map_only(_Blind, _place, (given, options, made)))
        if fixed:
            self._fixed.update(tree_leaves(call.made))
        else:
            self.calls.append(call)
        return made

    def _written(self, name: str, given: Sequence[Any], options: Mapping[str, object]) -> object:
        """Return the first argument, which from now on stands for the result of the operation on a copy.

        Raises RefusalError unless the function has made it, and nothing else is in the same memory.
        """
        into, storages = given[0], [_storage(one) for one in self.tensors]
        alone = into.place not in self._held and storages.count(_storage(into.numbers)) == 1
        if not (alone and name.endswith("_")):
            raise RefusalError(f"forward writes into what others see ({name})")
        with self:
            made = getattr(torch.ops.aten, name[:-1])(*given, **options)
        if (made.shape, made.dtype) != (into.shape, into.dtype):
            raise NotImplementedError(name)
        into.numbers, into.place = made.numbers, made.place
        self._blinds[id(into.numbers)] = into
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
            raise NotImplementedError(name)
        return result


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
        name = func.__name__.strip("_")
        given, options = tree_map_only(Tensor, self._tape.blind, (tuple(args), dict(kwargs or {})))
        try:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*given, **options)
            if name == "set" or not all(isinstance(one, _VISIBLE) for one in tree_leaves(result)):
                raise NotImplementedError(name)
        except Exception as error:
            known = isinstance(error, RefusalError)
            self._tape.refusal = str(error) if known else f"forward uses {name}"
            raise RefusalError(self._tape.refusal) from error
        return result
