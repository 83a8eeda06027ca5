"""How many failures of a simulator are survived, and who is told of them."""

from __future__ import annotations

from algorithm.env.base import Fault, OnFault
from algorithm.env.pool.env_group import GroupFailure
from algorithm.errors import EnvError


class RestartBudget:
    """``restarts`` failures are survived by starting a copy anew; ``on_fault`` is told of each."""

    def __init__(self, restarts: int, on_fault: OnFault) -> None:
        self._restarts = self._left = restarts
        self._on_fault = on_fault
        self._told: set[str] = set()

    @property
    def spent(self) -> int:
        """Failures that were survived."""
        return self._restarts - self._left

    def resume(self, spent: int) -> None:
        """So many were survived before. Those of this process led to episodes that are given up now."""
        self._left = max(0, self._restarts - spent)

    def survive(self, failure: GroupFailure, where: str) -> None:
        """Count a failure and tell of it. Raises :class:`EnvError` if it is fatal or one too many.

        What is harmless is not counted, and told once for all copies.
        """
        fault = Fault(
            what=failure.what,
            where=where,
            why=failure.why,
            trace=failure.trace,
            fatal=failure.fatal,
            harmless=failure.harmless,
        )
        if fault.harmless:
            if fault.what not in self._told:
                self._told.add(fault.what)
                self._on_fault(fault)
            return
        if fault.fatal or self._left == 0:
            raise self._too_many(fault)
        self._left -= 1
        self._on_fault(fault)

    def _too_many(self, fault: Fault) -> EnvError:
        if fault.fatal:
            fix = "mend the environment: started anew it would do the same"
        else:
            fix = f"mend the environment; {self._restarts} failures are survived (base_config.env_restarts)"
        why = f"{fault.why}\n{fault.trace}" if fault.trace else fault.why
        return EnvError(fault.what, where=fault.where, why=why, fix=fix)
