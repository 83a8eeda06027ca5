"""Samplers of transitions and their weights: prioritised, uniform, or each transition once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from algorithm.core.data import Bool, Double, Float, Int
from algorithm.replay.layout import ArrayChunks
from algorithm.replay.storage import FLAG_BITS, NEXT, TERMINATED, TRUNCATED, Storage
from algorithm.replay.sumtree import SumTree

MAX_YOUNG = 1024  # stored arrays after which they are processed, even without a call

SamplerState = tuple[dict[str, ArrayChunks], dict[str, float | None]]


class Sampler:
    """Sampler of transitions of one storage. This base class draws uniformly, with weights of 1.

    storage: rows of its replay; a transition's slot is its id modulo ``storage.capacity``
    """

    storage: Storage

    def attach(self, storage: Storage, further: int) -> None:
        """Attach to this storage; called once, by the buffer that owns both.

        further: transitions of a window beyond its anchor, T + n − 2.
        """
        self.storage = storage

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def add(self, ids: Int, heads: Int) -> None:
        """Add the transitions ``ids`` [L], and ``heads`` [n], the newest rows of their n streams.

        Rows are overwritten only in slots of ``ids`` and ``heads``.
        """

    @property
    def ready(self) -> int:
        """Number of transitions that may be drawn now."""
        return self.storage.num_transitions

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """Draw slots [n] of transitions, and their weights [n] in (0, 1]; at least one must be ready.

        Here each transition has the same probability, independently of the other draws; rows without an
        action are rejected.
        """
        slots = rng.integers(len(self.storage), size=n)
        rejected = np.flatnonzero(~self.storage.is_transition(slots))
        while rejected.size:
            slots[rejected] = rng.integers(len(self.storage), size=rejected.size)
            rejected = rejected[~self.storage.is_transition(slots[rejected])]
        return slots, np.ones(n, np.float32)

    def feedback(self, slots: Int, td: Float) -> None:
        """Process finite TD errors [n] of the transitions in ``slots`` [n]; of duplicates the last counts."""

    def anneal(self, done: float) -> None:
        """Set the finished share of the run, ``done`` from 0 to 1; more counts as 1."""

    @property
    def nbytes(self) -> int:
        """Bytes that the sampler has reserved."""
        return 0

    def state(self) -> SamplerState:
        """Return arrays, those over rows ordered by id, and scalars; to be read before the replay changes."""
        return {}, {}

    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """Restore the result of ``state``, after the storage has been loaded.

        shift: number by which the storage's ids are less than those that were saved

        Raises ValueError for data that do not fit the storage; the sampler is then unusable.
        """


class UniformSampler(Sampler):
    """Uniform draw of the stored transitions, weight 1."""


class PrioritizedSampler(Sampler):
    """Prioritised experience replay, proportional variant (Schaul et al. 2016, arXiv 1511.05952).

    P(i) = p_i / Σ p with p = clip(|td|, td_error_min, td_error_max)^alpha; drawn in strata of equal mass. The
    weight is (p_i / min p)^(−beta), the minimum over the batch.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.9,
        beta: float = 0.4,
        beta_increment: float = 0.0,
        td_error_min: float = 0.01,
        td_error_max: float = 1.0,
    ) -> None:
        """Set the influence of errors on the draw.

        alpha: 0 draws uniformly, 1 in proportion to the error; usual 0.6 to 0.9.
        beta: share of the bias that the weights correct, 1 all of it. It grows to 1, linearly over the run by
            :meth:`anneal`, or by ``beta_increment`` at every sampling.
        td_error_min: lower bound, for transitions without error; td_error_max: upper bound, for outliers.
        """
        self.alpha = alpha
        self.beta = self._first_beta = beta
        self.beta_increment = beta_increment
        self.td_error_min = td_error_min
        self.td_error_max = td_error_max
        self._largest: float | None = None  # of the priorities from feedback so far

    @override
    def __repr__(self) -> str:
        return f"PrioritizedSampler(alpha={self.alpha:g}, beta={self.beta:g})"

    @override
    def attach(self, storage: Storage, further: int) -> None:
        super().attach(storage, further)
        self.tree = SumTree(storage.capacity)  # priorities by slot; 0 where a slot holds no transition

    def priority(self, td: Float) -> Double:
        """Return the priorities p [n] of TD errors [n], in float64."""
        error = np.absolute(td, dtype=np.float64)
        clipped = np.minimum(np.maximum(error, self.td_error_min), self.td_error_max)
        return clipped**self.alpha

    @override
    def add(self, ids: Int, heads: Int) -> None:
        """Set the priorities of new transitions to the largest one from feedback so far."""
        values = np.zeros(len(ids) + len(heads))
        values[: len(ids)] = self.td_error_max**self.alpha if self._largest is None else self._largest
        self.tree.update(np.concatenate((ids, heads)) % self.storage.capacity, values)

    @override
    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """Draw slots [n] and weights [n] by priority; uniformly where every priority is 0."""
        if self.tree.total > 0.0:
            slots, priority = self.tree.sample(n, rng)
            weight = ((priority.min() / priority) ** self.beta).astype(np.float32)
        else:
            slots, weight = super().sample(n, rng)
        self.beta = min(1.0, self.beta + self.beta_increment)
        return slots, weight

    @override
    def feedback(self, slots: Int, td: Float) -> None:
        """Set the priorities of the transitions in ``slots`` [n] from TD errors [n]."""
        priority = self.priority(td)
        self.tree.update(slots, priority)
        self._largest = max(self._largest or 0.0, float(priority.max(initial=0.0)))

    @override
    def anneal(self, done: float) -> None:
        """Set beta from ``done`` alone (arXiv 1511.05952, section 3.4)."""
        self.beta = self._first_beta + (1.0 - self._first_beta) * min(1.0, done)

    @property
    @override
    def nbytes(self) -> int:
        """Bytes of the priorities."""
        return self.tree.nbytes

    @override
    def state(self) -> SamplerState:
        """Return the priorities of the living rows, beta and the largest priority from feedback."""
        leaves = self.storage.in_order(self.tree.leaves)
        return {"priority": leaves}, {"beta": self.beta, "largest": self._largest}

    @override
    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """Restore priorities and beta. Raises ValueError if they do not fit the storage."""
        priority, beta = arrays["priority"], scalars["beta"]
        if beta is None or priority.shape != (len(self.storage),) or priority.dtype != np.float64:
            raise ValueError(
                f"replay state: {priority.shape} priorities for {len(self.storage)} rows, beta {beta}"
            )
        self.tree.load(self.storage.places(priority))
        self.beta, self._largest = beta, scalars["largest"]


