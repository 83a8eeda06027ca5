"""Torch functions as numpy programs, for small networks and few rows.

An operation of torch takes several microseconds before it computes anything. One of numpy takes one, and a
policy of two small layers has forty of them for each step of the environment. So what a function does is
traced once (:mod:`~algorithm.nn.acting.tracing`), and from then on numpy does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only
from typing_extensions import override

from algorithm.nn.acting.operations import ELEMENTWISE, KNOWN, SHAPED, Numbers, Operation
from algorithm.nn.acting.tracing import Function, Ref, RefusalError, Tape, TapedCall, trace

_ARRAYS = np.ndarray | np.generic
_Program = Callable[..., Sequence[Numbers]]

MANY = 1024
"""Rows from which on torch is faster: then its larger products outweigh what each operation costs."""


class NumpyPrograms:
    """A torch function of arrays, computed by numpy where that is certain to be the same.

    Parameters, buffers and other tensors that the function reads are read anew by each call; they must keep
    their storage. For each key it is decided once, at its first call, whether numpy computes the function;
    that call is computed both ways. :meth:`renew` has everything decided anew.

    function: of tensors, without random numbers; it is copied with pickle
    device:   of its tensors. Elsewhere than on the CPU everything is torch's.
    """

    def __init__(self, function: Function, device: torch.device) -> None:
        self._function, self._device = function, device
        self._programs: dict[Hashable, _Program | str] = {}

    @override
    def __getstate__(self) -> dict[str, object]:
        """Return all but the programs, which are decided anew where it is unpickled."""
        return {**vars(self), "_programs": {}}

    def __call__(self, key: Hashable, arrays: Sequence[Numbers]) -> Sequence[Numbers]:
        """Return the function's results, as arrays.

        key: of all that the shapes and types of ``arrays`` depend on
        """
        if key not in self._programs:
            self._programs[key] = self.decide(arrays)
        program = self._programs[key]
        return self._computed(arrays) if isinstance(program, str) else program(*arrays)

    def renew(self) -> None:
        """Decide anew at the next call of each key, with attributes as they will be then."""
        self._programs.clear()

    def decide(self, arrays: Sequence[Numbers]) -> _Program | str:
        """Return a program, or why there is none; then torch computes the function itself."""
        if self._device.type != "cpu":
            return f"on {self._device.type}"
        if len(arrays[0]) >= MANY:
            return f"{len(arrays[0]):,} rows"
        try:
            program = _written(trace(self._function, _tensors(arrays), KNOWN), len(arrays))
            pairs = zip(program(*arrays), self._computed(arrays), strict=True)
            # float32, in another order of sums
            alike = all(np.allclose(*pair, rtol=1e-4, atol=1e-5, equal_nan=True) for pair in pairs)
        except Exception as error:  # of whatever is in the function
            return str(error).partition("\n")[0] or type(error).__name__
        return program if alike else "numpy's result is another one"

    @torch.inference_mode()
    def _computed(self, arrays: Sequence[Numbers]) -> list[Numbers]:
        tensors = [tensor.to(self._device) for tensor in _tensors(arrays)]
        return [result.cpu().numpy() for result in self._function(tensors)]


def _tensors(arrays: Sequence[Numbers]) -> list[Tensor]:
    return [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays]


@np.errstate(all="ignore")  # torch says nothing of log 0
def _written(tape: Tape, num_inputs: int) -> _Program:
    """Return a function of the inputs that does in numpy what was traced, written line by line.

    Tensors that the function holds are arrays in the same memory, so writing into a parameter counts.
    Raises RefusalError, or whatever torch raises, where numpy does not do what torch does.
    """
    arrays = [tensor.detach().numpy() for tensor in tape.tensors]
    scope: dict[str, Any] = {f"x{place}": array for place, array in enumerate(arrays)}
    scope |= {"own": np.array, "inf": np.inf, "nan": np.nan, "torch": torch, "device": torch.device}
    lines = [f"def program({', '.join(repr(Ref(place)) for place in range(num_inputs))}):"]
    for number, call in enumerate(tape.calls):
        try:
            scope[f"f{number}"], args = _operation(call, arrays)
        except Exception as error:
            raise RefusalError(f"forward uses {call.name} in another way than numpy") from error
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in call.options.items())]
        lines.append(f"    {call.made} = f{number}({', '.join(given)})")
    # The caller may write into results.
    lines.append(f"    return [{', '.join(f'own({result})' for result in tape.results)}]")
    exec("\n".join(lines), scope)
    program: _Program = np.errstate(all="ignore")(scope["program"])
    return program


def _operation(call: TapedCall, arrays: Sequence[Numbers]) -> tuple[Operation, Sequence[object]]:
    """Return numpy's operation, with results of the shapes and types that torch's have, and its arguments.

    Raises RefusalError, or what the operation raises, if there is none.
    """
    expected = [arrays[place] for place in tree_leaves(call.made)]
    args = (call.args[0], expected[0].shape) if call.name in SHAPED else call.args
    args = tuple(tuple(one) if isinstance(one, list) else one for one in args)
    given, options = tree_map_only(Ref, arrays.__getitem__, (args, call.options))
    operation, dtype = KNOWN[call.name], expected[0].dtype
    if call.name in ELEMENTWISE:
        operation = _in_type(operation, given, dtype)
    found = tree_leaves(operation(*given, **options))
    if [one.shape for one in found] != [one.shape for one in expected]:
        raise RefusalError("another shape")
    if all(one.dtype == dtype for one in found):
        return operation, args
    if call.name in SHAPED:
        raise RefusalError("the bits of a number")
    return lambda *given, **options: operation(*given, **options).astype(dtype), args


def _in_type(operation: Operation, given: Sequence[Any], dtype: np.dtype[Any]) -> Operation:
    """Return the operation on arguments of the type that torch computes in, which is that of its result."""
    found = {one.dtype for one in given if isinstance(one, _ARRAYS)}
    if dtype.kind == "b" and len(found) > 1 and any(one.kind == "f" for one in found):
        raise RefusalError("floats are compared with numbers of another type")
    if dtype.kind == "b" or found <= {dtype}:
        return operation
    return lambda *given, **options: operation(
        *(one.astype(dtype) if isinstance(one, _ARRAYS) else one for one in given), **options
    )
