"""With which priority new transitions enter the replay."""

from __future__ import annotations

import numpy as np

from algorithm.data import Int, UpdateResult
from algorithm.replay.buffer import ReplayBuffer
from algorithm.sac.learner import Sac


class LargestPriority:
    """That of the largest TD error so far, which the replay gives them by itself (arXiv 1511.05952)."""

    def added(self, ids: Int) -> None:
        """Nothing to remember."""

    def settle(self, *, learning: bool) -> None:
        """Nothing to do."""


class OwnTdError:
    """Their own TD error (``use_add_with_td``), computed for all of a step at once.

    The steps behind the newest one do not exist yet: its target is shorter and bootstraps there. Before
    learning begins the error would be that of random networks; the largest priority stands for it.
    """

    def __init__(self, replay: ReplayBuffer, sac: Sac) -> None:
        self._replay, self._sac = replay, sac
        self._new: list[Int] = []

    def added(self, ids: Int) -> None:
        """These rows have just been stored."""
        self._new.append(ids)

    def settle(self, *, learning: bool) -> None:
        """Give those added since the last call their priorities; FloatingPointError if one is not finite."""
        new, self._new = self._new, []
        if not (new and learning):
            return
        ids = np.concatenate(new)
        ids = ids[self._replay.alive(ids)]  # many streams in a small ring overwrite rows of their own step
        if ids.size:
            batch = self._replay.windows(ids)
            error = self._sac.td_error(batch)
            self._replay.feedback(UpdateResult(priority=error, ids=batch.ids, anchor=batch.anchor))
