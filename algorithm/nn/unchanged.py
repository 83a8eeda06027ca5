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
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    reasons = list[str]()
    try:
        yield
    finally:
        if not _same(states, (random.getstate(), np.random.get_state(), torch.get_rng_state())):
            reasons.append("forward draws random numbers of its own")
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        for module, kept in zip(found, before, strict=True):
            if not _same(kept, vars(module)):
                reasons.append(f"forward changes attributes of {type(module).__name__}")
                vars(module).clear()
                vars(module).update(kept)
    if reasons:
        raise RefusalError(reasons[0])


def _inside(value: object) -> dict[int, object]:
    """Return tensors and modules by their id, those too that hide in lists and the like."""
    seen, left = dict[int, object](), [value]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, list | tuple):
            left += one
        elif isinstance(one, dict | nn.Module):
            left += (one if isinstance(one, dict) else vars(one)).values()
    return {place: one for place, one in seen.items() if isinstance(one, Tensor | nn.Module)}


def _same(one: object, other: object) -> bool:
    """Return whether a value and what was a copy of it are alike, in all that they are made of."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, _PLAIN):
        return one == other
    try:
        return _same(*(list(x.items()) if isinstance(x, dict) else x.__reduce_ex__(4) for x in (one, other)))
    except Exception:  # it cannot be taken apart, or goes round in a circle
        return False
