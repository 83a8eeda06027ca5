"""Scripted agents, with the life cycle of the C# package's ``Agent``."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from algorithm.extras.unity.testing.channels import Channels
from algorithm.extras.unity.testing.data import Action, Behaviour, Book, Question, SensorValues, Timing
from algorithm.extras.unity.testing.faults import FaultPlan
from algorithm.extras.unity.testing.ledger import PlayerLedger
from algorithm.extras.unity.testing.messages import AgentInfoProto, ObservationProto, UnityOutputProto


class AgentHost:
    """Base of the academy, as agents use it: ids, the trainer's seed, and the next message.

    options: of the command line
    """

    def __init__(self, options: argparse.Namespace, faults: FaultPlan, ledger: PlayerLedger | None) -> None:
        self.options, self.faults, self.ledger = options, faults, ledger
        self.channels = Channels(self._note)
        self.seed = 0
        self.steps = 0  # of the process; another counter, for decisions, restarts with each reset
        self._last_id = -1
        self._output = UnityOutputProto()
        self._pending = False
        self._asking: dict[str, list[PlayerAgent]] = {}
        self._later: list[tuple[int, Callable[[], PlayerAgent]]] = []

    def next_id(self) -> int:
        """Return the id of a new agent; no id is used twice."""
        self._last_id += 1
        return self._last_id

    def add_later(self, steps: int, make: Callable[[], PlayerAgent]) -> None:
        """Add an agent, made by ``make``, to the scene after ``steps`` steps."""
        self._later.append((self.steps + steps, make))

    def put(self, agent: PlayerAgent, info: AgentInfoProto) -> None:
        """Add an agent's state to the next message."""
        name = agent.behaviour.name
        self._output.rl_output.agentInfos[name].value.append(info)
        self._pending = True
        if not info.done:
            self._asking.setdefault(name, []).append(agent)

    def _note(self, entry: dict[str, object]) -> None:
        """Write an entry to the ledger, if there is one."""
        if self.ledger is not None:
            self.ledger.write(entry)


class PlayerAgent(ABC):
    """An agent of the scene. A task overrides the last four methods."""

    def __init__(self, academy: AgentHost, behaviour: Behaviour, timing: Timing, *, group: int = 0) -> None:
        self.academy, self.behaviour, self.timing, self.group = academy, behaviour, timing, group
        self.id = academy.next_id()
        self.rng = np.random.default_rng([academy.seed & 0xFFFFFFFF, self.id])
        self.book = Book()
        self.reward = self.group_reward = 0.0
        self.asked_now = False  # a decision was taken in this step
        self.alive = True
        self._sensors = behaviour.sensors()
        self._steps = 0
        self._done = False  # the end was sent, and no decision was requested since
        self._decision_due = self._action_due = False
        self._begun = False

    @property
    def action(self) -> Action:
        """The last received action; zeros without one."""
        question = self.book.open
        if question is not None and question.action is not None:
            return question.action
        return Action(
            np.zeros(self.behaviour.continuous, np.float32), np.zeros(len(self.behaviour.branches), np.int32)
        )

    # In the order of a step of the academy.

    def request(self, step: int) -> None:
        """Request a decision if it is due at ``step``, like a ``DecisionRequester``."""
        if step % self.timing.period == self.timing.offset % self.timing.period:
            self._decision_due = self._action_due = True
        elif self.timing.between:
            self._action_due = True

    def count(self) -> None:
        """Count a step of the episode."""
        self._steps += 1

    def send_state(self) -> None:
        """Add the agent's state to the next message if it has requested a decision."""
        self.asked_now = self._decision_due
        if not self._decision_due:
            return
        values, mask = self.observe(), self.mask()
        self._record_transition(values, None)
        self.academy.put(self, self._info(values, mask=mask))
        self.book.open = Question(values, mask)
        self.book.decision += 1
        self._done = False
        self.reward = self.group_reward = 0.0
        self._decision_due = False

    def receive(self, action: Action) -> None:
        """Store the action for the last request."""
        if self.book.open is not None:
            self.book.open.action = action

    def step(self) -> None:
        """Act if an action is due, and interrupt the episode at its last step."""
        if self._action_due:
            self._action_due = False
            self.act(self.action)
        if self.alive and 0 < self.timing.max_step <= self._steps:
            self.interrupt()

    # Methods for tasks to call.

    def end_episode(self) -> None:
        """End the episode as terminated, and begin the next one."""
        self._notify("terminated")
        self.restart()

    def interrupt(self) -> None:
        """End the episode as interrupted, as ``MaxStep`` does, and begin the next one."""
        self._notify("interrupted")
        self.restart()

    def destroy(self) -> None:
        """Remove the agent; its open episode ends as terminated."""
        self._notify("terminated")
        self.alive = False

    def successor(self) -> PlayerAgent:
        """Return a new agent of the same kind, with another id."""
        return type(self)(self.academy, self.behaviour, self.timing, group=self.group)

    def restart(self) -> None:
        """Begin an episode without a message, as at the trainer's reset."""
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
        """Send the end of the episode, unless it was sent already."""
        if self._done:
            return
        values = self.observe()
        self._record_transition(values, end)
        self.academy.put(self, self._info(values, end=end))
        self._done = True
        self.reward = self.group_reward = 0.0
        self._decision_due = self._action_due = False

    def _info(
        self, values: SensorValues, *, mask: Sequence[bool] = (), end: str | None = None
    ) -> AgentInfoProto:
        """Return the agent's message."""
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

    def _observations(self, values: SensorValues) -> list[ObservationProto]:
        faults, blind = self.academy.faults, self.academy.options.nographics
        return [
            faults.message(
                sensor.observe(
                    np.zeros_like(value) if blind and sensor.needs_graphics else faults.values(value)
                )
            )
            for sensor, value in zip(self._sensors, values, strict=True)
        ]

    def _record_transition(self, values: SensorValues, end: str | None) -> None:
        """Write the transition since the last decision to the ledger, as its result is sent."""
        question = self.book.open
        if question is None or question.action is None or self.academy.ledger is None:
            return
        self.academy.ledger.write(
            {
                "kind": "transition",
                "behaviour": self.behaviour.name,
                "agent": self.id,
                "episode": self.book.episode,
                "decision": self.book.decision - 1,
                "obs": _numbers(question.values),
                "mask": question.mask,
                "continuous": question.action.continuous.tolist(),
                "discrete": question.action.discrete.tolist(),
                "reward": self.reward,
                "group_reward": self.group_reward,
                "after": _numbers(values),
                "end": end,
            }
        )

    # Methods that a task overrides.

    @abstractmethod
    def begin(self) -> None:
        """Begin an episode, like ``OnEpisodeBegin``."""

    @abstractmethod
    def observe(self) -> SensorValues:
        """Return a value for each sensor, like ``CollectObservations``."""

    def mask(self) -> list[bool]:
        """Return for each discrete action whether it is *forbidden*, branch after branch; empty: none is."""
        return []

    @abstractmethod
    def act(self, action: Action) -> None:
        """Apply an action, like ``OnActionReceived``: add to ``reward``, possibly end the episode."""


def _numbers(values: SensorValues) -> list[list[float]]:
    """Return the numbers of each sensor that is no image."""
    return [value.ravel().tolist() for value in values if value.dtype.kind == "f"]
