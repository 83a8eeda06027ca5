"""Torch functions as numpy programs, for small networks and few rows.

An operation of torch takes several microseconds before it computes anything. One of numpy takes one, and a
policy of two small layers has forty of them for each step of the environment. So what a function does is
traced once (:mod:`~algorithm.nn.tracing`), and from then on numpy does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.nn.numpy_operations import ELEMENTWISE, KNOWN, SAME, SHAPED, Numbers, Operation
from algorithm.nn.tracing import DRAWS, Function, Ref, Tape, TapedCall, trace
from algorithm.nn.unchanged import RefusalError

_close = partial(np.allclose, rtol=1e-4, atol=1e-5, equal_nan=True)  # float32, in another order of sums

_ARRAYS = np.ndarray | np.generic
_Places = int | list[int]
_Reader = Callable[[list[Any]], Sequence[Any]]
_TYPES = {
    getattr(torch, name): np.dtype(name)
    for name in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
}


class NumpyPrograms:
    """A torch function of arrays, computed by numpy where that is certain to be the same.

    Parameters, buffers and other tensors that the function reads are read anew by each call; they must keep
    their storage. For each key it is decided once, at its first call, whether numpy computes the function;
    that call is computed both ways. :meth:`renew` has everything decided anew.

    function:  of tensors; it draws random numbers from ``generator`` alone
    generator: on the function's device. Elsewhere than on the CPU everything is torch's.
    modules:   those that the function uses
    """

    def __init__(self, function: Function, generator: torch.Generator, modules: Sequence[nn.Module]) -> None:
        self._function, self._generator, self._modules = function, generator, modules
        self._programs: dict[Hashable, _Program | None] = {}

    def __call__(self, key: Hashable, arrays: Sequence[Numbers]) -> list[Numbers]:
        """Return the function's results, as arrays.

        key: of all that the shapes and types of ``arrays`` depend on
        """
        if key not in self._programs:
            try:
                self._programs[key] = self._program(arrays)
            except Exception:  # whatever it is, torch computes the function itself
                self._programs[key] = None
        program = self._programs[key]
        return program.run(arrays) if program else self._computed(arrays)

    def renew(self) -> None:
        """Decide anew at the next call of each key, with attributes as they will be then."""
        self._programs.clear()

    def reason(self, arrays: Sequence[Numbers]) -> str | None:
        """Return why torch would compute this call; None: numpy would. Nothing is decided or drawn."""
        try:
            self._program(arrays)
        except Exception as error:
            return str(error).partition("\n")[0] or type(error).__name__
        return None

    def _program(self, arrays: Sequence[Numbers]) -> _Program:
        """Return a program. Raises whatever shows that there is none. Nothing is drawn."""
        generator, inputs = self._generator, _tensors(arrays)
        if generator.device.type != "cpu":
            raise RefusalError(f"on {generator.device.type}")
        before = generator.get_state()
        try:
            program = _Program(
                trace(self._function, inputs, modules=self._modules, generator=generator, known=KNOWN)
            )
            generator.set_state(before)
            expected, after = self._computed(arrays), generator.get_state()
            generator.set_state(before)
            found = program.run(arrays)
            if not (torch.equal(generator.get_state(), after) and all(map(_close, found, expected))):
                raise RefusalError("numpy's result is another one")
        finally:
            generator.set_state(before)
        return program

    @torch.inference_mode()
    def _computed(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        tensors = [tensor.to(self._generator.device) for tensor in _tensors(arrays)]
        return [result.cpu().numpy() for result in self._function(tensors)]


def _tensors(arrays: Sequence[Numbers]) -> list[Tensor]:
    return [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays]


class _Program:
    """Numpy's operations in the order of the traced ones, on numbered registers, each of which is set once.

    What the function holds is in its register from the beginning, and so are views of it: what is written
    into a parameter is seen through them.
    Raises RefusalError, or whatever torch raises, where numpy does not do what torch does.
    """

    def __init__(self, tape: Tape) -> None:
        self._registers: list[Any] = [None] * len(tape.tensors)
        stays = tape.held | tape.fixed
        for place in (*tape.inputs, *stays):
            self._registers[place] = tape.tensors[place].detach().numpy()
        # Each is looked at, needed or not: the shape of its result may depend on values, and Python sees it.
        steps = [self._step(call, [tape.tensors[place] for place in call.made]) for call in tape.calls]
        self._steps = [step for step, needed in zip(steps, _needed(tape), strict=True) if needed]
        # The caller may write into results.
        self._results = [(np.array if place in stays else np.asarray, place) for place in tape.results]
        self._inputs = slice(len(tape.inputs))

    def run(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        """Return the results for these inputs."""
        registers = self._registers.copy()
        registers[self._inputs] = arrays
        with np.errstate(all="ignore"):  # torch says nothing of log 0
            for operation, read, made in self._steps:
                registers[made] = operation(*read(registers))
        return [own(registers[place]) for own, place in self._results]

    def _step(self, call: TapedCall, expected: Sequence[Tensor]) -> tuple[Operation, _Reader, int | slice]:
        """Return numpy's operation, what it reads, and the registers of its results. Compute it once."""
        try:
            read = _reader([self._place(one) for one in _arguments(call, expected[0].shape)])
            operation = _operation(call, read(self._registers), expected)
        except Exception as error:
            raise RefusalError(f"forward uses {call.name} in another way than numpy") from error
        for place, tensor in zip(call.made, expected, strict=True):
            self._registers[place] = tensor.numpy()
        first = call.made[0]
        return operation, read, slice(first, first + len(expected)) if call.several else first

    def _place(self, value: object) -> _Places:
        """Return the register of an argument, or those of a list with tensors in it."""
        if isinstance(value, list | tuple) and any(isinstance(one, Ref) for one in value):
            return [self._register(one) for one in value]
        return self._register(tuple(value) if isinstance(value, list) else value)

    def _register(self, value: object) -> int:
        if isinstance(value, Ref):
            return value
        self._registers.append(value)
        return len(self._registers) - 1


