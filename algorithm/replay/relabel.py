"""Changes of sampled windows before an update gets them: hindsight experience replay.

Andrychowicz et al. 2017 (arXiv 1707.01495), at sampling: the same observations and actions could have had
any other goal, and the environment computes the reward for it. So a share of the windows gets a goal that
their episode has reached.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import torch
from typing_extensions import override

from algorithm.core.data import Array, Bool, Float, Int, SequenceBatch
from algorithm.replay.storage import PREV, STEP, Storage


class Relabels(NamedTuple):
    """Windows of a batch that are relabelled, and the row whose achieved goal each of them gets."""

    windows: Int  # [m] indices in the batch, ascending
    rows: Int  # [m] ids of living rows


NO_RELABELS = Relabels(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Relabel:
    """Change of sampled windows before an update gets them. This base class changes nothing.

    Random numbers are drawn in :meth:`draw`, by the thread that samples, from the replay's generator, which
    a checkpoint holds. :meth:`apply` may run in other threads.

    text:   description for the start screen; empty for none
    notice: warning at the start; empty for none
    """

    def __init__(self, text: str = "", notice: str = "") -> None:
        self.text = text
        self.notice = notice

    def attach(self, storage: Storage, learn: int) -> None:
        """Attach to this storage; called once, by its buffer. learn: T of the windows."""

    def added(self, ids: Int, heads: Int) -> None:
        """Process new transitions ``ids`` [L], and ``heads`` [n], the newest rows of their n streams."""

    def loaded(self) -> None:
        """Process all rows anew after the storage has been loaded."""

    def draw(self, anchors: Int, places: Int, rng: np.random.Generator) -> Relabels:
        """Draw the windows of a batch that are relabelled, and a row for each.

        anchors: [B] slots of transitions; places: [B] index of each among the learned positions
        """
        return NO_RELABELS

    def apply(self, batch: SequenceBatch, relabels: Relabels) -> SequenceBatch:
        """Return the batch with the windows of ``relabels`` changed; it shares no memory with the storage."""
        return batch


ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Names of the observations of a task with goals: the goal that a state achieves, and the one to reach."""

_FEW = 1024  # episodes up to which none is removed


@dataclass
class EpisodeRows:
    """Consecutive rows of one episode; some of the first ones may have been overwritten.

    first: step in the episode of the first row; rows: ids, ascending
    """

    first: int
    rows: array[int]

    def since(self, oldest: int) -> int:
        """Return the step of the first row not overwritten. oldest: smallest id in the storage."""
        return self.first + bisect_left(self.rows, oldest)

    @property
    def last(self) -> int:
        """Step in the episode of the last row."""
        return self.first + len(self.rows) - 1


