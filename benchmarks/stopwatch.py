"""Where the time of a library goes, found by wrapping the methods it calls. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Any


class Stopwatch:
    """Seconds spent in methods, by a name for each.

    clock: tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Time every call of ``owner.method`` from now on."""
        call: Callable[..., Any] = getattr(owner, method)
        self._seconds[name] = 0.0

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = self._clock()
            try:
                return call(*args, **kwargs)
            finally:
                self._seconds[name] += self._clock() - begin

        setattr(owner, method, timed)

    def divide(self, total: float) -> dict[str, float]:
        """Seconds of each name and of ``other``; they sum to ``total``.

        ``sample`` happens within ``update`` and is taken out of it.
        """
        parts = dict(self._seconds)
        parts["update"] -= parts["sample"]
        return {**parts, "other": total - sum(parts.values())}
