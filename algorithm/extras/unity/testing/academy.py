"""Stand-in for the C# package's Academy: steps all agents, and exchanges messages with the trainer."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from algorithm.extras.unity.testing.agent import AgentHost, PlayerAgent
from algorithm.extras.unity.testing.connection import Connection
from algorithm.extras.unity.testing.data import Action, Behaviour
from algorithm.extras.unity.testing.faults import FaultPlan
from algorithm.extras.unity.testing.ledger import PlayerLedger
from algorithm.extras.unity.testing.messages import (
    QUIT,
    RESET,
    UnityInputProto,
    UnityOutputProto,
    UnityRLCapabilitiesProto,
)

CAPABILITIES = UnityRLCapabilitiesProto(
    baseRLCapabilities=True,
    concatenatedPngObservations=True,
    compressedChannelMapping=True,
    hybridActions=True,
    trainingAnalytics=True,
    variableLengthObservation=True,
    multiAgentGroups=True,
)

Scene = Callable[["Academy", int], None]
"""(academy, number of the training area): function that adds the area's agents."""


class OtherVersionError(Exception):
    """Error of a trainer with another major version of the protocol."""


class QuitCommandError(Exception):
    """Exception for the trainer's command to quit."""


class Academy(AgentHost):
    """All agents of a scene, and the connection to the trainer.

    options: of the command line
    """

    def __init__(self, options: argparse.Namespace, faults: FaultPlan, ledger: PlayerLedger | None) -> None:
        super().__init__(options, faults, ledger)
        self.agents: list[PlayerAgent] = []
        self.after_step: list[Callable[[], None]] = []  # called when all agents have acted
        self._count = 0
        self._sent_behaviours: set[str] = set()
        self._behaviours: dict[str, Behaviour] = {}
        self._reset_once = False

    def add(self, agent: PlayerAgent) -> None:
        """Add an agent to the scene; after the first reset its episode begins at once."""
        self.agents.append(agent)
        self._behaviours[agent.behaviour.name] = agent.behaviour
        if self._reset_once:  # before that, the first reset begins the episode
            agent.restart()

    def run(self, connection: Connection, scene: Scene) -> None:
        """Do the handshake, build the scene, then step until an exception ends the run."""
        areas = self._shake_hands(connection)
        for area in range(areas):
            scene(self, area)
        while True:
            self._step(connection)

    def _shake_hands(self, connection: Connection) -> int:
        """Do the handshake; return the number of training areas."""
        options = self.options
        output = UnityOutputProto()
        first = output.rl_initialization_output
        first.name = "AcademySingleton"
        first.communication_version, first.package_version = options.api, options.package
        first.capabilities.CopyFrom(CAPABILITIES)
        answer = connection.exchange(output).rl_initialization_input
        self.seed = answer.seed
        if self.ledger is not None:
            self.ledger.start(self.faults.start, answer)
        print(f"Connected: seed {answer.seed}, API {answer.communication_version}", flush=True)
        self.faults.reach("handshake")
        if answer.communication_version.split(".")[0] != options.api.split(".")[0]:
            raise OtherVersionError(f"API {answer.communication_version}, and {options.api} here")
        command = connection.exchange(None)
        self.channels.receive(command.rl_input.side_channel)
        self._note({"kind": "command", "command": command.rl_input.command})
        self.faults.reach("reset")
        areas: int = answer.num_areas
        return max(1, areas)

    def _step(self, connection: Connection) -> None:
        """Step all agents, with an exchange of messages if there is something to send."""
        if not self._reset_once:
            self._reset()
        self.faults.reach("step", self.steps)
        self._add_due()
        agents = list(self.agents)
        for agent in agents:
            agent.request(self._count)
        self._count += 1
        self.steps += 1
        for agent in agents:
            agent.count()
            agent.send_state()
        if self._pending:
            self._exchange(connection)
        for agent in agents:
            if agent.alive:
                agent.step()
        for call in self.after_step:
            call()
        self.agents = [agent for agent in self.agents if agent.alive]

    def _add_due(self) -> None:
        """Add the agents that are due at this step."""
        due = [make for step, make in self._later if step <= self.steps]
        self._later = [entry for entry in self._later if entry[0] > self.steps]
        for make in due:
            self.add(make())

    def _reset(self) -> None:
        """Begin new episodes of all agents."""
        self._reset_once = True
        self._count = 0
        for agent in list(self.agents):
            agent.restart()

    def _exchange(self, connection: Connection) -> None:
        """Send the message and apply the trainer's answer."""
        output = self._output
        new = [name for name in output.rl_output.agentInfos if name not in self._sent_behaviours]
        for name in new:
            output.rl_initialization_output.brain_parameters.append(self._behaviours[name].proto())
        output.rl_output.side_channel = self.channels.take()
        if self.ledger is not None:
            self.ledger.flush()
        answer = connection.exchange(output)
        self._output, self._pending = UnityOutputProto(), False
        self._sent_behaviours.update(new)
        self._take(answer)

    def _take(self, answer: UnityInputProto) -> None:
        """Apply the trainer's answer: a command, or actions of the agents."""
        self.channels.receive(answer.rl_input.side_channel)
        asking, self._asking = self._asking, {}
        command = answer.rl_input.command
        if command == QUIT:
            raise QuitCommandError
        if command == RESET:
            self._note({"kind": "command", "command": RESET})
            self.faults.reach("reset")
            self._reset()
            return
        for name, actions in answer.rl_input.agent_actions.items():
            agents = asking.pop(name, [])
            if len(actions.value) != len(agents):
                raise ValueError(f"{len(actions.value)} actions for {len(agents)} agents of {name}")
            for agent, action in zip(agents, actions.value, strict=True):
                agent.receive(
                    Action(
                        np.array(action.continuous_actions, np.float32),
                        np.array(action.discrete_actions, np.int32),
                    )
                )
        if any(asking.values()):
            raise ValueError(f"no actions for agents of {', '.join(asking)}")


def idle() -> None:
    """Wait until the parent process ends, like a build that cannot connect to a trainer."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
