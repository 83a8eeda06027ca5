"""Observations, actions and stored steps of an agent: plain values that all other parts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy, of_modules

if TYPE_CHECKING:
    from algorithm.core.data import ActorOutput, Segment, SequenceBatch, State, StepBatch, UpdateResult
    from algorithm.core.errors import UsageError
    from algorithm.core.seeding import stream
    from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
else:
    __getattr__, __dir__ = lazy(
        __name__,
        of_modules(
            {
                "algorithm.core.data": "ActorOutput Segment SequenceBatch State StepBatch UpdateResult",
                "algorithm.core.errors": "UsageError",
                "algorithm.core.seeding": "stream",
                "algorithm.core.spec": "ActionSpec AgentSpec ObsSpec",
            },
        ),
    )

__all__ = [
    "ActionSpec",
    "ActorOutput",
    "AgentSpec",
    "ObsSpec",
    "Segment",
    "SequenceBatch",
    "State",
    "StepBatch",
    "UpdateResult",
    "UsageError",
    "stream",
]
