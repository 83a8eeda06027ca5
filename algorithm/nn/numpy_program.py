"""Torch functions as numpy programs, for small networks and few rows.

An operation of torch takes several microseconds before it computes anything. One of numpy takes one, and a
policy of two small layers has forty of them for each step of the environment. So what a function does is
recorded once, operation by operation, and from then on numpy does the same.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from algorithm.nn.numpy_operations import FREE, OPERATIONS, VIEWS

Numbers = NDArray[Any]
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
            if all(map(_same, found, expected)):
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
class _Line:
    """Line of a program, with the names that it makes and reads. ``always``: it has an effect beside them."""

    made: Sequence[str]
    read: Sequence[str]
    text: str
    always: bool


class _Program:
    """Straight-line Python of the recorded operations. Raises _NoProgramError for one that is not known.

    Views of parameters are made once: what is written into a parameter is seen through them.
    """

    def __init__(self, recorder: _Recorder, results: Sequence[Tensor]) -> None:
        self.unchecked = 0  # calls that are not compared with torch
        self._count = itertools.count()
        self._constants: dict[str, Any] = {"asarray": np.asarray}
        self._names: dict[int, str] = {}  # of tensors, by id; the recorder keeps them alive
        inputs = [self._named(tensor, "x") for tensor in recorder.inputs]
        lines = [line for call in recorder.calls for line in self._lines(call)]
        found = [self._argument(result) for result in results]
        body = [f"[{', '.join(inputs)}] = arrays", *(line.text for line in _needed(lines, found))]
        body.append(f"return [{', '.join(f'asarray({name})' for name in found)}]")
        # The source is made of names that are given here, and of nothing else.
        exec("def run(arrays):\n    " + "\n    ".join(body), self._constants)
        run: Callable[[Sequence[Numbers]], list[Numbers]] = self._constants["run"]
        self.run = np.errstate(all="ignore")(run)  # torch says nothing of log 0
        self._names = {}  # ids are of tensors that are gone from here on

    def _lines(self, call: _Call) -> list[_Line]:
        args, result = call.args, call.result
        name = call.name.removeprefix("aten.")
        if name in FREE or (name.startswith("to.") and result is args[0]):
            self._names[id(result)] = self._argument(args[0])
            return []
        operation = OPERATIONS.get(name) or VIEWS.get(name)
        if operation is None:
            raise _NoProgramError(name)
        positional = [self._argument(one) for one in args]
        keywords = {key: value for key, value in call.kwargs.items() if not isinstance(value, _MEMORY)}
        named = {key: self._argument(value) for key, value in keywords.items()}
        arguments = [*positional, *(f"{key}={value}" for key, value in named.items())]
        text = f"{self._constant(operation)}({', '.join(arguments)})"
        several = isinstance(result, list | tuple)
        if not several and _promotes(args, result):
            text = f"{text}.astype({self._constant(_numpy_type(result.dtype))}, copy=False)"
        results = list(result) if several else [result]
        if name in VIEWS and positional[0].startswith("c"):
            found = eval(text, self._constants)
            values = list(found) if several else [found]
            if all(np.may_share_memory(value, self._constants[positional[0]]) for value in values):
                for one, value in zip(results, values, strict=True):
                    self._names[id(one)] = self._constant(value)
                return []
        in_place = any(id(one) in self._names for one in results)
        made = [self._names.get(id(one)) or self._named(one, "r") for one in results]
        if not all(one.startswith("r") for one in made):
            raise _NoProgramError(f"{name} into what is not its own")
        read = [one for text in (*positional, *named.values()) for one in text.strip("[]").split(", ")]
        always = in_place or name.startswith("rand")
        return [_Line(made, read, f"{', '.join(made)}{',' if several else ''} = {text}", always)]

    def _argument(self, value: object) -> str:
        if isinstance(value, Tensor):
            return self._names.get(id(value)) or self._parameter(value)
        if isinstance(value, list | tuple) and any(isinstance(one, Tensor) for one in value):
            return f"[{', '.join(map(self._argument, value))}]"
        if isinstance(value, torch.dtype):
            value = _numpy_type(value)
        return self._constant(value)

    def _parameter(self, tensor: Tensor) -> str:
        """Return the name of a tensor that no recorded operation has made."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise _NoProgramError("a tensor elsewhere")
        _numpy_type(tensor.dtype)
        name = self._names[id(tensor)] = self._constant(tensor.detach().numpy())
        return name

    def _named(self, tensor: Tensor, kind: str) -> str:
        name = self._names[id(tensor)] = f"{kind}{next(self._count)}"
        return name

    def _constant(self, value: object) -> str:
        name = f"c{next(self._count)}"
        self._constants[name] = value
        return name


def _needed(lines: Sequence[_Line], found: Sequence[str]) -> list[_Line]:
    """Return the lines without which a result, or a draw of random numbers, would be another one."""
    wanted, kept = set(found), []
    for line in reversed(lines):
        if line.always or wanted.intersection(line.made):
            wanted.update(line.read)
            kept.append(line)
    return kept[::-1]


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
