"""Torch functions as numpy programs, for small networks and few rows.

An operation of torch takes several microseconds before it computes anything. One of numpy takes one, and a
policy of two small layers has forty of them for each step of the environment. So what a function does is
recorded once, operation by operation, and from then on numpy does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from algorithm.nn.numpy_operations import FREE, OPERATIONS, VIEWS, Numbers, Operation

Function = Callable[[Sequence[Tensor]], Sequence[Tensor]]

CHECKED = 1000
"""Calls after which a program is compared with torch again."""

TRIES = 3
"""Comparisons in a row that may fail; one may by two scores that differ by a rounding."""

_TOLERANCE = 1e-3
_MEMORY = torch.device | torch.layout | torch.memory_format
"""Types of arguments that say where and how numbers lie."""


class _NoProgramError(Exception):
    """Operation that numpy has no equal for."""


class NumpyPrograms:
    """A torch function of arrays, computed by numpy where it can be.

    Parameters and buffers that the function reads are read anew by each call; they must keep their storage.
    Anything else that it depends on, such as an attribute that is a number, is taken as it was when the
    function was recorded. The first two calls of each key are computed both ways, and each ``CHECKED``-th one
    after them. What differs is recorded anew. Where an operation is not known, or recordings have differed
    ``TRIES`` times in a row, all calls of that key are torch's from then on.

    function:  of tensors, which it does not change; it draws random numbers from ``generator`` alone
    generator: on the function's device. Elsewhere than on the CPU everything is torch's.
    """

    def __init__(self, function: Function, generator: torch.Generator) -> None:
        self._function, self._generator = function, generator
        self._programs: dict[Hashable, _Program | None] = {}
        self._differed = Counter[Hashable]()

    def __call__(self, key: Hashable, arrays: Sequence[Numbers]) -> list[Numbers]:
        """Return the function's results, as arrays.

        key: of all that the shapes and types of ``arrays`` depend on
        """
        program = self._programs.get(key)
        if program is not None and program.unchecked:
            program.unchecked -= 1
            return program.run(arrays)
        if self._generator.device.type != "cpu" or (program is None and key in self._programs):
            return self._computed(arrays)
        return self._both(key, program, arrays)

    @torch.inference_mode()
    def _computed(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        device = self._generator.device
        tensors = [tensor.to(device) for tensor in _tensors(arrays)]
        return [result.cpu().numpy() for result in self._function(tensors)]

    def _both(self, key: Hashable, program: _Program | None, arrays: Sequence[Numbers]) -> list[Numbers]:
        before, tensors = self._generator.get_state(), _tensors(arrays)
        recorder = _Recorder(tensors)
        with torch.inference_mode(), recorder:
            results = list(self._function(tensors))
        expected, after = [result.numpy() for result in results], self._generator.get_state()
        try:
            checked = program or _Program(recorder, results)
            self._generator.set_state(before)
            found = checked.run(arrays)
            drawn_alike = torch.equal(self._generator.get_state(), after)
            if drawn_alike and all(map(_same, found, expected)):
                self._programs[key] = checked
                if program:  # it was recorded with other arrays
                    program.unchecked, self._differed[key] = CHECKED, 0
                return found
            self._differed[key] += 1
            self._programs[key] = None
            if self._differed[key] < TRIES:
                self._programs[key] = _Program(recorder, results)
        except _NoProgramError:
            self._programs[key] = None
        self._generator.set_state(after)
        return expected


def _tensors(arrays: Sequence[Numbers]) -> list[Tensor]:
    return [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays]


def _same(found: Numbers, expected: Numbers) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


@dataclass(frozen=True)
class _Call:
    """Operation as it was called."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any


class _Recorder(TorchDispatchMode):
    """List of all operations on tensors while it is entered."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self.inputs, self.calls = list(inputs), list[_Call]()

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler, which takes two seconds."""
        return False

    @override
    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.calls.append(_Call(str(func), args, kwargs or {}, result))
        return result


@dataclass(frozen=True)
class _Step:
    """Operation of a program: from registers, with options, to registers.

    ``always``: it has an effect beside its results.
    """

    operation: Operation
    read: tuple[int | tuple[int, ...], ...]
    made: int | slice
    always: bool


