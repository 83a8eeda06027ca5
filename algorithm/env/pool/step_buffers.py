"""What N copies of an environment read and write, as arrays: in plain memory or shared between processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.data import Array, Bool, Float, Int
from algorithm.spec import AgentSpec

_ALIGNMENT = 64  # bytes: a column begins on a cache line of its own


class StepBuffers:
    """The arrays; row i belongs to copy i.

    Whoever owns the episodes writes ``action`` and ``seed``; whoever runs the copies writes the rest.
    """

    def __init__(self, spec: AgentSpec, n: int, buffer: memoryview | None = None) -> None:
        """buffer: memory of at least :meth:`num_bytes`; some of its own by default."""
        if buffer is None:
            buffer = memoryview(bytearray(self.num_bytes(spec, n)))
        arrays: dict[str, NDArray[Any]] = {}
        start = 0
        for name, shape, dtype in _columns(spec, n):
            arrays[name] = np.ndarray(shape, dtype, buffer, start)
            start += _padded(shape, dtype)
        self.action: Float = arrays["action"]  # [N, A] flat, in [-1, 1]
        self.seed: Int = arrays["seed"]  # [N] of the next reset
        self.obs: dict[str, Array] = {name: arrays[f"obs/{name}"] for name in spec.obs.names}  # [N, ...]
        self.final: dict[str, Array] = {name: arrays[f"final/{name}"] for name in spec.obs.names}
        # [N, ΣN] what is allowed where the agent acts next, and where its last episode ended. A row means
        # something only once its copy has given a mask; until then it allows everything.
        self.action_mask: Bool = arrays["action_mask"]
        self.final_mask: Bool = arrays["final_mask"]
        self.has_mask: Bool = arrays["has_mask"]  # [N] the copy has given a mask
        self.reward: Float = arrays["reward"]  # [N]
        self.terminated: Bool = arrays["terminated"]  # [N]
        self.truncated: Bool = arrays["truncated"]  # [N]
        self.skipped: Bool = arrays["skipped"]  # [N] the copy took no step
        self.repeated_steps: Int = arrays["repeated_steps"]  # [N] steps of the episode that was repeated last
        self.repeated_return: NDArray[np.float64] = arrays[
            "repeated_return"
        ]  # [N] sum of the rewards of these
        # time.monotonic() at which a call into the copy began, 0 where none is going on. That clock is the
        # same in all processes, so that a process can see another one hang.
        self.call_started: NDArray[np.float64] = arrays["call_started"]

    def write_mask(self, i: int, mask: Bool | None) -> None:
        """What is allowed in copy i, [ΣN]; None for everything."""
        if mask is not None:
            if not self.has_mask[i]:
                self.has_mask[i] = self.final_mask[i] = True
            self.action_mask[i] = mask
        elif self.has_mask[i]:
            self.action_mask[i] = True

    def store_final(self, i: int) -> None:
        """What copy i sees is the last observation of its episode: keep it while the next one begins."""
        for name, value in self.obs.items():
            self.final[name][i] = value[i]
        if self.has_mask[i]:
            self.final_mask[i] = self.action_mask[i]

    @staticmethod
    def num_bytes(spec: AgentSpec, n: int) -> int:
        """Memory that a buffers of ``n`` copies needs."""
        return sum(_padded(shape, dtype) for _, shape, dtype in _columns(spec, n))

    def mark_skipped(self, indices: Sequence[int]) -> None:
        """These copies took no step."""
        for i in indices:
            self.skipped[i] = True
            self.reward[i] = 0.0
            self.terminated[i] = self.truncated[i] = False


class SharedStepBuffers(StepBuffers):
    """A buffers that several processes see.

    The system's resource tracker removes the memory if the process that created it is killed.
    """

    def __init__(self, spec: AgentSpec, n: int, *, name: str | None = None) -> None:
        """name: of the memory to open; without it new memory is created, which :meth:`close` removes."""
        self._owns = name is None
        size = self.num_bytes(spec, n) if self._owns else 0
        self._memory = SharedMemory(name, create=self._owns, size=size)
        super().__init__(spec, n, self._memory.buf)

    @property
    def name(self) -> str:
        """What another process opens it by."""
        return self._memory.name

    def close(self) -> None:
        """Let go of the memory; who created it removes it. The arrays are gone then."""
        for key in [key for key in vars(self) if not key.startswith("_")]:
            delattr(self, key)
        self._memory.close()
        if self._owns:
            self._memory.unlink()


def _columns(spec: AgentSpec, n: int) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "action", (n, spec.action.size), "float32"
    yield "seed", (n,), "int64"
    for kind in ("obs", "final"):
        for name, shape, dtype in spec.obs.items():
            yield f"{kind}/{name}", (n, *shape), dtype
    for name in ("action_mask", "final_mask"):
        yield name, (n, spec.action.discrete), "bool"
    yield "has_mask", (n,), "bool"
    yield "reward", (n,), "float32"
    for name in ("terminated", "truncated", "skipped"):
        yield name, (n,), "bool"
    yield "repeated_steps", (n,), "int64"
    for name in ("repeated_return", "call_started"):
        yield name, (n,), "float64"


def _padded(shape: tuple[int, ...], dtype: str) -> int:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT
