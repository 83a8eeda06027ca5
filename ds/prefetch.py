"""Batches that are read ahead by threads, so that they are ready when the learner needs them.

The keys are ``batch_queue_size`` and ``batch_generator_process_num``. What differs from a plain replay: a
batch is drawn up to ``ahead`` updates before it is used, so its priorities and newest rows are older by as
much. ``use_replay_buffer: false`` promises each window once and in order; what waits drawn would be lost with
a stop, so the learner has a plain replay then.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from typing_extensions import override

from algorithm.core.data import Int, SequenceBatch, StepBatch, UpdateResult
from algorithm.core.spec import AgentSpec
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import FifoSampler, Sampler
from algorithm.replay.saving import ReplayState


class PrefetchedReplay(ReplayBuffer):
    """Replay with a queue of batches that threads are reading, or have read. Used by one thread.

    Anchors are drawn by the caller of :meth:`sample`; their windows, the long part, are read by ``threads``.
    Nothing but rows is read there, so only what changes rows waits until no window is being read.

    ahead: batches in the queue
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        threads: ThreadPoolExecutor,
        ahead: int,
        **rest: Any,  # noqa: ANN401 - what ReplayBuffer takes
    ) -> None:
        super().__init__(spec, **rest)
        self._threads = threads
        self._ahead = ahead
        self._queue: deque[Future[SequenceBatch]] = deque()

    @override
    def sample(self) -> SequenceBatch | None:
        """Return the oldest batch of the queue, or None when a plain replay would give none.

        Raises what a thread has raised, and RuntimeError once the threads have ended.
        """
        if self.ready < self.batch_size:
            return None
        while len(self._queue) <= self._ahead:
            self._queue.append(self._threads.submit(self._read, *self._draw()))
        return self._queue.popleft().result()

    def _await_reads(self) -> None:
        """Wait until no window is being read; costs next to nothing where all have been."""
        wait([batch for batch in self._queue if not batch.done()])

    @override
    def add_steps(self, steps: StepBatch) -> Int:
        self._await_reads()
        return super().add_steps(steps)

    @override
    def close(self, stream: int) -> None:
        self._await_reads()
        super().close(stream)

    @override
    def refresh_carry(self, result: UpdateResult) -> None:
        self._await_reads()
        super().refresh_carry(result)

    @override
    def load_state(self, state: ReplayState) -> None:
        """Continue from ``state``; what is in the queue was drawn from other rows."""
        self._await_reads()
        self._queue.clear()
        super().load_state(state)


def prefetched_replay(
    spec: AgentSpec,
    *,
    sampler: Sampler,
    threads: ThreadPoolExecutor,
    ahead: int,
    **sizes: Any,  # noqa: ANN401 - what ReplayBuffer takes
) -> ReplayBuffer:
    """Return an empty replay of a learner: a plain one for fresh windows, see above.

    threads: of all its replays; ahead: see :class:`PrefetchedReplay`
    """
    if isinstance(sampler, FifoSampler):
        return ReplayBuffer(spec, sampler=sampler, **sizes)
    return PrefetchedReplay(spec, threads=threads, ahead=ahead, sampler=sampler, **sizes)
