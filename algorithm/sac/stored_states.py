"""What happens to the carries of a recurrent memory that stand in the replay."""

from __future__ import annotations

from typing import Protocol

import torch

from algorithm.data import UpdateResult
from algorithm.replay.buffer import ReplayBuffer
from algorithm.sac.config import SacConfig
from algorithm.sac.learner import Sac


class StoredStates(Protocol):
    """Looks after stored carries."""

    def updated(self, result: UpdateResult) -> None:
        """An update has been made."""
        ...

    def metrics(self) -> dict[str, float]:
        """Values to log by name."""
        ...


class NoStoredStates:
    """The replay stores no carries."""

    def updated(self, result: UpdateResult) -> None:
        """Nothing to refresh."""

    def metrics(self) -> dict[str, float]:
        """Nothing to measure."""
        return {}


class StoredStateRefresher:
    """Refreshes stored carries where that is on, and measures how old they have become."""

    def __init__(self, replay: ReplayBuffer, sac: Sac, config: SacConfig) -> None:
        self._replay, self._sac = replay, sac
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)

    def updated(self, result: UpdateResult) -> None:
        """An update has been made."""
        if result.carry is not None:
            self._replay.refresh_carry(result)

    def metrics(self) -> dict[str, float]:
        """:meth:`Sac.staleness` over as many windows as a batch has, spread over the whole replay."""
        batch = self._replay.windows(self._replay.spread(self._replay.batch_size))
        stored = torch.from_numpy(self._replay.carries(batch.ids[:, self._learned].numpy()))
        return {name: float(value) for name, value in self._sac.staleness(batch, stored).items()}
