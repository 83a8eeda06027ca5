"""Which end of a process calls for another start, and when. Knows nothing of Ray."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from algorithm.errors import EnvError, NumericalError, StorageError, UsageError

POINTLESS = {
    UsageError.exit_code: "the configuration or the command line is wrong",
    3: "learner and actor refused each other",
    EnvError.exit_code: "the environment is unusable",
    NumericalError.exit_code: "a number is not finite",
    StorageError.exit_code: "a file of the run cannot be read or written",
}
"""Exit codes after which the same would happen again, with what they mean."""

REFUSED = 3


@dataclass(frozen=True, kw_only=True)
class RestartRule:
    """Back-off and budget.

    first, longest: seconds before the first restart and at most; each is twice the one before.
    budget:         restarts in a row that may fail.
    healthy:        seconds after which a process has come up and failures are counted anew.
    """

    first: float = 1.0
    longest: float = 60.0
    budget: int = 8
    healthy: float = 300.0


class Restarts:
    """The restarts of one process.

    total: how many there have been.
    """

    def __init__(self, rule: RestartRule) -> None:
        self._rule = rule
        self._failures = 0
        self.total = 0

    def after(self, lived: float) -> float | None:
        """Seconds until the next start; None: the budget is spent. lived: seconds since the last one."""
        if lived >= self._rule.healthy:
            self._failures = 0
        if self._failures == self._rule.budget:
            return None
        self._failures += 1
        self.total += 1
        return float(min(self._rule.first * 2 ** (self._failures - 1), self._rule.longest))


def ending(code: int) -> str:
    """``killed by SIGKILL`` or ``exit code 1``."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
