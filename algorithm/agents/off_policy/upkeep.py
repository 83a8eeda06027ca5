"""Upkeep of what is stored: priorities of new transitions, carries of a recurrent memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from algorithm.agents.off_policy.learner import OffPolicyLearner
from algorithm.agents.off_policy.model import flatten_time
from algorithm.core.data import Int, SequenceBatch, UpdateResult
from algorithm.ops.shapes import masked_mean
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


def staleness_in(replay: ReplayBuffer, learner: OffPolicyLearner, learned: slice) -> dict[str, float]:
    """Return :func:`staleness` over as many windows as a batch has, spread over the whole replay.

    learned: positions of a window
    """
    batch = replay.windows(replay.spread(replay.batch_size))
    stored = torch.from_numpy(replay.carries(batch.ids[:, learned].numpy()))
    return {name: float(value) for name, value in staleness(learner, batch, stored).items()}


@torch.no_grad()
def staleness(learner: OffPolicyLearner, batch: SequenceBatch, stored: Tensor) -> dict[str, Tensor]:
    """Return the difference in values between the stored and the present carries of a recurrent memory.

    That is ΔQ of R2D2 (section 3): the mean over critics and windows of |Q − Q'| by the mean of |Q|. The
    state of Q is computed from the window's beginning, that of Q' from the carry stored with its token.
    The result covers the first and the last learned position, where some window has that.

    stored: [B, T, *C] the carries in the replay before each learned token
    """
    batch = batch.to(learner.device)
    ctx = learner.encode(batch)
    learned, valid = ctx.learned, batch.valid[:, ctx.learned]

    def alone(x: Tensor) -> Tensor:  # every token a window of its own
        return flatten_time(x[:, learned]).unsqueeze(1)

    state, _ = learner.model.rep(
        {name: alone(value) for name, value in ctx.obs.items()},
        alone(batch.prev_action),
        flatten_time(stored.to(learner.device)),
        alone(batch.obs_valid),
    )
    now = ctx.q(ctx.state[:, learned])
    then = ctx.q(state.view(*stored.shape[:2], -1))
    scale = masked_mean(now.abs().mean(0).flatten(), valid.flatten()).clamp(min=1e-8)
    difference = masked_mean((now - then).abs().mean(0).t(), valid.t()) / scale
    ends = {"memory/delta_q_first": 0, "memory/delta_q_last": -1}
    return {name: difference[at] for name, at in ends.items() if valid[:, at].any()}
