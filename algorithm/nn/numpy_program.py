"""Torch functions as numpy programs, for small networks and few rows.

An operation of torch takes several microseconds before it computes anything. One of numpy takes one, and a
policy of two small layers has forty of them for each step of the environment. So what a function does is
traced once (:mod:`~algorithm.nn.tracing`), and from then on numpy does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.nn.numpy_operations import ELEMENTWISE, SAME, SHAPED, Numbers, Operation, known
from algorithm.nn.tracing import DRAWS, Function, Ref, Tape, TapedCall, trace
from algorithm.nn.unchanged import RefusalError

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5  # what float32 makes of another order of sums

_ARRAYS = np.ndarray | np.generic
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
                self._programs[key], results = self._checked(arrays)
                return results
            except Exception:  # whatever it is, torch computes the function itself
                self._programs[key] = None
        program = self._programs[key]
        return program.run(arrays) if program else self._computed(arrays)

    def renew(self) -> None:
        """Decide anew at the next call of each key, with attributes as they will be then."""
        self._programs.clear()

    def reason(self, arrays: Sequence[Numbers]) -> str | None:
        """Return why torch would compute this call; None: numpy would. Nothing is decided or drawn."""
        before = self._generator.get_state()
        try:
            self._checked(arrays)
        except Exception as error:
            return str(error).partition("\n")[0] or type(error).__name__
        finally:
            self._generator.set_state(before)
        return None

    def _checked(self, arrays: Sequence[Numbers]) -> tuple[_Program, list[Numbers]]:
        """Return a program and its results. Raises whatever shows that there is none, with nothing drawn."""
        before = self._generator.get_state()
        try:
            program = self._program(arrays)
            self._generator.set_state(before)
            expected, after = self._computed(arrays), self._generator.get_state()
            self._generator.set_state(before)
            found = program.run(arrays)
            if torch.equal(self._generator.get_state(), after) and all(map(_close, found, expected)):
                return program, found
            raise RefusalError("numpy's result is another one")
        except Exception:
            self._generator.set_state(before)
            raise

    def _program(self, arrays: Sequence[Numbers]) -> _Program:
        """Return a program. Raises whatever shows that there is none."""
        if self._generator.device.type != "cpu":
            raise RefusalError(f"on {self._generator.device.type}")
        made = trace(
            self._function,
            _tensors(arrays),
            modules=self._modules,
            generator=self._generator,
            known=lambda name: known(name) is not None,
        )
        return _Program(made, arrays)

    @torch.inference_mode()
    def _computed(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        tensors = [tensor.to(self._generator.device) for tensor in _tensors(arrays)]
        return [result.cpu().numpy() for result in self._function(tensors)]


def _tensors(arrays: Sequence[Numbers]) -> list[Tensor]:
    return [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays]


def _close(found: Numbers, expected: Numbers) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    return np.allclose(found, expected, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


class _Step(NamedTuple):
    """Operation of a program: from registers into one, or into several for a list.

    draws: it has an effect beside its results
    """

    operation: Operation
    read: tuple[int | tuple[int, ...], ...]
    into: int | slice
    draws: bool


class _Program:
    """Numpy's operations in the order of the traced ones, on numbered registers, each of which is set once.

    What the function holds is in its register from the beginning, and so are views of it: what is written
    into a parameter is seen through them. What follows from shapes alone is computed here.
    Raises RefusalError, or whatever an operation raises, where numpy does not do what torch does.
    """

    def __init__(self, made: Tape, arrays: Sequence[Numbers]) -> None:
        self._registers: list[Any] = [*arrays, *[None] * (len(made.tensors) - len(arrays))]
        self._tensors = made.tensors
        self._fixed, self._held = made.fixed.copy(), made.held.copy()
        self._places = dict[int, int]()  # registers of tensors that are others by another name
        for place in made.held | made.fixed:
            self._registers[place] = made.tensors[place].detach().numpy()
        steps = [step for call in made.calls if (step := self._step(call))]
        results = [self._place(one) for one in made.results]
        self._results = [self._copied(one, steps) for one in results]
        self._steps = [(one.operation, _reader(one.read), one.into) for one in _needed(steps, self._results)]
        self._inputs = slice(len(arrays))

    def run(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        """Return the results for these inputs."""
        registers = self._registers.copy()
        registers[self._inputs] = arrays
        with np.errstate(all="ignore"):  # torch says nothing of log 0
            for operation, read, made in self._steps:
                registers[made] = operation(*read(registers))
        return [np.asarray(registers[place]) for place in self._results]

    def _step(self, call: TapedCall) -> _Step | None:
        """Compute the operation once; return it, or None where the result stays what it is."""
        draws, expected = call.name in DRAWS, [self._tensors[place] for place in call.made]
        read = () if draws else tuple(self._read(one) for one in _arguments(call, expected[0].shape))
        arguments = _reader(read)(self._registers)
        operation = _drawing(call) if draws else _in_its_type(call, arguments)
        try:
            values, operation = _computed(call, operation, arguments, expected)
        except Exception as error:
            raise RefusalError(f"forward uses {call.name} in another way than numpy") from error
        for place, value in zip(call.made, values if call.several else [values], strict=True):
            self._registers[place] = value
        if call.name in SAME and values is arguments[0]:
            self._places[call.made[0]] = self._place(call.args[0])
        elif draws or not self._stays(call.made, read):
            first = call.made[0]
            return _Step(
                operation, read, slice(first, first + len(expected)) if call.several else first, draws
            )
        return None

    def _stays(self, made: Sequence[int], read: Sequence[int | tuple[int, ...]]) -> bool:
        """Return whether the results are the same for all inputs; note them then."""
        places = {place for one in read for place in (one if isinstance(one, tuple) else [one])}
        if places <= self._fixed:
            self._fixed.update(made)
            return True
        held = [self._registers[place] for place in places & self._held]
        views = places <= self._fixed | self._held and all(
            any(np.may_share_memory(self._registers[place], one) for one in held) for place in made
        )
        if views:
            self._held.update(made)
        return views

    def _copied(self, place: int, steps: list[_Step]) -> int:
        """Return where a result is: in a copy, if the program goes on to need it as it is."""
        if place not in self._fixed | self._held:
            return place
        steps.append(_Step(np.copy, (place,), len(self._registers), draws=False))
        self._registers.append(None)
        return len(self._registers) - 1

    def _read(self, value: object) -> int | tuple[int, ...]:
        """Return the register of an argument, or those of a list with tensors in it."""
        if isinstance(value, list | tuple) and any(isinstance(one, Ref) for one in value):
            return tuple(map(self._place, value))
        return self._place(tuple(value) if isinstance(value, list) else value)

    def _place(self, value: object) -> int:
        if isinstance(value, Ref):
            return self._places.get(value, value)
        self._fixed.add(len(self._registers))
        self._registers.append(value)
        return len(self._registers) - 1


def _arguments(call: TapedCall, shape: Sequence[int]) -> Sequence[object]:
    """Return the arguments of numpy's operation: of some only the result's shape or type matters."""
    if call.name in SAME:
        return call.args[:1]
    return (call.args[0], tuple(shape)) if call.name in SHAPED else call.args


def _in_its_type(call: TapedCall, arguments: Sequence[Any]) -> Operation:
    """Return numpy's operation with its options, on arguments of the type that torch computes in."""
    operation = known(call.name)
    assert operation is not None
    if call.options and call.name not in SAME:
        operation = partial(operation, **call.options)
    if call.name not in ELEMENTWISE:
        return operation
    dtype, chosen = _TYPES[call.common], operation
    if all(one.dtype == dtype for one in arguments if isinstance(one, _ARRAYS)):
        return operation
    return lambda *given: chosen(*(one.astype(dtype) if isinstance(one, _ARRAYS) else one for one in given))


