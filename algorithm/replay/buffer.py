"""The replay buffer: transitions are added, windows are sampled, and priorities are fed back."""

from __future__ import annotations

import numpy as np
import torch
from typing_extensions import override

from algorithm.core.data import Bool, Float, Int, Segment, SequenceBatch, StepBatch, UpdateResult
from algorithm.core.errors import COMMON_BLOCK, UsageError
from algorithm.core.spec import AgentSpec
from algorithm.replay.relabel import Relabel, Relabels
from algorithm.replay.samplers import Sampler, UniformSampler
from algorithm.replay.saving import SavedReplay
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import NamedOrOne, Writer


class ReplayBuffer(SavedReplay):
    """Ring of rows from which a sampler draws windows."""

    def __init__(
        self,
        spec: AgentSpec,
        *,
        capacity: int,
        batch_size: int,
        burn_in: int = 0,
        learn: int = 1,
        n_step: int = 1,
        carry_shape: tuple[int, ...] = (),
        sampler: Sampler | None = None,
        relabel: Relabel | None = None,
        seed: int | np.random.Generator = 0,
        device: torch.device | None = None,
    ) -> None:
        """Create an empty replay.

        capacity: rows; each episode takes one more than it has transitions.
        batch_size: windows per ``sample``.
        burn_in, learn, n_step: K, T and n of the windows.
        carry_shape: shape of one stored carry; () or a shape with a 0 stores none.
        sampler, relabel: used by this replay alone; by default windows are drawn uniformly, and stay as they
            were stored.
        seed: of the draws; a generator is used as it is.
        device: keeps a copy of all observations, from which batches are read; None: no copy.
        Raises ValueError for sizes that make no sense, UsageError if the rows do not fit on the device.
        """
        _check_size(batch_size, capacity)
        if min(learn, n_step) < 1 or burn_in < 0:
            raise ValueError(f"replay: no windows have K={burn_in}, T={learn}, n={n_step}")
        self.batch_size = batch_size
        self._storage = Storage(spec, capacity, carry_shape)
        self._writer = Writer(self._storage)
        self._windows = WindowReader(
            self._storage, burn_in=burn_in, learn=learn, n_step=n_step, device=device
        )
        self._sampler = sampler or UniformSampler()
        self.learn = learn
        self._sampler.attach(self._storage, learn + n_step - 2)
        self.relabel = relabel or Relabel()
        self.relabel.attach(self._storage, learn)
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Return the number of rows in use, final and head rows included."""
        return len(self._storage)

    @override
    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self):,} of {self.capacity:,} rows, {self.num_transitions:,} "
            f"transitions, batch_size={self.batch_size}, {self._sampler})"
        )

    @property
    def num_transitions(self) -> int:
        """Number of stored transitions, each of which can be an anchor."""
        return self._storage.num_transitions

    @property
    def nbytes(self) -> int:
        """Bytes when full, priorities included; the system allocates them only as rows are written."""
        return self._storage.nbytes + self._sampler.nbytes

    @property
    def ready(self) -> int:
        """Number of windows for ``sample`` now; it draws once there are ``batch_size`` of them."""
        return self._sampler.ready

    def add(self, segment: Segment) -> Int:
        """Append transitions to their stream and return their ids [L].

        Equal to :meth:`add_steps` of these transitions.
        """
        return self.add_steps(segment.steps())

    def add_steps(self, steps: StepBatch) -> Int:
        """Append N transitions, such as a step of N streams, and return their ids [N].

        A transition continues its stream if the stream's newest row has the step before. Otherwise the
        stream's open chain of rows ends as truncated, and a new one begins.

        Raises ValueError, naming the column, and changes nothing, for columns that do not fit the spec, and a
        continuous action other than that of its z.
        """
        added = self._writer.add_steps(steps)
        if added is None:
            return np.concatenate([self.add_steps(half) for half in steps.parts((len(steps) + 1) // 2)])
        self._sampler.add(*added)
        self.relabel.added(*added)
        return added[0]

    def add_transition(
        self,
        obs: NamedOrOne,
        action: Float,
        *,
        reward: float,
        next_obs: NamedOrOne,
        terminated: bool = False,
        truncated: bool = False,
        stream: int = 0,
    ) -> int:
        """Append a transition, as a loop over one environment has it, and return its id.

        obs, next_obs: name -> array, or the array where there is one observation
        action: [A], one-hot of each discrete branch, then the continuous part in [-1, 1]
        stream: number of the environment, if there are several; after an end comes a new episode, and also
                where ``obs`` is not the ``next_obs`` before it
        Every choice counts as allowed; no carry is stored, and the behaviour log-probability is 0.
        Raises ValueError for a field that does not fit the spec.
        """
        rest = {"reward": reward, "terminated": terminated, "truncated": truncated}
        return int(self.add_steps(self._writer.transition(stream, obs, action, next_obs, **rest))[0])

    def close(self, stream: int) -> None:
        """End the stream's open episode here, as truncated; nothing happens if it has none."""
        self._writer.close(stream)

    def close_all(self) -> None:
        """End every open episode here, as truncated."""
        for stream, _ in list(self._writer.heads):
            self.close(stream)

    def sample(self) -> SequenceBatch | None:
        """Return a batch of windows, or None while fewer than ``batch_size`` are ``ready``."""
        if self.ready < self.batch_size:
            return None
        return self._read(*self._draw())

    def chains(self, ids: Int) -> SequenceBatch:
        """Return windows of T learned steps that cover each of the transitions ``ids`` once.

        ids: [M] of living transitions, increasing; the windows are ordered by their first transitions
        """
        ahead = self._storage.links[ids % self.capacity, NEXT] >> FLAG_BITS
        place = np.searchsorted(ids, ids + ahead).clip(max=len(ids) - 1)
        follows = ids[place] == ids + ahead
        steps = np.zeros(len(ids), np.int64)  # since the first transition of its chain among ``ids``
        for i, after in zip(follows.nonzero()[0].tolist(), place[follows].tolist(), strict=True):
            steps[after] = steps[i] + 1
        first = ids[steps % self.learn == 0]
        return self._windows.read(first % self.capacity, np.ones(len(first), np.float32))

    def _draw(self) -> tuple[Int, Float, Int, Relabels]:
        """Draw slots, weights and places [B] of a batch's anchors, and the windows to relabel.

        An anchor is each of its window's learned positions with the same probability. A window is then drawn
        in proportion to its existing learned positions. A mean over these gives every transition of an
        episode the same weight. Were the anchor always the first learned position, no window would begin
        before its episode: the episode's first steps would be learned less often, its last ones more often.
        """
        slots, weight = self._sampler.sample(self.batch_size, self._rng)
        fits = slots.shape == weight.shape == (self.batch_size,)
        if not (fits and self._storage.is_transition(slots).all()):
            raise UsageError(
                f"{self._sampler} must return {self.batch_size} slots of transitions, and their weights",
                where=f"{type(self._sampler).__module__}, its method sample",
                why=f"it has returned arrays {list(slots.shape)} and {list(weight.shape)}",
                fix="draw from the slots of which self.storage.is_transition is true",
            )
        places = self._rng.integers(self.learn, size=self.batch_size)
        return slots, weight, places, self.relabel.draw(slots, places, self._rng)

    def _read(self, slots: Int, weight: Float, places: Int, relabels: Relabels) -> SequenceBatch:
        """Return the windows that :meth:`_draw` has chosen; other threads may call it, for it only reads."""
        return self.relabel.apply(self._windows.read(slots, weight, places), relabels)

    def windows(self, ids: Int, places: Int | None = None) -> SequenceBatch:
        """Return windows around the transitions ``ids`` [n], each of weight 1.

        Tokens of a window that do not exist are masked as in :meth:`sample`.

        places: [n] index of each transition among the learned positions; 0 by default
        Raises ValueError for an id that is no transition or has been overwritten.
        """
        slots = ids % self.capacity
        known = (self._storage.ids_in(slots) == ids) & self._storage.is_transition(slots)
        if not known.all():
            raise ValueError(f"replay: there are no transitions with the ids {ids[~known].tolist()}")
        return self._windows.read(slots, np.ones(len(ids), np.float32), places)

    def by_person(self, since: int) -> tuple[Int, int]:
        """Return ids of a person's transitions, from ``since`` on, and ``since`` of the next call."""
        heads = (int(head.number) for _, head in self._writer.heads)  # they will get their actions
        return self._storage.by_person(since), min(heads, default=self.next_id)

    def alive(self, ids: Int) -> Bool:
        """Return the mask [n] of the ``ids`` [n] that have not been overwritten."""
        return self._storage.alive(ids)

    def spread(self, n: int) -> Int:
        """Return ids of ``n`` transitions (or all, if fewer), evenly spaced from oldest to newest."""
        slots = np.flatnonzero(self._storage.links[: len(self), NEXT])
        ids = np.sort(self._storage.ids_in(slots))
        return ids[np.linspace(0, len(ids) - 1, min(n, len(ids))).astype(np.int64)]

    def carries(self, ids: Int) -> Float:
        """Return the stored carries of rows, [*ids.shape, *C]; zeros for −1 and overwritten rows."""
        carries: Float = self._storage.carry.take(ids % self.capacity, axis=0)
        carries[~self._storage.alive(ids)] = 0.0
        return carries.reshape(*ids.shape, *self._storage.carry_shape)

    def feedback(self, result: UpdateResult) -> None:
        """Set priorities from the TD errors of a batch; rows that were overwritten meanwhile are left out.

        Raises FloatingPointError, and changes nothing, if one is not finite.
        """
        td = result.priority.detach().cpu().numpy()
        if not np.isfinite(td).all():
            bad = int(np.count_nonzero(~np.isfinite(td)))
            raise FloatingPointError(
                f"replay feedback: {bad} of {td.size} TD errors are not finite, the update that made them "
                "diverged; no priority was changed"
            )
        ids = result.anchor_ids.cpu().numpy()
        alive = self._storage.alive(ids)
        if not alive.all():
            ids, td = ids[alive], td[alive]
        self._sampler.feedback(ids % self.capacity, td)

    def anneal(self, done: float) -> None:
        """Set the exponent of the importance-sampling weights; done: finished share of the run, 0 to 1."""
        self._sampler.anneal(done)

    def refresh_carry(self, result: UpdateResult) -> None:
        """Replace the stored carries of a batch's rows that are still alive by recomputed ones.

        A window's first row keeps its carry, from which the others were computed, unless it is a later row
        of another window. A window changes nothing if the row before it has been overwritten: the previous
        action is lost, so its carries are wrong. Of a row in several windows one carry is kept.
        Raises ValueError if the result or the replay has no carries.
        """
        carry = self._storage.carry
        if result.carry is None or not carry.shape[1]:
            raise ValueError(
                "replay: refresh_carry needs recomputed carries and a replay that stores carries"
            )
        ids = result.ids.cpu().numpy().copy()
        window, first = np.arange(len(ids)), (ids >= 0).argmax(1)
        begins = ids[window, first]
        links = self._storage.links[begins % self.capacity]
        back = links[:, PREV]
        whole = (links[:, STEP] == 0) | ((back > 0) & self._storage.alive(begins - back))
        ids[~(whole & self._storage.alive(begins))] = -1
        ids[window, first] = -1
        ids = ids.reshape(-1)
        values = result.carry.detach().cpu().numpy().reshape(len(ids), -1)
        alive = self._storage.alive(ids)
        self._storage.saved.touch_carries()
        carry[ids[alive] % self.capacity] = values[alive]


def _check_size(batch_size: int, capacity: int) -> None:
    """Raise ValueError if a batch is empty, or larger than ``capacity`` rows can ever fill.

    They hold at most capacity − 1 transitions, since an episode takes one row more than it has transitions.
    """
    if batch_size < 1:
        raise ValueError(f"replay: batch_size must be at least 1, got {batch_size}")
    if batch_size >= capacity:
        raise ValueError(
            f"replay: {capacity} rows hold at most {capacity - 1} transitions, a batch of {batch_size} "
            f"could never be drawn; raise replay_config.capacity or lower {COMMON_BLOCK}.batch_size"
        )
