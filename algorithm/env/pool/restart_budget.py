"""A budget of survived simulator failures."""

from __future__ import annotations

from algorithm.core.errors import EnvError
from algorithm.env.base import Fault, OnFault
from algorithm.env.pool.env_group import GroupFailure


class RestartBudget:
    """Survives ``restarts`` failures of a process, each of which is passed to ``on_fault``."""

    def __init__(self, restarts: int, on_fault: OnFault) -> None:
        self._restarts = self._left = restarts
        self._on_fault = on_fault
        self._reported: set[str] = set()

    @property
    def spent(self) -> int:
        """Failures that were survived."""
        return self._restarts - self._left

    def survive(self, failure: GroupFailure, where: str) -> None:
        """Count and report a failure. Raises :class:`EnvError` if it is fatal or one too many.

        A harmless one is not counted, and reported once for all sub-environments.
        """
        if failure.fix:
            if failure.what in self._reported:
                return
            self._reported.add(failure.what)
        elif failure.fatal or self._left == 0:
            raise self._too_many(failure, where)
        else:
            self._left -= 1
        self._on_fault(
            Fault(what=failure.what, where=where, why=failure.why, trace=failure.trace, fix=failure.fix)
        )

    def _too_many(self, failure: GroupFailure, where: str) -> EnvError:
        if failure.fatal:
            fix = "fix the environment: a restart would fail alike"
        else:
            fix = f"fix the environment; {self._restarts} failures are survived (base_config.env_restarts)"
        why = f"{failure.why}\n{failure.trace}" if failure.trace else failure.why
        return EnvError(failure.what, where=where, why=why, fix=fix)