def _computed(
    call: TapedCall, operation: Operation, arguments: Sequence[object], expected: Sequence[Tensor]
) -> tuple[Any, Operation]:
    """Return results of the shapes and types that torch's have, and the operation that makes them."""
    dtype = _TYPES[expected[0].dtype]
    with np.errstate(all="ignore"):
        values = operation(*arguments)
        if not call.several and values.dtype != dtype:
            operation = _cast(operation, dtype)
            values = operation(*arguments)
    for tensor, value in zip(expected, values if call.several else [values], strict=True):
        if value.shape != tensor.shape or value.dtype != dtype:
            raise RefusalError(f"{value.dtype} {value.shape}")
    return values, operation


def _cast(operation: Operation, dtype: np.dtype[Any]) -> Operation:
    return lambda *arguments: operation(*arguments).astype(dtype)


def _drawing(call: TapedCall) -> Operation:
    """Return torch's draw."""
    draw = partial(getattr(torch, call.name), *call.args, **call.options)
    return lambda: draw().numpy()


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
        made = range(step.into.start, step.into.stop) if isinstance(step.into, slice) else [step.into]
        if step.draws or not wanted.isdisjoint(made):
            for one in step.read:
                wanted.update(one if isinstance(one, tuple) else [one])
            kept.append(step)
    return kept[::-1]
