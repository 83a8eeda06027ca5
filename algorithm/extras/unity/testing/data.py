"""Plain records of the scripted agents: their kinds, observations and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.extras.unity.testing.messages import BrainParametersProto
from algorithm.extras.unity.testing.sensors import Sensor

SensorValues = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Behaviour:
    """Spaces of a behaviour's agents; ``name`` as in Unity: ``Name?team=0``."""

    name: str
    sensors: Callable[[], list[Sensor]]
    continuous: int = 0
    branches: tuple[int, ...] = ()

    def proto(self) -> BrainParametersProto:
        """Return the behaviour's parameters as a message."""
        brain = BrainParametersProto(brain_name=self.name, is_training=True)
        brain.action_spec.num_continuous_actions = self.continuous
        brain.action_spec.num_discrete_actions = len(self.branches)
        brain.action_spec.discrete_branch_sizes.extend(self.branches)
        return brain


@dataclass
class Action:
    """Action as the trainer has sent it."""

    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]


@dataclass(kw_only=True)
class Timing:
    """The settings of a ``DecisionRequester``, and ``MaxStep``.

    period:   steps between decisions
    offset:   step of the first decision
    between:  repeat the last action in the steps between decisions
    max_step: steps after which an episode is interrupted; 0 for never
    """

    period: int = 1
    offset: int = 0
    between: bool = True
    max_step: int = 0


@dataclass
class Question:
    """A requested decision: observation and mask, and the action once it is received."""

    values: SensorValues
    mask: list[bool]
    action: Action | None = None


@dataclass
class Book:
    """Counts of an agent for its ledger, and its open request."""

    episode: int = 0
    decision: int = 0  # questions of this episode so far
    open: Question | None = None
