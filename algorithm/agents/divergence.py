"""What becomes of updates that are not finite: skipped and counted, then rolled back, then the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from algorithm.data import SequenceBatch, State
from algorithm.errors import NumericalError
from algorithm.nn.return_scale import UNUSABLE
from algorithm.roles import DivergenceReport, Tensors

PATIENCE = 10
"""Skipped updates in a row after which the networks go back to the last checkpoint."""

EXTREME_PATIENCE = 100
"""The same where the last of them met a number as large as :data:`UNUSABLE`: one such reward is in most
batches of a small replay, and says nothing of the networks."""

ROLL_BACKS = 3
"""How often they do; what would be one more ends the training."""

RECOVERY = 1000
"""Good updates since the last time after which the earlier ones are forgotten."""

LARGE = 1e6
"""Rewards and observations above this are named as the likely cause."""

Restore = Callable[[], Tensors | None]
"""Returns what ``Learner.tensors`` gave at the last checkpoint, on any device; None without a checkpoint."""

_LOGGER = logging.getLogger(__name__)


def diverged(why: str, step: int) -> NumericalError:
    """The error of a training whose numbers are no longer finite."""
    return NumericalError(
        "training has diverged",
        where=f"environment step {step}",
        why=why,
        fix="lower sac_config.learning_rate, or look for extreme rewards and observations; "
        "the last checkpoint was written before this",
    )


class Learner(Protocol):
    """A learner whose updates can be judged and taken back."""

    @property
    def skipped(self) -> int:
        """Optimiser steps that were not taken. Waits for the device."""
        ...

    def roll_back(self, tensors: Tensors) -> None:
        """Go back to networks and optimisers of a checkpoint; counters and random numbers go on."""
        ...


class DivergenceMonitor:
    """A judge of a learner's updates.

    An update is good if every optimiser took its step and the TD errors are finite. ``PATIENCE`` others in a
    row, the last of them with usable numbers in its batch, mean that waiting does not help: networks and
    optimisers go back to the last checkpoint, while counters, replay and random numbers go on. Where that
    does not help either, or there is no checkpoint, the training has diverged.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._restore: Restore = _no_checkpoint
        self._report: DivergenceReport = _Logged()
        self.skipped = 0  # optimiser steps, and TD errors that were not taken
        self._counted = learner.skipped  # what the learner had counted at the last look
        self._in_a_row = self._rolled_back = self._good = 0

    def attach(self, *, restore: Restore, report: DivergenceReport) -> None:
        """From now on go back to what ``restore`` gives, and tell ``report``; without it, only the log."""
        self._restore, self._report = restore, report

    def passes(self, batch: SequenceBatch, step: int, *, finite: bool) -> bool:
        """Whether the update just made is good; of one that is not nothing else should be used.

        batch:  it was made with this
        step:   environment steps, for messages
        finite: whether its TD errors are
        Waits for the device. Raises NumericalError when roll backs do not help any more.
        """
        total = self._learner.skipped
        lost, self._counted = total - self._counted, total
        if finite and not lost:
            self._in_a_row = 0
            self._good += 1
            return True
        cause = _Cause(batch)
        self._count(max(lost, 1), step, cause.text)
        self._in_a_row += 1
        if self._in_a_row >= (EXTREME_PATIENCE if cause.extreme else PATIENCE):
            self._roll_back(step, cause.text)
        return False

    def not_settled(self, step: int) -> None:
        """New transitions kept the priority they entered with, for their TD errors are not finite."""
        self._count(1, step, "it was that of a new transition (sac_config.use_add_with_td)")

    def _count(self, steps: int, step: int, cause: str) -> None:
        before, self.skipped = self.skipped, self.skipped + steps
        if before and len(str(self.skipped)) == len(str(before)):
            return  # told at 1, 10, 100, …
        many = "1 step" if self.skipped == 1 else f"so far {self.skipped:,} steps"
        self._report.skipped(
            f"{many} skipped, for a gradient or TD error not finite · step {step:,} · {cause}"
        )

    def _roll_back(self, step: int, cause: str) -> None:
        if self._good >= RECOVERY:
            self._rolled_back = 0
        updates = f"{self._in_a_row} updates in a row"
        met = f"{updates} had gradients or TD errors that are not finite; the last: {cause}"
        if self._rolled_back == ROLL_BACKS:
            raise diverged(f"{met}; going back to the last checkpoint {ROLL_BACKS} times did not help", step)
        saved = self._restore()
        if saved is None:
            raise diverged(f"{met}; there is no checkpoint to go back to", step)
        self._learner.roll_back(saved)
        self._rolled_back += 1
        self._in_a_row = self._good = 0
        self._report.rolled_back(
            f"networks and optimisers of the last checkpoint loaded · step {step:,} · {met}"
        )

    def state(self) -> State:
        """All counts."""
        return State(
            meta={
                "skipped": self.skipped,
                "in_a_row": self._in_a_row,
                "rolled_back": self._rolled_back,
                "good": self._good,
            }
        )

    def load_state(self, state: State) -> None:
        """Go on from what :meth:`state` gave."""
        meta = state.meta
        self.skipped, self._in_a_row = meta["skipped"], meta["in_a_row"]
        self._rolled_back, self._good = meta["rolled_back"], meta["good"]
        self._counted = self._learner.skipped


class _Cause:
    """What was most extreme in a batch, and the key that may help.

    extreme: whether it is a number that no update can take
    """

    def __init__(self, batch: SequenceBatch) -> None:
        self._reward = _largest(batch.reward, batch.valid)
        seen = [_largest(v, batch.obs_valid) for v in batch.obs.values() if v.is_floating_point()]
        self._observation = max(seen, default=0.0)
        self.extreme = max(self._reward, self._observation) >= UNUSABLE

    @property
    def text(self) -> str:
        """For a message."""
        reward, observation = self._reward, self._observation
        extremes = f"|reward| up to {reward:.3g}, |observation| up to {observation:.3g} in its batch"
        return f"{extremes}: {_advice(reward, observation)}"


def _advice(reward: float, observation: float) -> str:
    if max(reward, observation) < LARGE:
        return "lower sac_config.learning_rate, or set sac_config.max_grad_norm"
    if reward >= observation:
        return (
            "scale rewards by base_config.reward_scale, or clip them: base_config.wrappers: "
            "[{ClipReward: {max_reward: 10}}]"
        )
    return "clip or scale sensors with a wrapper of your own: base_config.wrappers: [module:Class]"


def _largest(x: Tensor, valid: Tensor) -> float:
    """max |x| where ``valid`` [B, T]; 0 where nothing is."""
    return float(x[valid].abs().amax()) if bool(valid.any()) and x[valid].numel() else 0.0


def _no_checkpoint() -> None:
    """Nothing has been saved."""


class _Logged:
    """Warnings in the log."""

    def skipped(self, line: str) -> None:
        _LOGGER.warning(line)

    def rolled_back(self, line: str) -> None:
        _LOGGER.warning(line)
