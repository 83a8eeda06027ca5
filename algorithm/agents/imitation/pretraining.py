"""Learning from demonstrations before the first environment step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

_BETWEEN_STOPS = 100  # steps of cloning


class Pretraining:
    """Steps of cloning, then updates on demonstrations, as many as the configuration asks for in all.

    clone:  takes so many steps, and returns their metrics
    cloned: called once they are complete
    update: makes one update
    steps, updates: of each, in all; the attributes are those so far
    """

    def __init__(
        self,
        *,
        clone: Callable[[int], Mapping[str, Tensor]],
        cloned: Callable[[], None],
        update: Callable[[], object],
        steps: int,
        updates: int,
    ) -> None:
        self._clone, self._cloned, self._update = clone, cloned, update
        self._steps, self._updates = steps, updates
        self.steps = self.updates = 0

    def run(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Make what is left, until ``stop``; return the metrics of the last cloning, if there was any."""
        found: Mapping[str, Tensor] = {}
        while self.steps < self._steps and not stop():
            n = min(self._steps - self.steps, _BETWEEN_STOPS)
            found = self._clone(n)
            self.steps += n
            if self.steps == self._steps:
                self._cloned()
        while self.steps >= self._steps and self.updates < self._updates and not stop():
            self._update()
            self.updates += 1
        return {name: float(value) for name, value in found.items()}

    def state(self) -> dict[str, Any]:
        """Return the numbers so far, as JSON."""
        return {"steps": self.steps, "updates": self.updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned."""
        self.steps, self.updates = state["steps"], state["updates"]