class _Program:
    """Numpy's operations in the order of the recorded ones, on numbered registers.

    Parameters and constants are in their registers from the beginning, and views of parameters, too: what is
    written into a parameter is seen through them. Raises _NoProgramError for an operation that is not known.
    """

    def __init__(self, recorder: _Recorder, results: Sequence[Tensor]) -> None:
        self.unchecked = 0  # calls that are not compared with torch
        self._registers: list[Any] = []
        self._constant: set[int] = set()
        self._places: dict[int, int] = {}  # of tensors, by id; the recorder keeps them alive
        self._inputs = slice(len(recorder.inputs))
        for tensor in recorder.inputs:
            self._reserve(tensor)
        steps = [step for call in recorder.calls for step in self._steps_of(call)]
        self._results = [self._place(result) for result in results]
        self._steps = [(one.operation, _reader(one.read), one.made) for one in _needed(steps, self._results)]
        self._places = {}  # ids are of tensors that are gone from here on

    def run(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        """Return the results for these inputs."""
        registers = self._registers.copy()
        registers[self._inputs] = arrays
        with np.errstate(all="ignore"):  # torch says nothing of log 0
            for operation, read, made in self._steps:
                registers[made] = operation(*read(registers))
        return [np.asarray(registers[place]) for place in self._results]

    def _steps_of(self, call: _Call) -> list[_Step]:
        args, result = call.args, call.result
        name = call.name.removeprefix("aten.")
        if name in FREE or (name.startswith("to.") and result is args[0]):
            self._places[id(result)] = self._place(args[0])
            return []
        operation = OPERATIONS.get(name) or VIEWS.get(name)
        if operation is None:
            raise _NoProgramError(name)
        options = {key: _plain(value) for key, value in call.kwargs.items() if not isinstance(value, _MEMORY)}
        several = isinstance(result, list | tuple)
        results = list(result) if several else [result]
        if not several and _promotes(args, result):
            operation = _cast(operation, _numpy_type(result.dtype))
        operation = partial(operation, **options) if options else operation
        read = tuple(self._read(one) for one in args)
        first = read[0]
        if name in VIEWS and first in self._constant:
            values = operation(*_reader(read)(self._registers))
            values = list(values) if several else [values]
            if all(np.may_share_memory(value, self._registers[first]) for value in values):
                for one, value in zip(results, values, strict=True):
                    self._places[id(one)] = self._hold(value)
                return []
        in_place = {self._places[id(one)] for one in results if id(one) in self._places}
        if in_place & {*self._constant, *range(self._inputs.stop)}:
            raise _NoProgramError(f"{name} into what is not its own")
        always = bool(in_place) or name.startswith("rand")
        place = in_place.pop() if in_place else self._reserve(*results)
        return [_Step(operation, read, slice(place, place + len(results)) if several else place, always)]

    def _read(self, value: object) -> int | tuple[int, ...]:
        """Return the register of an argument, or those of a list of tensors."""
        if isinstance(value, list | tuple) and any(isinstance(one, Tensor) for one in value):
            return tuple(map(self._place, value))
        return self._place(value)

    def _place(self, value: object) -> int:
        """Return the register of a tensor or a constant. A tensor that nothing has made is a parameter."""
        if not isinstance(value, Tensor):
            return self._hold(_plain(value))
        if id(value) not in self._places:
            if value.device.type != "cpu" or value.layout != torch.strided:
                raise _NoProgramError("a tensor elsewhere")
            _numpy_type(value.dtype)
            self._places[id(value)] = self._hold(value.detach().numpy())
        return self._places[id(value)]

    def _hold(self, value: object) -> int:
        self._constant.add(len(self._registers))
        self._registers.append(value)
        return len(self._registers) - 1

    def _reserve(self, *tensors: Tensor) -> int:
        first = len(self._registers)
        for place, tensor in enumerate(tensors, first):
            self._places[id(tensor)] = place
            self._registers.append(None)
        return first


def _cast(operation: Operation, dtype: np.dtype[Any]) -> Operation:
    return lambda *arguments, **options: operation(*arguments, **options).astype(dtype, copy=False)


def _reader(read: Sequence[int | tuple[int, ...]]) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function from all registers to the arguments that are in some."""
    places = [one for one in read if isinstance(one, int)]
    if len(places) < len(read):
        return lambda registers: [
            [registers[place] for place in one] if isinstance(one, tuple) else registers[one] for one in read
        ]
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places) if places else lambda registers: ()


def _needed(steps: Sequence[_Step], results: Sequence[int]) -> list[_Step]:
    """Return the steps without which a result, or a draw of random numbers, would be another one."""
    wanted, kept = set(results), []
    for step in reversed(steps):
        made = [step.made] if isinstance(step.made, int) else range(step.made.start, step.made.stop)
        if step.always or not wanted.isdisjoint(made):
            for one in step.read:
                wanted.update(one if isinstance(one, tuple) else [one])
            kept.append(step)
    return kept[::-1]


def _plain(value: object) -> object:
    return _numpy_type(value) if isinstance(value, torch.dtype) else value


def _promotes(args: Sequence[object], result: Tensor) -> bool:
    """Return whether integers meet floats: numpy makes float64 of them, torch the float that is there."""
    found = (one.dtype for one in args if isinstance(one, Tensor))
    integers = (not dtype.is_floating_point and dtype is not torch.bool for dtype in found)
    return result.is_floating_point() and any(integers)


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError as error:  # bfloat16 and the like
        raise _NoProgramError(str(dtype)) from error
