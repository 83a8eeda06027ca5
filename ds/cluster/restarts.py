"""Number and pauses of restarts of a process, and the ends that exclude one."""

from __future__ import annotations

from dataclasses import dataclass

from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError

REFUSED = 3
"""Exit code after which learner and actor do not fit together."""

POINTLESS = {
    UsageError.exit_code: "the configuration or the command line is wrong",
    REFUSED: "learner and actor refused each other",
    EnvError.exit_code: "the environment is unusable",
    NumericalError.exit_code: "a number is not finite",
    StorageError.exit_code: "a file of the run cannot be read or written",
}
"""Exit code after which a restart would end alike -> its meaning."""


@dataclass(frozen=True, kw_only=True)
class RestartRule:
    """Back-off and budget of restarts.

    first, longest: seconds before the first restart and at most; each is twice the one before.
    budget:         restarts in a row that may fail.
    healthy:        seconds after which a process has come up and failures are counted anew.
    """

    first: float = 1.0
    longest: float = 60.0
    budget: int = 8
    healthy: float = 300.0


class Restarts:
    """Restarts of one process.

    total: how many there have been.
    """

    def __init__(self, rule: RestartRule) -> None:
        self._rule = rule
        self._failures = 0
        self.total = 0

    def forget_failures(self) -> None:
        """Count failures in a row anew."""
        self._failures = 0

    def after(self, lived: float) -> float | None:
        """Return the seconds until the next start; None: the budget is spent. lived: since the last one."""
        if lived >= self._rule.healthy:
            self._failures = 0
        if self._failures == self._rule.budget:
            return None
        self._failures += 1
        self.total += 1
        return float(min(self._rule.first * 2 ** (self._failures - 1), self._rule.longest))
