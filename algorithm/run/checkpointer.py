"""Writing of a training's checkpoints, and handling of failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch

from algorithm.agents.base import Agent
from algorithm.agents.divergence import diverged
from algorithm.agents.registry import family
from algorithm.core.console import Console
from algorithm.core.errors import StorageError
from algorithm.core.wording import format_bytes
from algorithm.run.state import TrainState
from algorithm.store.checkpoints.checkpoint import SaveCost, Snapshot, load_checkpoint
from algorithm.store.checkpoints.manager import CheckpointManager, Replays
from algorithm.store.names import behaviour_file

FAILURES = 3
"""Number of failed attempts in a row that ends the run."""

_LOGGER = logging.getLogger(__name__)


class Checkpointer:
    """Writer of checkpoints of ``training`` through ``manager``. A full disk does not end a run at once.

    metrics: returns the state of the metrics' log
    check: raises StorageError if the run's folder is missing, so that no new one is made
    since: step of the last checkpoint with other networks than those that the training began with; -1: none
    """

    def __init__(
        self,
        manager: CheckpointManager,
        training: TrainState,
        console: Console,
        *,
        metrics: Callable[[], Mapping[str, object]],
        check: Callable[[], None],
        since: int = -1,
    ) -> None:
        self._manager = manager
        self._training = training
        self._console = console
        self._metrics = metrics
        self._check = check
        self._since = since
        self._evaluation = training.counters.last_eval  # part of the last checkpoint
        self._failures = 0
        self._seconds, self._bytes, self._count = 0.0, 0, 0

    @property
    def summary(self) -> str:
        """Cost of all checkpoints, as text."""
        return f"{self._count} written, {format_bytes(self._bytes)} in {self._seconds:.2f} s"

    def save(self) -> bool:
        """Write a checkpoint unless this step has a complete one; return whether it has one now.

        Raises StorageError for the third failure in a row, NumericalError if it would hold NaN.
        """
        if self._is_whole:
            return True
        try:
            self._write()
        except StorageError as error:
            self._failures += 1
            if self._failures == FAILURES:
                raise self._given_up(error) from error
            self._console.warn(f"{error.line} · training continues and tries again at the next save")
            return False
        return True

    def save_best(self, score: float) -> None:
        """Write a checkpoint and mark it as the best one, if ``score`` is the best so far."""
        if self._manager.is_best(score) and self.save():
            try:
                self._manager.mark_best(score)
            except StorageError as error:
                self._console.warn(error.line)

    def save_finally(self) -> None:
        """Write the last checkpoint, as :meth:`save`. Raises StorageError if it cannot be written."""
        if not self._is_whole:
            try:
                self._write()
            except StorageError as error:
                raise self._given_up(error) from error

    @property
    def _is_whole(self) -> bool:
        """Whether the last checkpoint is of this step, and was written after its evaluation, if any."""
        counters = self._training.counters
        return self._manager.has(counters.step) and counters.last_eval is self._evaluation

    def networks(self, behaviour: str) -> Mapping[str, Mapping[str, torch.Tensor]] | None:
        """Return a behaviour's tensors at the last checkpoint; None if there is none."""
        if self._manager.latest is None or self._manager.has(self._since):
            return None
        saved = load_checkpoint(self._manager.latest).tensors
        files = self._training.agents[behaviour].learner.tensors()
        return {file: saved[behaviour_file(behaviour, file)] for file in files}

    def _write(self) -> None:
        """Write a checkpoint of this step, and count its cost. Raises StorageError and NumericalError."""
        self._check()
        snapshot = self._training.snapshot(self._metrics())
        _refuse_non_finite(snapshot)
        try:
            cost = self._manager.save(snapshot)
        except OSError as error:  # such as too many open files, where the folder is only listed
            raise StorageError.of(
                error, what="the checkpoint cannot be written", where=error.filename or "the run's folder"
            ) from error
        self._evaluation = self._training.counters.last_eval
        self._failures = 0
        self._count += 1
        self._seconds += cost.seconds
        self._bytes += cost.bytes_written
        say = self._console.message if self._count == 1 else _LOGGER.info
        say(f"checkpoint of step {snapshot.step:,}: {_cost(cost)}")

    def _given_up(self, error: StorageError) -> StorageError:
        """Return the error that ends the run after too many failures."""
        last = self._manager.latest
        return StorageError(
            error.what,
            where=error.where,
            why=error.why,
            fix=f"{error.fix}; " + (f"the last good one is {last}" if last else "none was written before"),
        )


def kept_replays(agents: Mapping[str, Agent], chosen: Replays) -> Replays:
    """Return which checkpoints keep replays: all if an algorithm requires that, else ``chosen``."""
    return "always" if any(family(agent.config).always_saved for agent in agents.values()) else chosen


def _cost(cost: SaveCost) -> str:
    """Return size and duration of a checkpoint as text."""
    replay = f", {format_bytes(cost.replay_bytes)} of them replay" if cost.replay_bytes else ""
    return f"{format_bytes(cost.bytes_written)}{replay}, {cost.seconds:.2f} s"


def _refuse_non_finite(snapshot: Snapshot) -> None:
    """Raise NumericalError if networks or statistics hold NaN or infinity."""
    for file, named in snapshot.tensors.items():
        if file == "run":  # numbers of the environment, which are checked where they enter
            continue
        for name, tensor in named.items():
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.is_floating_point()
                # A sum is finite only if all its numbers are, and takes a fifteenth of the time.
                and not (tensor.sum().isfinite() or torch.isfinite(tensor).all())
            ):
                raise diverged(f"{name} holds NaN or infinity", snapshot.step)
