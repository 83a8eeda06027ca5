"""Failures that a run survives: shown, counted, and logged with their tracebacks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from algorithm.core.console import Console
from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.env.base import Fault

_LOGGER = logging.getLogger(__name__)
_SILENCE_S = 10.0  # of a start


class Faults:
    """Receiver of failures that a run survives, of environments and learners; one per run.

    go_on: called while a start takes long; raises if the start is to end
    """

    def __init__(self, console: Console, *, go_on: Callable[[], None] = lambda: None) -> None:
        self.console, self._go_on = console, go_on
        self._shown_at = time.monotonic()
        self._reported: set[str] = set()  # by the environments of training and of evaluation
        self.env_restarts = self.non_finite = self.rollbacks = 0
        self._before_end: Callable[[EnvError], None] = partial(_LOGGER.error, "the process ends: %s")

    def __call__(self, fault: Fault) -> None:
        """Warn once that an environment was restarted; the simulator's traceback goes to ``train.log``."""
        if fault.fix:
            if fault.what not in self._reported:
                self._reported.add(fault.what)
                self.console.warn(f"{fault.line} · {fault.fix}")
            return
        self.env_restarts += 1
        self.console.warn(f"{fault.line} · restarted")
        if fault.trace:
            _LOGGER.info("%s\n%s", fault.what, fault.trace.rstrip())

    def waiting(self, text: str) -> None:
        """Show the progress of a start, every ten seconds. Raises whatever ``go_on`` raises."""
        self._go_on()
        if (now := time.monotonic()) - self._shown_at >= _SILENCE_S:
            self._shown_at = now
            self.console.message(text)

    def hangs(self, error: EnvError) -> None:
        """Save the run: an environment hangs in this process, which is about to end."""
        self._before_end(error)

    def attach(self, before_end: Callable[[EnvError], None]) -> None:
        """Set the function that saves the run before a hang ends the process."""
        self._before_end = before_end

    def dropped(self, line: str, *, warn: bool) -> None:
        """Count an episode dropped for a number that is not finite. warn: show the line, else log it."""
        self.non_finite += 1
        log = self.console.warn if warn else _LOGGER.info
        log(line)

    def add_actor_counts(self, env_restarts: int, non_finite: int) -> None:
        """Add the failures that remote actors have survived, and shown on their own consoles."""
        self.env_restarts += env_restarts
        self.non_finite += non_finite

    def skipped(self, line: str) -> None:
        """Show a warning of skipped optimiser steps, which are counted elsewhere (``optim/skipped``)."""
        self.console.warn(line)

    def rolled_back(self, line: str) -> None:
        """Count a roll back and warn of it."""
        self.rollbacks += 1
        self.console.warn(line)

    def info(self, line: str) -> None:
        """Show a line on an event that is no fault."""
        self.console.message(line)

    @property
    def counts(self) -> dict[str, int]:
        """Counts by kind of failure, in the form of ``result.json``."""
        return {
            "env_restarts": self.env_restarts,
            "non_finite": self.non_finite,
            "rollbacks": self.rollbacks,
        }

    @property
    def metrics(self) -> dict[str, float]:
        """Counts as metrics."""
        return {f"fault/{kind}": float(count) for kind, count in self.counts.items()}

    def state(self) -> State:
        """Return the counts."""
        return State(meta=self.counts)

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`."""
        self.env_restarts, self.non_finite = state.meta["env_restarts"], state.meta["non_finite"]
        self.rollbacks = state.meta["rollbacks"]
