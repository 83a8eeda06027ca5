"""The seam between the windows that a replay draws and the batch that an update gets; hindsight stands there.

Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495), at sampling: what was seen and done
towards a goal would have been seen and done towards any other one, and the environment says what the reward
would have been. So a share of the windows gets a goal that their episode has reached.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from typing_extensions import override

from algorithm.core.data import Array, Bool, Float, Int, SequenceBatch
from algorithm.replay.storage import PREV, STEP, Storage


class Marks(NamedTuple):
    """Windows of a batch that are changed, and the row that each of them takes something from."""

    windows: Int  # [m] their numbers in the batch, ascending
    rows: Int  # [m] ids of living rows


NO_MARKS = Marks(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Relabel:
    """A change of drawn windows on their way into an update. By itself it changes nothing.

    What is random in it is drawn by the thread that samples, from the replay's generator, which a checkpoint
    holds. Windows may be read, and changed, by other threads.

    text: of it for the start screen, empty where there is nothing to say; notice: what a person should know
    """

    def __init__(self, text: str = "", notice: str = "") -> None:
        self.text = text
        self.notice = notice

    def attach(self, storage: Storage, learn: int) -> None:
        """Attach to this storage; called once, by the buffer that owns both. learn: T of its windows."""

    def added(self, ids: Int, heads: Int) -> None:
        """Process new transitions ``ids`` [L], and ``heads`` [n], the newest rows of their n streams."""

    def loaded(self) -> None:
        """Process all rows anew: the storage has been loaded."""

    def draw(self, anchors: Int, places: Int, rng: np.random.Generator) -> Marks:
        """Return which of the windows change.

        anchors: [B] slots of transitions; places: [B] of these among the learned positions
        """
        return NO_MARKS

    def apply(self, batch: SequenceBatch, marks: Marks) -> SequenceBatch:
        """Return the batch of these windows with the change made; it shares no memory with the storage."""
        return batch


ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Names of the observations: of what has been reached, and of what shall be."""

GoalStrategy = Literal["future", "final", "episode"]


_FEW = 1024  # chains that are never swept


@dataclass
class Chain:
    """Consecutive rows of one episode; some of the first ones may have been overwritten.

    first: step in the episode of the first of them; rows: ids, ascending
    """

    first: int
    rows: array[int]

    def since(self, oldest: int) -> int:
        """Return the step of the first row that is alive, the smallest living id being ``oldest``."""
        return self.first + bisect_left(self.rows, oldest)

    @property
    def last(self) -> int:
        """Step in the episode of the last row."""
        return self.first + len(self.rows) - 1


