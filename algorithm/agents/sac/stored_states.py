"""Maintenance of the carries of a recurrent memory in the replay."""

from __future__ import annotations

from typing import Protocol

import torch

from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.learner import Sac
from algorithm.core.data import UpdateResult
from algorithm.replay.buffer import ReplayBuffer


class StoredStates(Protocol):
    """A keeper of stored carries."""

    def updated(self, result: UpdateResult) -> None:
        """Process the result of an update."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return values to log by name."""
        ...


class NoStoredStates:
    """Keeper for a replay without carries."""

    def updated(self, result: UpdateResult) -> None:
        """Do nothing: no carry is stored."""

    def metrics(self) -> dict[str, float]:
        """Return nothing."""
        return {}


class StoredStateRefresher:
    """Keeper that refreshes stored carries where that is enabled, and measures their staleness."""

    def __init__(self, replay: ReplayBuffer, sac: Sac, config: SacConfig) -> None:
        self._replay, self._sac = replay, sac
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)

    def updated(self, result: UpdateResult) -> None:
        """Refresh the carries of an update's batch, if that is due."""
        if result.carry is not None:
            self._replay.refresh_carry(result)

    def metrics(self) -> dict[str, float]:
        """Return :meth:`Sac.staleness` over as many windows as a batch has, spread over the whole replay."""
        batch = self._replay.windows(self._replay.spread(self._replay.batch_size))
        stored = torch.from_numpy(self._replay.carries(batch.ids[:, self._learned].numpy()))
        return {name: float(value) for name, value in self._sac.staleness(batch, stored).items()}
