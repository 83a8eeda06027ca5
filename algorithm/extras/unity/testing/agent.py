"""Agents with the life of an ``Agent`` of the C# package."""

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
    """Part of the academy that agents share: their ids, the trainer's seed, the message that they add to.

    options: of the command line
    """

    def __init__(self, options: argparse.Namespace, faults: FaultPlan, ledger: PlayerLedger | None) -> None:
        self.options, self.faults, self.ledger = options, faults, ledger
        self.channels = Channels(self._note)
        self.seed = 0
        self.steps = 0  # of the process; the counter that decisions follow starts anew with each reset
        self._last_id = -1
        self._output = UnityOutputProto()
        self._pending = False
        self._asking: dict[str, list[PlayerAgent]] = {}
        self._later: list[tuple[int, Callable[[], PlayerAgent]]] = []

    def next_id(self) -> int:
        """Return the id of a new object; no id is used twice."""
        self._last_id += 1
        return self._last_id

    def add_later(self, steps: int, make: Callable[[], PlayerAgent]) -> None:
        """Put an object into the scene after so many steps, with an id of its own."""
        self._later.append((self.steps + steps, make))

    def put(self, agent: PlayerAgent, info: AgentInfoProto) -> None:
        """Add an agent's state to the next message."""
        name = agent.behaviour.name
        self._output.rl_output.agentInfos[name].value.append(info)
        self._pending = True
        if not info.done:
            self._asking.setdefault(name, []).append(agent)

    def _note(self, entry: dict[str, object]) -> None:
        if self.ledger is not None:
            self.ledger.write(entry)


class PlayerAgent(ABC):
    """One object of the scene. A task overrides the last four methods."""

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
        """Count a step of the episode."""
        self._steps += 1

    def send_state(self) -> None:
        """Hand the academy a question where the agent wants a decision."""
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
        """End the episode: the task is over."""
        self._notify("terminated")
        self.restart()

    def interrupt(self) -> None:
        """Cut the episode off, as ``MaxStep`` does."""
        self._notify("interrupted")
        self.restart()

    def destroy(self) -> None:
        """Remove the object; an open episode ends, which is no interruption."""
        self._notify("terminated")
        self.alive = False

    def successor(self) -> PlayerAgent:
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

    def _info(
        self, values: SensorValues, *, mask: Sequence[bool] = (), end: str | None = None
    ) -> AgentInfoProto:
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

    def _settle(self, values: SensorValues, end: str | None) -> None:
        """Write the transition of the open question, now that its result is sent."""
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

    # A task.

    @abstractmethod
    def begin(self) -> None:
        """Begin an episode: C#'s ``OnEpisodeBegin``."""

    @abstractmethod
    def observe(self) -> SensorValues:
        """Return a value for each sensor: ``CollectObservations``."""

    def mask(self) -> list[bool]:
        """Return which discrete actions are *not* possible, branch after branch; empty for none."""
        return []

    @abstractmethod
    def act(self, action: Action) -> None:
        """Take an action: ``OnActionReceived``. Adds to ``reward``, may end the episode."""


def _numbers(values: SensorValues) -> list[list[float]]:
    """Return the numbers of each sensor; images are left out."""
    return [value.ravel().tolist() for value in values if value.dtype.kind == "f"]
