"""Actions, seeds and results of N sub-environments as arrays, in plain or shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from algorithm.core.spec import AgentSpec
from algorithm.core.steps import Array, Bool, Double, Float, Int


class StepBuffers:
    """Arrays of a step of N sub-environments; row i belongs to sub-environment i.

    The pool writes ``action``, ``seed`` and ``parameters``; the executor writes the rest.
    """

    def __init__(
        self,
        spec: AgentSpec,
        n: int,
        buffer: memoryview | None = None,
        *,
        parameters: int = 0,
        infos: int = 0,
    ) -> None:
        """Make the arrays.

        buffer: memory for them; allocated by default
        parameters, infos: how many numbers an episode has, as inputs and as results
        """
        columns = _columns(spec, n, parameters, infos)
        arrays: Any = np.zeros((), columns) if buffer is None else np.ndarray((), columns, buffer)
        self.action: Float = arrays["action"]  # [N, A] flat, in [-1, 1]
        self.seed: Int = arrays["seed"]  # [N] of the next reset
        self.parameters: Double = arrays["parameters"]  # [N, K] of the next reset
        self.infos: Double = arrays["infos"]  # [N, K] of the episode of the last step
        self.obs: dict[str, Array] = {name: arrays[f"obs/{name}"] for name in spec.obs.names}  # [N, ...]
        self.final: dict[str, Array] = {name: arrays[f"final/{name}"] for name in spec.obs.names}
        # [N, ΣN] choices allowed for the next action, and where the last episode ended. A row is valid once
        # `has_mask` is set; until then everything is allowed.
        self.action_mask: Bool = arrays["action_mask"]
        self.final_mask: Bool = arrays["final_mask"]
        self.has_mask: Bool = arrays["has_mask"]  # [N] the sub-environment has given a mask
        self.reward: Double = arrays["reward"]  # [N]
        self.terminated: Bool = arrays["terminated"]  # [N]
        self.truncated: Bool = arrays["truncated"]  # [N]
        self.executed: Float = arrays["executed"]  # [N, A] the actions done, where `replaced`
        self.replaced: Bool = arrays["replaced"]  # [N] another action was done than `action`
        self.by_person: Bool = arrays["by_person"]  # [N] a person has done it
        self.skipped: Bool = arrays["skipped"]  # [N] no step was taken
        self.repeated_steps: Int = arrays["repeated_steps"]  # [N] steps of the last repetition
        self.repeated_return: Double = arrays["repeated_return"]  # [N] sum of their rewards
        # time.monotonic() at the start of the current call into the sub-environment, 0 without one. All
        # processes share that clock, so the parent can detect a worker that hangs.
        self.call_started: Double = arrays["call_started"]

    def write_mask(self, i: int, mask: Bool | None) -> None:
        """Write the action mask of row i, [ΣN]; None allows everything."""
        if mask is not None:
            if not self.has_mask[i]:
                self.has_mask[i] = self.final_mask[i] = True
            self.action_mask[i] = mask
        elif self.has_mask[i]:
            self.action_mask[i] = True

    def write_executed(self, i: int, action: Float | None, *, by_person: bool) -> None:
        """Write the action [A] that row i has executed in place of ``action``; None: that one itself."""
        self.replaced[i], self.by_person[i] = action is not None, by_person
        if action is not None:
            self.executed[i] = action

    def store_final(self, i: int) -> None:
        """Copy row i of ``obs`` and ``action_mask`` to ``final`` and ``final_mask``.

        For the end of an episode, before the first observation of the next one overwrites the row.
        """
        for name, value in self.obs.items():
            self.final[name][i] = value[i]
        if self.has_mask[i]:
            self.final_mask[i] = self.action_mask[i]

    def mark_skipped(self, indices: Sequence[int]) -> None:
        """Mark these rows as having taken no step: reward 0, no end of an episode, no other action."""
        for i in indices:
            self.skipped[i] = True
            self.replaced[i] = False
            self.reward[i] = 0.0
            self.terminated[i] = self.truncated[i] = False


class SharedStepBuffers(StepBuffers):
    """Step buffers in memory that several processes share.

    The system's resource tracker removes the memory if the process that created it is killed.
    """

    def __init__(
        self, spec: AgentSpec, n: int, *, name: str | None = None, parameters: int = 0, infos: int = 0
    ) -> None:
        """name: of existing memory to open; without it memory is created, which :meth:`close` removes."""
        self._owns = name is None
        size = _columns(spec, n, parameters, infos).itemsize if self._owns else 0
        self._memory = SharedMemory(name, create=self._owns, size=size)
        super().__init__(spec, n, self._memory.buf, parameters=parameters, infos=infos)

    @property
    def name(self) -> str:
        """Name by which another process opens the memory."""
        return self._memory.name

    def close(self) -> None:
        """Release the memory; its creator removes it. The arrays are gone afterwards."""
        for key in [key for key in vars(self) if not key.startswith("_")]:
            delattr(self, key)
        self._memory.close()
        if self._owns:
            self._memory.unlink()


def _columns(spec: AgentSpec, n: int, parameters: int, infos: int) -> np.dtype[Any]:
    """Return a record of all arrays, whose fields are one array each."""
    seen = list(spec.obs.items())
    choices = (n, spec.action.discrete)
    columns = [
        ("action", (n, spec.action.size), "float32"),
        ("seed", (n,), "int64"),
        ("parameters", (n, parameters), "float64"),
        ("infos", (n, infos), "float64"),
        *((f"obs/{name}", (n, *shape), dtype) for name, shape, dtype in seen),
        *((f"final/{name}", (n, *shape), dtype) for name, shape, dtype in seen),
        ("action_mask", choices, "bool"),
        ("final_mask", choices, "bool"),
        ("has_mask", (n,), "bool"),
        ("reward", (n,), "float64"),
        ("terminated", (n,), "bool"),
        ("truncated", (n,), "bool"),
        ("executed", (n, spec.action.size), "float32"),
        ("replaced", (n,), "bool"),
        ("by_person", (n,), "bool"),
        ("skipped", (n,), "bool"),
        ("repeated_steps", (n,), "int64"),
        ("repeated_return", (n,), "float64"),
        ("call_started", (n,), "float64"),
    ]
    return np.dtype([(name, kind, shape) for name, shape, kind in columns], align=True)