class Chains:
    """The chain of every living row of a storage: 16 bytes a row beside those of the storage.

    Links lead from row to row only; to the middle of an episode they take as many steps as there are rows.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._number = np.full(storage.capacity, -1, np.int64)  # of the chain, by slot
        self._chains: dict[int, Chain] = {}
        self._next = 0
        self._sweep_at = _FEW

    def of(self, slots: Int) -> list[Chain]:
        """Return the chains of living rows in these slots [n]."""
        return [self._chains[number] for number in self._number[slots].tolist()]

    def added(self, ids: Int, heads: Int) -> None:
        """Take in new rows; within an episode they come in their order, ``heads`` after ``ids``."""
        storage, capacity, oldest = self._storage, self._storage.capacity, self._storage.oldest
        for row in chain(ids.tolist(), heads.tolist()):
            slot = row % capacity
            known = self._chains.get(self._number.item(slot))
            if known is not None and known.rows[-1] == row:
                continue  # the head of its stream until now
            previous = row - storage.links.item(slot, PREV)
            if oldest <= previous < row:
                number = self._number.item(previous % capacity)
                self._chains[number].rows.append(row)
                self._trim(self._chains[number])
            else:
                number = self._next
                self._next += 1
                self._chains[number] = Chain(storage.links.item(slot, STEP), array("q", [row]))
            self._number[slot] = number
        if len(self._chains) > self._sweep_at:
            self._sweep()

    def load(self) -> None:
        """Begin anew with all living rows."""
        self._chains.clear()
        self._number[:] = -1
        rows = np.arange(self._storage.oldest, self._storage.next_id)
        self.added(rows, rows[:0])

    def _trim(self, one: Chain) -> None:
        """Remove overwritten rows of an episode that may never end."""
        if len(one.rows) > 2 * self._storage.capacity:
            dead = one.since(self._storage.oldest) - one.first
            del one.rows[:dead]
            one.first += dead

    def _sweep(self) -> None:
        """Remove chains without a living row, at most every time that their number has doubled."""
        oldest = self._storage.oldest
        self._chains = {n: one for n, one in self._chains.items() if one.rows[-1] >= oldest}
        self._sweep_at = max(_FEW, 2 * len(self._chains))


class GoalTask(Protocol):
    """Rewards and ends of transitions towards goals. May be called by several threads.

    achieved, desired: [P, ...] what the transition led to, and its goal, in the dtypes of the spec
    """

    def rewards(self, achieved: Array, desired: Array) -> Float:
        """Return the rewards [P]. Raises EnvError for anything but finite numbers."""

    def terminated(self, achieved: Array, desired: Array) -> Bool | None:
        """Return whether each transition ends the task, [P]; None: goals decide nothing about that."""


class Hindsight(Relabel):
    """Other goals for a share of the windows, with the rewards and ends that follow from them.

    A window has one goal, as an episode has: all its tokens get it, the burn-in too. It is what some row of
    the same episode has achieved, drawn uniformly:

    * ``future``:  of the rows behind the last learned transition, so that all learned ones lie before it;
    * ``final``:   the last row;
    * ``episode``: of all rows but the first.

    Of an episode that is still open these are the rows so far, of one whose beginning has been overwritten
    those that are left. Rewards and ends of every transition are computed anew, those of burn-in and n steps
    included. A stored carry stays: it is of the goal that the agent had, and the burn-in corrects it as it
    corrects an old one.

    task:   of the environment
    ratio:  probability that a window gets another goal
    scale:  factor on the environment's rewards
    """

    def __init__(
        self,
        task: GoalTask,
        *,
        ratio: float,
        strategy: GoalStrategy,
        scale: float = 1.0,
        text: str = "",
        notice: str = "",
    ) -> None:
        super().__init__(text, notice)
        self._task = task
        self._ratio = ratio
        self._scale = np.float32(scale)
        self._first = {"future": self._behind, "final": _last, "episode": self._begun}[strategy]

    @override
    def attach(self, storage: Storage, learn: int) -> None:
        self._storage = storage
        self._learn = learn
        self._chains = Chains(storage)
        self._goal = next(field for field in storage.layout.fields if field.name == ACHIEVED)

    @override
    def added(self, ids: Int, heads: Int) -> None:
        self._chains.added(ids, heads)

    @override
    def loaded(self) -> None:
        self._chains.load()

    @override
    def draw(self, anchors: Int, places: Int, rng: np.random.Generator) -> Marks:
        """Return the windows with other goals, and the rows that have achieved these."""
        windows = np.flatnonzero(rng.random(len(anchors)) < self._ratio)
        share = rng.random(len(anchors))[windows].tolist()
        slots = anchors[windows]
        ends = self._storage.links[slots, STEP] - places[windows] + self._learn
        rows = []
        for one, end, u in zip(self._chains.of(slots), ends.tolist(), share, strict=True):
            first = self._first(one, end)
            rows.append(one.rows[first + int(u * (one.last + 1 - first)) - one.first])
        return Marks(windows, np.array(rows, np.int64))

    def _behind(self, one: Chain, end: int) -> int:
        return min(end, one.last)

    def _begun(self, one: Chain, end: int) -> int:
        return one.since(self._storage.oldest) + 1

    @override
    def apply(self, batch: SequenceBatch, marks: Marks) -> SequenceBatch:
        """Return the batch with the marked windows' goals, rewards and ends exchanged."""
        if not len(marks.windows):
            return batch
        windows, device = torch.from_numpy(marks.windows), batch.obs[DESIRED].device
        goals = self._goals(marks.rows).to(device).unsqueeze(1)  # [m, 1, ...]
        exists = batch.obs_valid[windows].to(device)
        exists = exists.view(*exists.shape, *[1] * (goals.dim() - 2))
        desired = batch.obs[DESIRED].clone()
        desired[windows.to(device)] = torch.where(exists, goals, torch.zeros_like(goals))
        marked = torch.zeros(len(batch.valid), dtype=torch.bool)
        marked[windows] = True
        changed = marked.unsqueeze(1) & batch.valid  # [B, W]
        # A transition leads to the next token, which has the same goal.
        pairs = [x[:, 1:][changed.to(device)].cpu().numpy() for x in (batch.obs[ACHIEVED], desired)]
        reward, terminated = batch.reward.clone(), batch.terminated.clone()
        reward[changed] = torch.from_numpy(self._task.rewards(*pairs) * self._scale)
        ends = self._task.terminated(*pairs)
        if ends is not None:
            terminated[changed] = torch.from_numpy(ends)
        obs = {**batch.obs, DESIRED: desired}
        return replace(batch, obs=obs, reward=reward, terminated=terminated)

    def _goals(self, rows: Int) -> torch.Tensor:
        matrix = self._storage.arrays[self._goal.matrix]
        goals = matrix[rows % self._storage.capacity, self._goal.columns]
        return torch.from_numpy(goals.reshape(len(rows), *self._goal.shape))


def _last(one: Chain, end: int) -> int:
    return one.last
