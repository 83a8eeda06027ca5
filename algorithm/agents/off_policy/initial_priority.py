"""Initial priorities of transitions that enter the replay."""

from __future__ import annotations

import numpy as np

from algorithm.agents.off_policy.learner import OffPolicyLearner
from algorithm.core.data import Int, UpdateResult
from algorithm.replay.buffer import ReplayBuffer


class OwnTdError:
    """Priority of the row's own TD error (``use_add_with_td``), computed once per step for all new rows.

    The steps behind the newest one do not exist yet: its target is shorter and bootstraps there. Before
    learning begins the error would be that of random networks; new rows keep the largest priority then.
    """

    def __init__(self, replay: ReplayBuffer, learner: OffPolicyLearner) -> None:
        self._replay, self._learner = replay, learner
        self._new: list[Int] = []

    def added(self, ids: Int) -> None:
        """Keep the ids of rows that have just been stored."""
        self._new.append(ids)

    def settle(self, *, learning: bool) -> None:
        """Set the priorities of rows added since the last call; FloatingPointError if one is not finite."""
        new, self._new = self._new, []
        if not (new and learning):
            return
        ids = np.concatenate(new)
        ids = ids[self._replay.alive(ids)]  # many streams in a small ring overwrite rows of their own step
        if ids.size:
            batch = self._replay.windows(ids)
            error = self._learner.td_error(batch)
            self._replay.feedback(UpdateResult(priority=error, ids=batch.ids, anchor=batch.anchor))
