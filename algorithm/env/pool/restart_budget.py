"""A budget of survived simulator failures."""

from __future__ import annotations

from algorithm.env.base import Fault, OnFault
from algorithm.env.pool.env_group import GroupFailure
from algorithm.errors import EnvError


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
        fault = Fault(
            what=failure.what,
            where=where,
            why=failure.why,
            trace=failure.trace,
            fatal=failure.fatal,
            fix=failure.fix,
        )
        if fault.fix:
            if fault.what not in self._reported:
                self._reported.add(fault.what)
                self._on_fault(fault)
            return
        if fault.fatal or self._left == 0:
            raise self._too_many(fault)
        self._left -= 1
        self._on_fault(fault)

    def _too_many(self, fault: Fault) -> EnvError:
        if fault.fatal:
            fix = "fix the environment: a restart would fail alike"
        else:
            fix = f"fix the environment; {self._restarts} failures are survived (base_config.env_restarts)"
        why = f"{fault.why}\n{fault.trace}" if fault.trace else fault.why
        return EnvError(fault.what, where=fault.where, why=why, fix=fix)
