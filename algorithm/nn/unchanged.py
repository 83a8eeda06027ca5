"""A look at what a function does beside its results."""

from __future__ import annotations

import io
import pickle
import random
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

_THEMSELVES = (Tensor, nn.Module, type, FunctionType, BuiltinFunctionType, ModuleType, weakref.ref)
"""Types of what is compared by identity, not by what it consists of."""


class RefusalError(Exception):
    """Reason why a function is not a fixed list of operations."""


class _Attributes(pickle.Pickler):
    """Attributes of modules, of those too that hide in lists, as bytes."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file, protocol=5)
        self._kept: dict[int, object] = {id(module): module for module in modules}
        self.modules = list(modules)
        self.saved = [self._bytes(module) for module in self.modules]  # the list grows meanwhile

    def _bytes(self, module: nn.Module) -> bytes:
        self._file.seek(0)
        self._file.truncate()
        self.clear_memo()
        self.dump(vars(module))
        return self._file.getvalue()

    @override
    def persistent_id(self, obj: object) -> int | None:
        """Return the identity of what is compared by it."""
        if not isinstance(obj, _THEMSELVES):
            return None
        if isinstance(obj, nn.Module) and id(obj) not in self._kept:
            self.modules.append(obj)
        self._kept[id(obj)] = obj
        return id(obj)

    def restore(self) -> list[nn.Module]:
        """Give the modules the attributes that they had; return those that have had others."""
        try:
            now = _Attributes(self.modules).saved
        except Exception:  # an attribute that cannot be compared is another one, too
            now = []
        changed = []
        for module, saved, other in zip_longest(self.modules, self.saved, now[: len(self.saved)]):
            if saved != other:
                reader = pickle.Unpickler(io.BytesIO(saved))
                reader.persistent_load = self._kept.__getitem__
                vars(module).clear()
                vars(module).update(reader.load())
                changed.append(module)
        return changed


def _generators() -> tuple[object, ...]:
    return random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().numpy().tobytes()


@contextmanager
def unchanged(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Raise RefusalError where an attribute of a module, or a global generator, is another one afterwards.

    Whatever is another one is put back.
    """
    before = _Attributes(modules)
    if any(one._forward_hooks or one._forward_pre_hooks for one in before.modules):
        raise RefusalError("a module has hooks")
    python, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    states = _generators()
    try:
        yield
    finally:
        drawn = _generators() != states
        random.setstate(python)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)
        changed = before.restore()
    if drawn:
        raise RefusalError("forward draws random numbers of its own")
    if changed:
        raise RefusalError(f"forward changes attributes of {type(changed[0]).__name__}")
