"""Which transitions are drawn, and with which weight: prioritised, uniform, or each one once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from algorithm.data import Bool, Float, Int
from algorithm.replay.records import ArrayChunks
from algorithm.replay.storage import FLAG_BITS, NEXT, TERMINATED, TRUNCATED, Storage
from algorithm.replay.sumtree import Double, SumTree

MAX_YOUNG = 1024  # arrays remembered before they are gone through, even if nobody asks

SamplerState = tuple[dict[str, ArrayChunks], dict[str, float | None]]


class Sampler(Protocol):
    """Draws anchors among the transitions of one storage."""

    def attach(self, storage: Storage, further: int) -> None:
        """Serve this storage; called once, by the buffer that owns both.

        further: transitions that a window reaches beyond its anchor, T + n − 2.
        """

    def add(self, ids: Int, td: Float | None) -> None:
        """``ids`` [L+1]: L rows that became transitions, then the newest row, which is none.

        ``td`` [L] are their TD errors where they are known. Every overwritten slot is that of one of these.
        """

    @property
    def ready(self) -> int:
        """Transitions that may be drawn now."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """Slots [n] of transitions, of which one at least is ready, and their weights [n] in (0, 1]."""

    def feedback(self, slots: Int, td: Float) -> None:
        """New TD errors [n], finite, of the transitions in ``slots`` [n]; of duplicates the last counts."""

    def anneal(self, done: float) -> None:
        """``done`` of the run, a share from 0 to 1, is over; more counts as 1."""

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""

    def state(self) -> SamplerState:
        """Arrays, those of rows by id, and scalars. They are written out before anything else happens."""

    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """Take over what ``state`` gave. The storage has been loaded before, its ids less by ``shift``.

        Raises ValueError for what does not fit the storage; the sampler is then of no use any more.
        """


def draw_uniformly(storage: Storage, n: int, rng: np.random.Generator) -> Int:
    """Slots [n] of transitions, each with the same probability, independently (with replacement).

    Rows without an action are rejected and drawn again; at least one row must be a transition.
    """
    slots = rng.integers(len(storage), size=n)
    rejected = np.flatnonzero(~storage.is_transition(slots))
    while rejected.size:
        slots[rejected] = rng.integers(len(storage), size=rejected.size)
        rejected = rejected[~storage.is_transition(slots[rejected])]
    return slots


class UniformSampler:
    """Every stored transition with the same probability, weight 1."""

    def attach(self, storage: Storage, further: int) -> None:
        """See ``Sampler``."""
        self._storage = storage

    def add(self, ids: Int, td: Float | None) -> None:
        """Nothing to remember: the storage knows its transitions."""

    @property
    def ready(self) -> int:
        """All that are stored."""
        return self._storage.num_transitions

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """See ``Sampler``."""
        return draw_uniformly(self._storage, n, rng), np.ones(n, np.float32)

    def feedback(self, slots: Int, td: Float) -> None:
        """TD errors do not matter here."""

    def anneal(self, done: float) -> None:
        """There are no weights."""

    @property
    def nbytes(self) -> int:
        """No memory."""
        return 0

    def state(self) -> SamplerState:
        """No state."""
        return {}, {}

    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """No state."""


class PrioritizedSampler:
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
        """How strongly errors steer the draw.

        alpha: 0 draws uniformly, 1 in proportion to the error; usual 0.6 to 0.9.
        beta: how much of the bias the weights take back, 1 all of it. It grows to 1, linearly over the run by
            :meth:`anneal`, or by ``beta_increment`` at every sampling.
        td_error_min: keeps transitions without error in play; td_error_max: stops outliers from taking over.
        Raises ValueError for values out of range.
        """
        if not (alpha >= 0.0 and 0.0 <= beta <= 1.0 and beta_increment >= 0.0):
            raise ValueError(
                "prioritised replay needs alpha ≥ 0, 0 ≤ beta ≤ 1 and beta_increment ≥ 0, "
                f"got {alpha}, {beta}, {beta_increment}"
            )
        if not 0.0 <= td_error_min <= td_error_max < np.inf or td_error_max == 0.0:
            raise ValueError(
                "prioritised replay needs 0 ≤ td_error_min ≤ td_error_max, the second positive and finite, "
                f"got {td_error_min}, {td_error_max}"
            )
        self.alpha = alpha
        self.beta = self._first_beta = beta
        self.beta_increment = beta_increment
        self.td_error_min = td_error_min
        self.td_error_max = td_error_max
        self._largest: float | None = None  # of the priorities handed back so far

    def attach(self, storage: Storage, further: int) -> None:
        """See ``Sampler``."""
        self._storage = storage
        self._tree = SumTree(storage.capacity)

    @property
    def tree(self) -> SumTree:
        """The priorities by slot; 0 where a slot holds no transition."""
        return self._tree

    def priority(self, td: Float) -> Double:
        """p of TD errors [n], float64."""
        error = np.absolute(td, dtype=np.float64)
        clipped = np.minimum(np.maximum(error, self.td_error_min), self.td_error_max)
        priority: Double = clipped**self.alpha
        return priority

    @property
    def ready(self) -> int:
        """All that are stored."""
        return self._storage.num_transitions

    def add(self, ids: Int, td: Float | None) -> None:
        """New transitions get their own priority, or the largest handed back so far."""
        values = np.empty(len(ids))
        if td is None:
            values[:-1] = self.td_error_max**self.alpha if self._largest is None else self._largest
        else:
            values[:-1] = self.priority(td)
        values[-1] = 0.0
        self._tree.update(ids % self._storage.capacity, values)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """See ``Sampler``; uniform where every priority is 0."""
        if self._tree.total > 0.0:
            slots, priority = self._tree.sample(n, rng)
            weight = (priority.min() / priority) ** self.beta
        else:
            slots, weight = draw_uniformly(self._storage, n, rng), np.ones(n)
        self.beta = min(1.0, self.beta + self.beta_increment)
        return slots, weight.astype(np.float32)

    def feedback(self, slots: Int, td: Float) -> None:
        """See ``Sampler``."""
        priority = self.priority(td)
        self._tree.update(slots, priority)
        self._largest = max(self._largest or 0.0, float(priority.max(initial=0.0)))

    def anneal(self, done: float) -> None:
        """See ``Sampler``; beta follows from ``done`` alone (arXiv 1511.05952, section 3.4)."""
        self.beta = self._first_beta + (1.0 - self._first_beta) * min(1.0, done)

    @property
    def nbytes(self) -> int:
        """See ``Sampler``."""
        return self._tree.nbytes

    def state(self) -> SamplerState:
        """The priorities of the living rows, beta and the largest priority handed back."""
        leaves = self._storage.in_order(self._tree.leaves)
        return {"priority": leaves}, {"beta": self.beta, "largest": self._largest}

    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """See ``Sampler``."""
        priority, beta = arrays["priority"], scalars["beta"]
        if beta is None or priority.shape != (len(self._storage),) or priority.dtype != np.float64:
            raise ValueError(
                f"replay state: {priority.shape} priorities for {len(self._storage)} rows, beta {beta}"
            )
        self._tree.load(self._storage.places(priority))
        self.beta, self._largest = beta, scalars["largest"]


class FreshSampler:
    """Each new transition once as an anchor, oldest first, weight 1; what is overwritten before is lost.

    A transition is ready when the T + n − 2 transitions behind it exist, which the T learned positions and
    their n steps need if it is the first of them, or when its chain has ended before. Ids say what is older:
    the observation came first.
    """

    def __init__(self) -> None:
        self._ready: Int = np.empty(0, np.int64)  # ids in order
        self._young: list[Int] = []  # ids that may still be waiting for their steps

    def attach(self, storage: Storage, further: int) -> None:
        """See ``Sampler``."""
        self._storage = storage
        self._further = further

    def add(self, ids: Int, td: Float | None) -> None:
        """New transitions begin to wait."""
        self._young.append(ids[:-1])
        if len(self._young) >= MAX_YOUNG:
            self._settle()

    @property
    def ready(self) -> int:
        """Transitions that are ready and have not been drawn."""
        self._settle()
        return len(self._ready)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Float]:
        """The oldest n of those that are ready, which must be as many; they are never drawn again."""
        if n > self.ready:
            raise ValueError(f"fresh windows: {n} were asked for, {self.ready} are ready")
        drawn, self._ready = self._ready[:n], self._ready[n:]
        return drawn % self._storage.capacity, np.ones(n, np.float32)

    def feedback(self, slots: Int, td: Float) -> None:
        """TD errors do not matter here."""

    def anneal(self, done: float) -> None:
        """There are no weights."""

    @property
    def nbytes(self) -> int:
        """Ids that wait, usually about a batch of them; nothing is reserved."""
        return self._ready.nbytes + sum(ids.nbytes for ids in self._young)

    def state(self) -> SamplerState:
        """The ids that wait, in order."""
        self._settle()
        return {"waiting": ArrayChunks.of(np.sort(np.concatenate([self._ready, *self._young])))}, {}

    def load_state(
        self, arrays: Mapping[str, ArrayChunks], scalars: Mapping[str, float | None], shift: int
    ) -> None:
        """See ``Sampler``. What was ready is found ready again."""
        storage = self._storage
        chunks = (chunk.copy() for chunk in arrays["waiting"].chunks)
        waiting: Int = np.concatenate([np.empty(0, np.int64), *chunks]) - shift
        waiting = waiting[waiting >= storage.oldest]
        if not ((waiting < storage.next_id) & storage.is_transition(waiting % storage.capacity)).all():
            raise ValueError(f"replay state: not all of the {waiting.size} transitions that wait are stored")
        self._ready, self._young = np.empty(0, np.int64), [waiting]

    def _settle(self) -> None:
        """Move what has become ready from the young to the ready, and drop what has been overwritten."""
        oldest = self._storage.next_id - self._storage.capacity
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
        """Which of the transitions ``ids`` [n] are ready; follows the links from each."""
        links, capacity = self._storage.links, self._storage.capacity
        here = ids
        forward = links[here % capacity, NEXT]
        ended = (forward & (TERMINATED | TRUNCATED)) != 0
        for _ in range(self._further):
            here = here + (forward >> FLAG_BITS)
            forward = links[here % capacity, NEXT]
            ended |= (forward & (TERMINATED | TRUNCATED)) != 0
        ready: Bool = ended | (forward != 0)
        return ready
