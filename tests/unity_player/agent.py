"""Agents with the life of an ``Agent`` of the C# package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tests.unity_player.messages import AgentInfoProto, BrainParametersProto, ObservationProto
from tests.unity_player.sensors import Sensor

if TYPE_CHECKING:
    from tests.unity_player.academy import Academy

Values = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Behaviour:
    """Spaces that agents share. ``name`` is that of Unity: ``Name?team=0``."""

    name: str
    sensors: Callable[[], list[Sensor]]
    continuous: int = 0
    branches: tuple[int, ...] = ()

    def proto(self) -> BrainParametersProto:
        brain = BrainParametersProto(brain_name=self.name, is_training=True)
        brain.action_spec.num_continuous_actions = self.continuous
        brain.action_spec.num_discrete_actions = len(self.branches)
        brain.action_spec.discrete_branch_sizes.extend(self.branches)
        return brain


@dataclass
class Action:
    """Numbers as the trainer sent them; zeros where nothing was received."""

    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]


@dataclass(kw_only=True)
class Timing:
    """The settings of a ``DecisionRequester``, and ``MaxStep``.

    between:  act with the last action in the steps between decisions, too
    max_step: steps after which an episode is interrupted; 0 for never
    """

    period: int = 1
    offset: int = 0
    between: bool = True
    max_step: int = 0


@dataclass
class Question:
    """A decision that was asked for: what was seen then, and what has followed."""

    values: Values
    mask: list[bool]
    action: Action | None = None


@dataclass
class Book:
    """Numbers that the agent counts for its ledger."""

    episode: int = 0
    decision: int = 0  # questions of this episode so far
    open: Question | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)


class Agent(ABC):
    """One object of the scene. A task overrides the last four methods."""

    def __init__(self, academy: Academy, behaviour: Behaviour, timing: Timing, *, group: int = 0) -> None:
        self.academy, self.behaviour, self.timing, self.group = academy, behaviour, timing, group
        self.id = academy.next_id()
        self.rng = np.random.default_rng([academy.seed & 0xFFFFFFFF, self.id])
        self.book = Book()
        self.reward = self.group_reward = 0.0
        self.asked_now = False  # a decision was taken in this step
        self.alive = True
        self._sensors = behaviour.sensors()
        self._steps = 0
        self._done = False  # the trainer has heard of the end and has not been asked since
        self._wants_decision = self._wants_action = False
        self._begun = False

    @property
    def action(self) -> Action:
        """The last action, zeros without one."""
        question = self.book.open
        if question is not None and question.action is not None:
            return question.action
        return Action(
            np.zeros(self.behaviour.continuous, np.float32), np.zeros(len(self.behaviour.branches), np.int32)
        )

    # In the order of a step of the academy.

    def request(self, step: int) -> None:
        """Ask for a decision where its turn has come: the ``DecisionRequester``."""
        if step % self.timing.period == self.timing.offset % self.timing.period:
            self._wants_decision = self._wants_action = True
        elif self.timing.between:
            self._wants_action = True

    def count(self) -> None:
        self._steps += 1

    def send_state(self) -> None:
        self.asked_now = self._wants_decision
        if not self._wants_decision:
            return
        values, mask = self.observe(), self.mask()
        self._settle(values, None)
        self.academy.put(self, self._info(values, mask=mask))
        self.book.open = Question(values, mask)
        self.book.decision += 1
        self._done = False
        self.reward = self.group_reward = 0.0
        self._wants_decision = False

    def receive(self, action: Action) -> None:
        """Take the answer to the last question."""
        if self.book.open is not None:
            self.book.open.action = action

    def step(self) -> None:
        """Act, and end where the steps are used up."""
        if self._wants_action:
            self._wants_action = False
            self.act(self.action)
        if self.alive and 0 < self.timing.max_step <= self._steps:
            self.interrupt()

    # What a task calls.

    def end_episode(self) -> None:
        """The task is over."""
        self._notify("terminated")
        self.restart()

    def interrupt(self) -> None:
        """The episode is cut off, as by ``MaxStep``."""
        self._notify("interrupted")
        self.restart()

    def destroy(self) -> None:
        """Remove the object; an open episode ends, which is no interruption."""
        self._notify("terminated")
        self.alive = False

    def successor(self) -> Agent:
        """Return an object like this one, with an id of its own."""
        return type(self)(self.academy, self.behaviour, self.timing, group=self.group)

    def restart(self) -> None:
        """Begin an episode without a word to the trainer: the answer to its reset."""
        self._steps = 0
        self.book.open = None
        if self._begun:
            self.book.episode += 1
        self._begun = True
        self.book.decision = 0
        for sensor in self._sensors:
            sensor.reset()
        self.begin()

    def _notify(self, end: str) -> None:
        if self._done:
            return
        values = self.observe()
        self._settle(values, end)
        self.academy.put(self, self._info(values, end=end))
        self._done = True
        self.reward = self.group_reward = 0.0
        self._wants_decision = self._wants_action = False

    def _info(self, values: Values, *, mask: Sequence[bool] = (), end: str | None = None) -> AgentInfoProto:
        return AgentInfoProto(
            id=self.id,
            reward=self.reward,
            done=end is not None,
            max_step_reached=end == "interrupted",
            action_mask=mask,
            observations=self._observations(values),
            group_id=self.group,
            group_reward=self.group_reward,
        )

    def _observations(self, values: Values) -> list[ObservationProto]:
        faults, blind = self.academy.faults, self.academy.options.nographics
        return [
            faults.message(
                sensor.observe(
                    np.zeros_like(value) if blind and sensor.needs_graphics else faults.values(value)
                )
            )
            for sensor, value in zip(self._sensors, values, strict=True)
        ]

    def _settle(self, values: Values, end: str | None) -> None:
        """Write the transition of the open question, now that its result is sent."""
        question = self.book.open
        if question is None or question.action is None or self.academy.ledger is None:
            return
        self.academy.ledger.transition(self, question, values, end)

    # A task.

    @abstractmethod
    def begin(self) -> None:
        """Begin an episode: C#'s ``OnEpisodeBegin``."""

    @abstractmethod
    def observe(self) -> Values:
        """Return a value for each sensor: ``CollectObservations``."""

    def mask(self) -> list[bool]:
        """Return which discrete actions are *not* possible, branch after branch; empty for none."""
        return []

    @abstractmethod
    def act(self, action: Action) -> None:
        """Take an action: ``OnActionReceived``. Adds to ``reward``, may end the episode."""