class FifoSampler(Sampler):
    """Sampler that draws each transition once, oldest first, with weight 1.

    A transition that is overwritten before it was drawn is lost. It is ready when the T + n − 2 transitions
    after it exist, or when its chain has ended before: a window of T learned positions and n steps that
    begins with it needs as many. The order of age is that of ids.
    """

    def __init__(self) -> None:
        self._ready: Int = np.empty(0, np.int64)  # ids, ascending
        self._young: list[Int] = []  # ids whose steps may still be missing

    @override
    def attach(self, storage: Storage, further: int) -> None:
        super().attach(storage, further)
        self._further = further

    @override
    def add(self, ids: Int, heads: Int) -> None:
        """Add new transitions to the young ones, whose following steps may still be missing."""
        self._young.append(ids)
        if len(self._young) >= MAX_YOUNG:
            self._update_ready()

    @property
    @override
    def ready(self) -> int:
        """Number of transitions that are ready and have not been drawn."""
        self._update_ready()
        return len(self._ready)

    @override
    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """Draw the slots [n] of the oldest ready transitions, weights 1; ValueError for fewer than n."""
        if n > self.ready:
            raise ValueError(f"fresh windows: {n} were asked for, {self.ready} are ready")
        drawn, self._ready = self._ready[:n], self._ready[n:]
        return drawn % self.storage.capacity, np.ones(n, np.float32)

    @property
    @override
    def nbytes(self) -> int:
        """Bytes of the stored ids, usually about a batch of them; nothing is reserved."""
        return self._ready.nbytes + sum(ids.nbytes for ids in self._young)

    @override
    def state(self) -> SamplerState:
        """Return the ids of transitions that have not been drawn, ascending."""
        self._update_ready()
        return {"waiting": ArrayChunks.of(np.sort(np.concatenate([self._ready, *self._young])))}, {}

    @override
    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """Restore the stored ids; those that were ready are ready again."""
        storage = self.storage
        chunks = (chunk.copy() for chunk in arrays["waiting"].chunks)
        waiting: Int = np.concatenate([np.empty(0, np.int64), *chunks]) - shift
        waiting = waiting[waiting >= storage.oldest]
        if not ((waiting < storage.next_id) & storage.is_transition(waiting % storage.capacity)).all():
            raise ValueError(f"replay state: not all of the {waiting.size} waiting transitions are stored")
        self._ready, self._young = np.empty(0, np.int64), [waiting]

    def _update_ready(self) -> None:
        """Move ids that have become ready from the young to the ready, and drop overwritten ones."""
        oldest = self.storage.next_id - self.storage.capacity
        if self._ready.size and self._ready[0] < oldest:
            self._ready = self._ready[self._ready.searchsorted(oldest) :]
        if not self._young:
            return
        young = np.concatenate(self._young)
        young = young[young >= oldest]
        ready = self._has_its_steps(young)
        self._young = [] if ready.all() else [young[~ready]]
        if ready.any():
            self._ready = np.sort(np.concatenate([self._ready, young[ready]]), kind="stable")

    def _has_its_steps(self, ids: Int) -> Bool:
        """Return the mask of the transitions ``ids`` [n] that are ready, by the links from each."""
        links, capacity = self.storage.links, self.storage.capacity
        here = ids
        forward = links[here % capacity, NEXT]
        ended = (forward & (TERMINATED | TRUNCATED)) != 0
        for _ in range(self._further):
            here = here + (forward >> FLAG_BITS)
            forward = links[here % capacity, NEXT]
            ended |= (forward & (TERMINATED | TRUNCATED)) != 0
        ready: Bool = ended | (forward != 0)
        return ready
