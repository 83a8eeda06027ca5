"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495), at sampling.

What was seen and done towards a goal would have been seen and done towards any other one, and the environment
says what the reward would have been. So a share of the windows gets a goal that their episode has reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

import numpy as np
import torch
from typing_extensions import override

from algorithm.core.data import Array, Bool, Float, Int, SequenceBatch
from algorithm.replay.chains import Chain, Chains
from algorithm.replay.relabel import Marks, Relabel
from algorithm.replay.storage import STEP, Storage

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""Names of the observations: of what has been reached, and of what shall be."""

GoalStrategy = Literal["future", "final", "episode"]


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