def _arguments(call: TapedCall, shape: Sequence[int]) -> Sequence[object]:
    """Return the arguments of numpy's operation: of some only the result's shape or type matters."""
    if call.name in SAME:
        return call.args[:1]
    return (call.args[0], tuple(shape)) if call.name in SHAPED else call.args


def _operation(call: TapedCall, arguments: Sequence[Any], expected: Sequence[Tensor]) -> Operation:
    """Return numpy's operation with its options, and with results of the shapes and types that torch's have.

    Raises RefusalError, or what the operation raises, if there is none.
    """
    operation, dtype = KNOWN[call.name], _TYPES[expected[0].dtype]
    if call.options and call.name not in SAME:
        operation = partial(operation, **call.options)
    if call.name in ELEMENTWISE:
        operation = _in_type(operation, arguments, dtype)
    with np.errstate(all="ignore"):
        values = operation(*arguments)
    found = values if call.several else [values]
    if [one.shape for one in found] != [one.shape for one in expected]:
        raise RefusalError("another shape")
    if all(one.dtype == dtype for one in found):
        return operation
    if call.name in SHAPED:
        raise RefusalError("the bits of a number")
    return lambda *given: operation(*given).astype(dtype)


def _in_type(operation: Operation, arguments: Sequence[Any], dtype: np.dtype[Any]) -> Operation:
    """Return the operation on arguments of the type that torch computes in, which is that of its result."""
    found = {one.dtype for one in arguments if isinstance(one, _ARRAYS)}
    if dtype.kind == "b" and len(found) > 1 and any(one.kind == "f" for one in found):
        raise RefusalError("floats are compared with numbers of another type")
    if dtype.kind == "b" or found <= {dtype}:
        return operation
    return lambda *given: operation(
        *(one.astype(dtype) if isinstance(one, _ARRAYS) else one for one in given)
    )


def _reader(read: Sequence[_Places]) -> _Reader:
    """Return a function from all registers to the arguments that are in some."""
    places = [one for one in read if isinstance(one, int)]
    if len(places) < len(read):
        return lambda registers: [
            registers[one] if isinstance(one, int) else [registers[place] for place in one] for one in read
        ]
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places)


def _needed(tape: Tape) -> list[bool]:
    """Return whether a result, or a draw of random numbers, would be another one without a call."""
    wanted, needed = set(tape.results), []
    for call in reversed(tape.calls):
        needed.append(call.name in DRAWS or not wanted.isdisjoint(call.made))
        if needed[-1]:
            wanted.update(call.read)
    return needed[::-1]
