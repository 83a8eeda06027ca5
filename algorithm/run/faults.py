"""Failures of environments that a run survives: told, counted, and kept with their traces."""

from __future__ import annotations

import logging

from algorithm.env.base import Fault
from algorithm.run.console import Console

_LOGGER = logging.getLogger(__name__)


class Faults:
    """What ``make_vec_env`` tells of every environment that was started anew; one for all of a run's."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.env_restarts = 0

    def __call__(self, fault: Fault) -> None:
        """Warn with one line; the simulator's own trace goes to ``train.log``."""
        self.env_restarts += 1
        self._console.warn(f"{fault.line} · started anew")
        if fault.trace:
            _LOGGER.info("%s\n%s", fault.what, fault.trace.rstrip())

    @property
    def counts(self) -> dict[str, int]:
        """By kind, as ``result.json`` holds them."""
        return {"env_restarts": self.env_restarts}

    @property
    def metrics(self) -> dict[str, float]:
        """The same as metrics."""
        return {f"fault/{kind}": float(count) for kind, count in self.counts.items()}
