"""Settings of the process for all networks in it: threads, memory, matrix products, torch's modes."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor, nn

from algorithm.core.system.processes import keep_freed_memory

Precision = Literal["highest", "high", "medium"]
"""Values of :func:`torch.set_float32_matmul_precision`."""

LARGE = 2**16
"""Elements of a weight matrix from which oneDNN pays: its calls take longer to begin."""

_ROUNDS, _STEPS = 5, 10
_WORTH = 1.3  # gain in speed from which another library is taken; measured ones were 1.05 and 2.1


def set_up_process(threads: int) -> None:
    """Set the number of torch's threads, and keep freed memory in the process for reuse."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def set_matmul_precision(
    wanted: Literal["auto"] | Precision, modules: Iterable[nn.Module], device: torch.device
) -> Precision:
    """Set the precision of matrix products; return it.

    ``auto`` chooses ``medium`` for large networks on a CPU where that is as exact as ``highest`` and clearly
    faster, else ``highest``. With ``medium`` products are computed by oneDNN, which rounds to bfloat16 if the
    CPU has units for it (AMX), and otherwise not; it is the faster library on some CPUs.

    modules: networks that will be used
    """
    if wanted == "auto":
        sizes = (p.numel() for module in modules for p in module.parameters() if p.dim() == 2)
        large = device.type == "cpu" and max(sizes, default=0) >= LARGE
        pays = large and medium_is_single() and _medium_gain() >= _WORTH
        wanted = "medium" if pays else "highest"
    torch.set_float32_matmul_precision(wanted)
    return wanted


@cache
def medium_is_single() -> bool:
    """Return whether this CPU's products in ``medium`` are as exact as in ``highest``, by a test.

    It multiplies positive numbers in the sizes of usual layers, as forward and backward passes do. A relative
    error beyond 1e-5 means that factors were rounded; rounding one to bfloat16 has an error of 4e-3.
    """
    before, generator = torch.get_float32_matmul_precision(), torch.Generator().manual_seed(0)
    torch.set_float32_matmul_precision("medium")
    try:
        return all(
            _error(torch.rand(256, inner, generator=generator), torch.rand(inner, outer, generator=generator))
            < 1e-5
            for inner, outer in ((256, 256), (23, 256), (256, 12), (512, 512))
        )
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def _medium_gain() -> float:
    """Return the speed of this CPU's products in ``medium`` relative to ``highest``."""
    before, x, best = torch.get_float32_matmul_precision(), torch.ones(256, 256), dict[str, float]()
    try:
        for _ in range(_ROUNDS * _STEPS):
            for precision in ("highest", "medium"):
                torch.set_float32_matmul_precision(precision)
                begin = perf_counter()
                x @ x
                best[precision] = min(best.get(precision, math.inf), perf_counter() - begin)
    finally:
        torch.set_float32_matmul_precision(before)
    return best["highest"] / best["medium"]


def _error(x: Tensor, y: Tensor) -> float:
    """Return the largest relative error of the products x y, yᵀ xᵀ and xᵀ x in single precision."""
    pairs = (x, y), (y.t(), x.t()), (x.t(), x)
    return max(float(((a @ b).double() / (a.double() @ b.double()) - 1.0).abs().max()) for a, b in pairs)


_USUAL = True, torch.float32, torch.device("cpu")


class _OwnModes:
    """Torch's modes in which all code here computes: gradients on, float32 and the CPU by default.

    The modes of the surrounding program are restored afterwards. Inference mode can only be left by a
    context.
    """

    def enter(self) -> None:
        """Set the modes, and remember the program's if they differ."""
        probe = torch.empty(0)  # much faster than asking torch for its default device
        theirs, inference = (torch.is_grad_enabled(), probe.dtype, probe.device), probe.is_inference()
        self._theirs = None if theirs == _USUAL and not inference else theirs
        if self._theirs is not None:
            self._guard = torch.inference_mode(False) if inference else nullcontext()
            self._guard.__enter__()
            self._change(*_USUAL)

    def leave(self) -> None:
        """Restore the program's modes."""
        if self._theirs is not None:
            self._change(*self._theirs)
            self._guard.__exit__(None, None, None)

    def _change(self, grad: bool, dtype: torch.dtype, device: torch.device) -> None:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        if self._theirs and self._theirs[2] != _USUAL[2]:
            torch.set_default_device(None if device == _USUAL[2] else device)  # "cpu" would cost every call


class _Thread(threading.local):
    modes: _OwnModes | None = None  # entered in this thread


_THREAD = _Thread()


@contextmanager
def own_modes() -> Iterator[None]:
    """Set our modes of torch inside the context, whatever modes the surrounding program has set."""
    if _THREAD.modes is not None:
        yield
        return
    modes = _THREAD.modes = _OwnModes()
    modes.enter()
    try:
        yield
    finally:
        modes.leave()
        _THREAD.modes = None


@contextmanager
def others_modes() -> Iterator[None]:
    """Restore the program's modes inside the context, for code of others.

    Modes that such code sets are in force in the next such context, and not in ours.
    """
    modes = _THREAD.modes
    if modes is None:
        yield
        return
    modes.leave()
    _THREAD.modes = None
    try:
        yield
    finally:
        modes.enter()
        _THREAD.modes = modes
