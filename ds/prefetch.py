"""Batches drawn ahead by threads, so that they are ready when the learner needs them.

The keys are ``batch_queue_size`` and ``batch_generator_process_num``. What differs from a plain replay: a
batch is drawn up to ``ahead`` updates before it is used, so its priorities and newest rows are older by as
much. ``use_replay_buffer: false`` promises each window once and in order; what waits drawn would be lost with
a stop, so there :class:`Prefetching` makes a plain replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition, RLock, Thread
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from typing_extensions import override

from algorithm.core.data import Int, Segment, SequenceBatch, StepBatch, UpdateResult
from algorithm.core.spec import AgentSpec
from algorithm.replay.buffer import ReplayBuffer, ReplayState
from algorithm.replay.records import SegmentFile
from algorithm.replay.samplers import FifoSampler, Sampler

P = ParamSpec("P")
R = TypeVar("R")


def _guarded(
    method: Callable[Concatenate[ReplayBuffer, P], R],
) -> Callable[Concatenate[PrefetchedReplay, P], R]:
    """Return the same method under the replay's lock."""

    def call(self: PrefetchedReplay, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    call.__doc__ = method.__doc__
    return call


class PrefetchedReplay(ReplayBuffer):
    """Replay whose batches are drawn ahead by threads. Every method may be called from any thread.

    One lock guards all state. A thread draws anchors under it and reads their windows, the long part, without
    it. Changes of rows wait until no window is being read, and no new read begins meanwhile.

    The threads begin with the first batch that is asked for, so that none is drawn during the warm-up. They
    run until :meth:`stop`.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        threads: int,
        ahead: int,
        sampler: Sampler,
        **sizes: Any,  # noqa: ANN401 - what ReplayBuffer takes
    ) -> None:
        """Make an empty replay.

        threads: that draw; more than one helps where reading windows takes longer than an update.
        ahead:   batches that wait or are being made, at most.
        sampler, sizes: see :class:`ReplayBuffer`.
        Raises ValueError for numbers below 1, for a sampler that draws each window only once, and as
        :class:`ReplayBuffer` does.
        """
        if threads < 1 or ahead < 1:
            raise ValueError(f"replay: threads and ahead must be at least 1, got {threads} and {ahead}")
        if isinstance(sampler, FifoSampler):
            raise ValueError("replay: fresh windows cannot be drawn ahead, those that wait could be lost")
        super().__init__(spec, sampler=sampler, **sizes)
        self._ahead = ahead
        self._lock = RLock()
        self._work = Condition(self._lock)  # batches are missing
        self._made = Condition(self._lock)  # a batch waits, or none will come
        self._idle = Condition(self._lock)  # no window is being read
        self._batches: deque[SequenceBatch] = deque()
        self._reading = 0  # batches whose windows are being read
        self._changing = 0  # callers that wait for ``_idle``
        self._failure: BaseException | None = None
        self._stopped = False
        self._threads = [Thread(target=self._run, name=f"prefetch-{i}", daemon=True) for i in range(threads)]
        self._started = False

    # ---- what reads or writes anything but rows

    __len__ = _guarded(ReplayBuffer.__len__)
    windows = _guarded(ReplayBuffer.windows)
    chains = _guarded(ReplayBuffer.chains)
    alive = _guarded(ReplayBuffer.alive)
    anneal = _guarded(ReplayBuffer.anneal)
    spread = _guarded(ReplayBuffer.spread)
    carries = _guarded(ReplayBuffer.carries)
    unsaved = _guarded(ReplayBuffer.unsaved)
    mark_saved = _guarded(ReplayBuffer.mark_saved)
    forget_saved = _guarded(ReplayBuffer.forget_saved)
    close_all = _guarded(ReplayBuffer.close_all)

    @property
    @override
    def next_id(self) -> int:
        """Id of the next row."""
        with self._lock:
            return super().next_id

    @property
    @override
    def num_transitions(self) -> int:
        """Number of stored transitions."""
        with self._lock:
            return super().num_transitions

    @property
    @override
    def ready(self) -> int:
        """Number of windows that wait to be used; prepared batches make no difference."""
        with self._lock:
            return super().ready

    @property
    @override
    def saved_files(self) -> tuple[SegmentFile, ...]:
        """Files of the rows that are saved."""
        with self._lock:
            return super().saved_files

    @override
    def state(self) -> ReplayState:
        """Return all but the batches that wait; a replay restored from it draws others instead.

        So the draws, and the sampler's beta, are at most ``ahead`` batches further than what was handed out.
        The threads may go on while it is read: they change neither rows nor priorities.
        """
        with self._lock:
            return super().state()

    @override
    def feedback(self, result: UpdateResult) -> None:
        """Take priorities from an update. Waits for the device outside of the lock."""
        priority, ids = result.priority.detach().cpu(), result.ids.cpu()  # waits for the device, not locked
        fetched = replace(result, priority=priority, ids=ids, anchor=result.anchor.cpu())
        with self._lock:
            super().feedback(fetched)

    # ---- what changes rows

    @override
    def add(self, segment: Segment) -> Int:
        """Store a segment; return the ids of its rows."""
        with self._alone():
            return super().add(segment)

    @override
    def add_steps(self, steps: StepBatch) -> Int:
        """Store a step of several streams; return the ids of its transitions."""
        with self._alone():
            return super().add_steps(steps)

    @override
    def close(self, stream: int) -> None:
        """End a stream's episode; the threads are ended by :meth:`stop`."""
        with self._alone():
            super().close(stream)

    @override
    def refresh_carry(self, result: UpdateResult) -> None:
        """Replace stored carries by those of an update."""
        carry = None if result.carry is None else result.carry.detach().cpu()
        fetched = replace(result, ids=result.ids.cpu(), carry=carry)
        with self._alone():
            super().refresh_carry(fetched)

    @override
    def load_state(self, state: ReplayState) -> None:
        """Continue from ``state``. Prepared batches are dropped, for they were drawn from other rows."""
        with self._alone():
            self._batches.clear()
            super().load_state(state)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock while no window is being read."""
        with self._lock:
            self._changing += 1
            try:
                self._idle.wait_for(lambda: not self._reading)
            finally:
                self._changing -= 1
            try:
                yield
            finally:
                self._wake()

    # ---- batches

    @override
    def sample(self) -> SequenceBatch | None:
        """Return the next batch, or None when a plain replay would give none; may wait for one.

        Raises what a thread has raised, and RuntimeError after :meth:`stop`.
        """
        with self._lock:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._stopped:
                    raise RuntimeError("replay: its threads have been stopped, there are no batches any more")
                if self.ready < self.batch_size:
                    return None
                self._start()
                if self._batches:
                    batch = self._batches.popleft()
                    self._wake()
                    return batch
                self._made.wait()

    def stop(self) -> None:
        """End the threads and discard batches that wait; ``sample`` raises from now on."""
        with self._lock:
            self._stopped = True
            self._batches.clear()
            self._wake()
        if self._started:
            for thread in self._threads:
                thread.join()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()

    @property
    def _over(self) -> bool:
        return self._stopped or self._failure is not None

    @property
    def _missing(self) -> int:
        """Batches that may be begun now."""
        if not self._started or self._changing or self.ready < self.batch_size:
            return 0
        return self._ahead - len(self._batches) - self._reading

    def _wake(self) -> None:
        """Notify waiters whose condition holds. Few are woken: each costs a switch of threads."""
        self._work.notify(len(self._threads) if self._over else self._missing)
        if self._batches or self._over or self.ready < self.batch_size:
            self._made.notify_all()
        if not self._reading:
            self._idle.notify_all()

    def _run(self) -> None:
        """Make batches until stopped; the body of a thread."""
        try:
            while self._make():
                pass
        except BaseException as error:  # raised in the thread that waits for batches
            with self._lock:
                self._failure = error
                self._wake()

    def _make(self) -> bool:
        """Wait until a batch is missing and make it; False once it is over."""
        with self._lock:
            self._work.wait_for(lambda: self._over or self._missing)
            if self._over:
                return False
            drawn = self._draw()
            self._reading += 1
        made: list[SequenceBatch] = []
        try:
            made.append(self._windows.read(*drawn))
        finally:
            with self._lock:
                self._reading -= 1
                self._batches.extend([] if self._over else made)
                self._wake()
        return True


class Prefetching:
    """Maker of a learner's replays that also ends their threads: ``with Prefetching(…) as make_replay``.

    threads, ahead: of each replay, see :class:`PrefetchedReplay`
    """

    def __init__(self, *, threads: int, ahead: int) -> None:
        self._threads, self._ahead = threads, ahead
        self._replays: list[PrefetchedReplay] = []

    def __call__(
        self,
        spec: AgentSpec,
        *,
        sampler: Sampler,
        **sizes: Any,  # noqa: ANN401 - what ReplayBuffer takes
    ) -> ReplayBuffer:
        """Make an empty replay: a plain one for fresh windows."""
        if isinstance(sampler, FifoSampler):
            return ReplayBuffer(spec, sampler=sampler, **sizes)
        replay = PrefetchedReplay(spec, threads=self._threads, ahead=self._ahead, sampler=sampler, **sizes)
        self._replays.append(replay)
        return replay

    def stop(self) -> None:
        """End the threads of all replays made here."""
        for replay in self._replays:
            replay.stop()

    def __enter__(self) -> Prefetching:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
