"""Handling of updates that are not finite: they are skipped, then rolled back, then the training ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import Tensor

from algorithm.agents.learner import Learner
from algorithm.agents.roles import DivergenceReport, Tensors
from algorithm.core.data import SequenceBatch, State
from algorithm.core.errors import COMMON_BLOCK, NumericalError
from algorithm.nn.normalise import UNUSABLE

PATIENCE = 10
"""Skipped updates in a row after which the networks go back to the last checkpoint."""

EXTREME_PATIENCE = 100
"""The same number if the last batch held a value as large as :data:`UNUSABLE`.

In a small replay one such reward is in most batches, and is no fault of the networks.
"""

ROLL_BACKS = 3
"""Maximum number of roll backs; one more ends the training."""

RECOVERY = 1000
"""Number of good updates after a roll back that resets the count of roll backs."""

LARGE = 1e6
"""Size of rewards and observations from which a message names them as the likely cause."""

Restore = Callable[[], Tensors | None]
"""Function that returns the last checkpoint's ``Learner.tensors``, on any device; None without one."""

_LOGGER = logging.getLogger(__name__)


def diverged(why: str, step: int) -> NumericalError:
    """Return the error of a training whose numbers are no longer finite."""
    return NumericalError(
        "training has diverged",
        where=f"environment step {step}",
        why=why,
        fix="lower learning_rate, or check for extreme rewards and observations; the last checkpoint is "
        "from before this",
    )


class DivergenceMonitor:
    """Monitor of a learner's updates.

    An update is good if every optimiser took its step and its errors are finite. After ``PATIENCE`` bad ones
    in a row, or ``EXTREME_PATIENCE`` if the last batch held extreme numbers, the monitor restores networks
    and optimisers of the last checkpoint. Counters, replay and random numbers continue. The training has
    diverged if that does not help either, or there is no checkpoint.

    block: block of the configuration with the learner's ``learning_rate``, for messages
    """

    def __init__(self, learner: Learner, block: str) -> None:
        self._learner, self._block = learner, block
        self._restore: Restore = lambda: None  # nothing has been saved
        self._report: DivergenceReport = _Logged()
        self.skipped = 0  # optimiser steps that were skipped, and TD errors that were not used
        self._counted = learner.skipped  # the learner's count at the last check
        self._in_a_row = self._rolled_back = self._good = 0

    def attach(self, *, restore: Restore, report: DivergenceReport) -> None:
        """Set the source of the last checkpoint and the receiver of reports; the default is only the log."""
        self._restore, self._report = restore, report

    def passes(self, batch: SequenceBatch, step: int, *, finite: bool) -> bool:
        """Return whether the update just made is good; the results of a bad one must not be used.

        step: environment steps, for messages; finite: whether the update's errors, or losses, are finite
        Waits for the device. Raises NumericalError if roll backs no longer help.
        """
        total = self._learner.skipped
        lost, self._counted = total - self._counted, total
        if finite and not lost:
            self._in_a_row = 0
            self._good += 1
            return True
        extreme, cause = _cause(batch, self._block)
        self._count(max(lost, 1), step, cause)
        self._in_a_row += 1
        if self._in_a_row >= (EXTREME_PATIENCE if extreme else PATIENCE):
            self._roll_back(step, cause)
        return False

    def count_new_rows(self, step: int) -> None:
        """Count a step's new transitions with TD errors that are not finite; they keep their priority."""
        self._count(1, step, f"it was that of a new transition ({COMMON_BLOCK}.use_add_with_td)")

    def _count(self, steps: int, step: int, cause: str) -> None:
        before, self.skipped = self.skipped, self.skipped + steps
        if before and len(str(self.skipped)) == len(str(before)):
            return  # reported at 1, 10, 100, …
        many = "1 step" if self.skipped == 1 else f"so far {self.skipped:,} steps"
        self._report.skipped(f"{many} skipped: a gradient or error is not finite · step {step:,} · {cause}")

    def _roll_back(self, step: int, cause: str) -> None:
        if self._good >= RECOVERY:
            self._rolled_back = 0
        updates = f"{self._in_a_row} updates in a row"
        fault = f"{updates} had gradients or errors that are not finite; the last: {cause}"
        if self._rolled_back == ROLL_BACKS:
            raise diverged(
                f"{fault}; going back to the last checkpoint {ROLL_BACKS} times did not help", step
            )
        saved = self._restore()
        if saved is None:
            raise diverged(f"{fault}; there is no checkpoint to go back to", step)
        self._learner.roll_back(saved)
        self._rolled_back += 1
        self._in_a_row = self._good = 0
        self._report.rolled_back(
            f"networks and optimisers of the last checkpoint loaded · step {step:,} · {fault}"
        )

    def state(self) -> State:
        """Return the counts of skipped and good updates and of roll backs."""
        return State(
            meta={
                "skipped": self.skipped,
                "in_a_row": self._in_a_row,
                "rolled_back": self._rolled_back,
                "good": self._good,
            }
        )

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        meta = state.meta
        self.skipped, self._in_a_row = meta["skipped"], meta["in_a_row"]
        self._rolled_back, self._good = meta["rolled_back"], meta["good"]
        self._counted = self._learner.skipped


def _cause(batch: SequenceBatch, block: str) -> tuple[bool, str]:
    """Return whether a batch holds a number too large for any update, and a text with a key that may help."""
    reward = _largest(batch.reward, batch.valid)
    seen = [_largest(v, batch.obs_valid) for v in batch.obs.values() if v.is_floating_point()]
    observation = max(seen, default=0.0)
    extremes = f"|reward| up to {reward:.3g}, |observation| up to {observation:.3g} in its batch"
    return max(reward, observation) >= UNUSABLE, f"{extremes}: {_advice(reward, observation, block)}"


def _advice(reward: float, observation: float, block: str) -> str:
    if max(reward, observation) < LARGE:
        return f"lower {block}.learning_rate or {block}.max_grad_norm"
    if reward >= observation:
        return (
            "scale rewards by base_config.reward_scale, or clip them: base_config.wrappers: "
            "[{ClipReward: {max_reward: 10}}]"
        )
    return "clip or scale sensors with your own wrapper: base_config.wrappers: [module:Class]"


def _largest(x: Tensor, valid: Tensor) -> float:
    """Return max |x| of x [B, T, ...] at the ``valid`` positions [B, T]; 0 without any."""
    return float(x[valid].abs().amax()) if bool(valid.any()) and x[valid].numel() else 0.0


class _Logged:
    """Report that only writes to the log."""

    skipped = rolled_back = staticmethod(_LOGGER.warning)
    info = staticmethod(_LOGGER.info)
