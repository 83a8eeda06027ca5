"""A look at what a function does beside its results."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (str, bytes, int, float, complex, set, frozenset)


class RefusalError(Exception):
    """Reason why a function is not a fixed list of operations."""


@contextmanager
def unchanged(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Raise RefusalError where an attribute of a module, or a global generator, is another one afterwards.

    Whatever is another one is put back.
    """
    memo = _inside(list(modules))  # deepcopy's: tensors and modules stay themselves
    found = [one for one in memo.values() if isinstance(one, nn.Module)]
    if any(one._forward_hooks or one._forward_pre_hooks for one in found):
        raise RefusalError("a module has hooks")
    before = [copy.deepcopy(vars(module), memo) for module in found]
    python, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    changed = []
    try:
        yield
    finally:
        now = random.getstate(), np.random.get_state(), torch.get_rng_state()
        drawn = not _same((python, numpys, torchs), now)
        random.setstate(python)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)
        for module, kept in zip(found, before, strict=True):
            if not _same(kept, vars(module)):
                changed.append(type(module).__name__)
                vars(module).clear()
                vars(module).update(kept)
    if drawn:
        raise RefusalError("forward draws random numbers of its own")
    if changed:
        raise RefusalError(f"forward changes attributes of {changed[0]}")


def _inside(value: object) -> dict[int, object]:
    """Return tensors and modules by their id, those too that hide in lists and the like."""
    found, left = dict[int, object](), [value]
    while left:
        one = left.pop()
        if id(one) in found:
            continue
        if isinstance(one, Tensor | nn.Module):
            found[id(one)] = one
        if isinstance(one, nn.Module):
            left += vars(one).values()
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return found


def _same(one: object, other: object) -> bool:
    """Return whether a value and what was a copy of it are alike, in all that they are made of."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict) and isinstance(other, dict):
        return _same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other if isinstance(one, _PLAIN) else _parts_same(one, other)


def _parts_same(one: object, other: object) -> bool:
    try:
        return _same(one.__reduce_ex__(4), other.__reduce_ex__(4))
    except Exception:  # it cannot be taken apart, or goes round in a circle
        return False