class EpisodeIndex:
    """Index from every living row of a storage to the rows of its episode: 16 bytes a row.

    With it any row of an episode is found in one step; the storage's links only lead to the next row.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._number = np.full(storage.capacity, -1, np.int64)  # of the episode, by slot
        self._episodes: dict[int, EpisodeRows] = {}
        self._next = 0
        self._sweep_at = _FEW

    def of(self, slots: Int) -> list[EpisodeRows]:
        """Return the rows of the episode of each of the living rows in ``slots`` [n]."""
        return [self._episodes[number] for number in self._number[slots].tolist()]

    def added(self, ids: Int, heads: Int) -> None:
        """Index new rows: transitions ``ids`` [L], then ``heads`` [n]; those of an episode are in order."""
        storage, capacity, oldest = self._storage, self._storage.capacity, self._storage.oldest
        for row in chain(ids.tolist(), heads.tolist()):
            slot = row % capacity
            known = self._episodes.get(self._number.item(slot))
            if known is not None and known.rows[-1] == row:
                continue  # the head of its stream until now
            previous = row - storage.links.item(slot, PREV)
            if oldest <= previous < row:
                number = self._number.item(previous % capacity)
                self._episodes[number].rows.append(row)
                self._trim(self._episodes[number])
            else:
                number = self._next
                self._next += 1
                self._episodes[number] = EpisodeRows(storage.links.item(slot, STEP), array("q", [row]))
            self._number[slot] = number
        if len(self._episodes) > self._sweep_at:
            self._sweep()

    def load(self) -> None:
        """Replace the index by one of all living rows."""
        self._episodes.clear()
        self._number[:] = -1
        rows = np.arange(self._storage.oldest, self._storage.next_id)
        self.added(rows, rows[:0])

    def _trim(self, episode: EpisodeRows) -> None:
        """Remove the overwritten rows of an episode, now and then: it may never end."""
        if len(episode.rows) > 2 * self._storage.capacity:
            dead = episode.since(self._storage.oldest) - episode.first
            del episode.rows[:dead]
            episode.first += dead

    def _sweep(self) -> None:
        """Remove episodes without a living row; the next time when twice as many are left."""
        oldest = self._storage.oldest
        self._episodes = {n: episode for n, episode in self._episodes.items() if episode.rows[-1] >= oldest}
        self._sweep_at = max(_FEW, 2 * len(self._episodes))


class GoalTask(Protocol):
    """Rewards and ends of transitions towards goals. May be called by several threads.

    achieved, desired: [P, ...] achieved goal of the next state, and desired goal, in the dtypes of the spec
    """

    def rewards(self, achieved: Array, desired: Array) -> Float:
        """Return the rewards [P]. Raises EnvError for anything but finite numbers."""

    def terminated(self, achieved: Array, desired: Array) -> Bool | None:
        """Return whether each transition ends the task, [P]; None: ends do not depend on goals."""


class Hindsight(Relabel):
    """Hindsight goals for a share of the windows, with the rewards and ends that follow from them.

    A window has one goal, as an episode has: all its tokens get it, the burn-in too. It is the achieved goal
    of a row of the same episode, drawn uniformly from those after the last learned transition (``future`` in
    the paper), so that all learned ones come before the goal. Of an open episode these are the rows so far.
    Rewards and ends of every transition are computed anew, those of burn-in and n steps included. A stored
    carry stays: it belongs to the original goal, and the burn-in corrects it as it corrects an old one.

    task:   rewards and ends of the environment
    ratio:  probability that a window gets another goal
    scale:  factor on the environment's rewards
    """

    def __init__(
        self,
        task: GoalTask,
        *,
        ratio: float,
        scale: float = 1.0,
        text: str = "",
        notice: str = "",
    ) -> None:
        super().__init__(text, notice)
        self._task = task
        self._ratio = ratio
        self._scale = np.float32(scale)

    @override
    def attach(self, storage: Storage, learn: int) -> None:
        self._storage = storage
        self._learn = learn
        self._index = EpisodeIndex(storage)
        self._goal = next(field for field in storage.layout.fields if field.name == ACHIEVED)

    @override
    def added(self, ids: Int, heads: Int) -> None:
        self._index.added(ids, heads)

    @override
    def loaded(self) -> None:
        self._index.load()

    @override
    def draw(self, anchors: Int, places: Int, rng: np.random.Generator) -> Relabels:
        """Draw the windows that get other goals, and the rows that have achieved these."""
        windows = np.flatnonzero(rng.random(len(anchors)) < self._ratio)
        share = rng.random(len(anchors))[windows].tolist()
        slots = anchors[windows]
        ends = self._storage.links[slots, STEP] - places[windows] + self._learn
        rows = []
        for episode, end, u in zip(self._index.of(slots), ends.tolist(), share, strict=True):
            first = min(end, episode.last)
            rows.append(episode.rows[first + int(u * (episode.last + 1 - first)) - episode.first])
        return Relabels(windows, np.array(rows, np.int64))

    @override
    def apply(self, batch: SequenceBatch, relabels: Relabels) -> SequenceBatch:
        """Return the batch with the goals, rewards and ends of the windows of ``relabels`` exchanged."""
        if not len(relabels.windows):
            return batch
        desired = self._exchanged(batch, relabels)
        relabelled = torch.zeros(len(batch.valid), dtype=torch.bool)
        relabelled[torch.from_numpy(relabels.windows)] = True
        changed = relabelled.unsqueeze(1) & batch.valid  # [B, W]
        # A transition leads to the next token, which has the same goal.
        pairs = [x[:, 1:][changed.to(desired.device)].cpu().numpy() for x in (batch.obs[ACHIEVED], desired)]
        reward, terminated = batch.reward.clone(), batch.terminated.clone()
        reward[changed] = torch.from_numpy(self._task.rewards(*pairs) * self._scale)
        ends = self._task.terminated(*pairs)
        if ends is not None:
            terminated[changed] = torch.from_numpy(ends)
        return replace(batch, obs={**batch.obs, DESIRED: desired}, reward=reward, terminated=terminated)

    def _exchanged(self, batch: SequenceBatch, relabels: Relabels) -> torch.Tensor:
        """Return the batch's desired goals, with those of ``relabels`` at the tokens that exist."""
        desired, windows = batch.obs[DESIRED].clone(), torch.from_numpy(relabels.windows)
        goals = self._goals(relabels.rows).to(desired.device).unsqueeze(1)  # [m, 1, ...]
        exists = batch.obs_valid[windows].to(desired.device)
        exists = exists.view(*exists.shape, *[1] * (goals.dim() - 2))
        desired[windows.to(desired.device)] = torch.where(exists, goals, torch.zeros_like(goals))
        return desired

    def _goals(self, rows: Int) -> torch.Tensor:
        matrix = self._storage.arrays[self._goal.matrix]
        goals = matrix[rows % self._storage.capacity, self._goal.columns]
        return torch.from_numpy(goals.reshape(len(rows), *self._goal.shape))
