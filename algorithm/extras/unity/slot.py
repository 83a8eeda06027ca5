"""The player at one index with its replacements and agents; rows of results of all players' agents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from algorithm.core.data import Float, Int
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Observation, StepResult
from algorithm.env.parameters.config import Constant, ParameterSampler
from algorithm.env.request import EnvRequest
from algorithm.extras.unity.channels import PlayerChannels, Statistics, load_channels
from algorithm.extras.unity.player import Player
from algorithm.extras.unity.spaces import AgentStates, UnityBehaviour

PlayerMessage = Mapping[str, tuple[AgentStates, AgentStates]]
"""Unity's name of a behaviour -> its agents that request a decision, and those whose episode ends."""

AgentKey = tuple[str, int]
"""Unity's name of the behaviour, Unity's id of the agent."""


class PlayerSlot:
    """The player at one index, its replacements, and its agents.

    ``start``, ``reset`` and ``step`` may run in another thread.

    agents:   number of each agent that waits for an action, by its key
    awaiting: behaviour -> Unity's ids of the agents that await an action, in the order of the last message
    compared: number of the player's behaviours whose spaces have been compared
    """

    def __init__(self, index: int, request: EnvRequest) -> None:
        self.index = index
        self._request = request
        args = request.unity
        numbers = {name: Constant(value=float(value)) for name, value in (request.options or {}).items()}
        self._parameters: dict[str, ParameterSampler] = {**numbers, **request.parameters.samplers}
        self._channel_classes = load_channels(args.side_channels, request.folder)
        self._watched = request.render and index == 0
        self.statistics = Statistics()
        self.agents: dict[AgentKey, int] = {}
        self.awaiting: dict[str, list[int]] = {}
        self.steps = 0  # of this player
        self.compared = 0
        self._starts = 0
        self._player: Player | None = None
        self._channels: PlayerChannels | None = None

    @property
    def player(self) -> Player:
        """The current player; :meth:`start` comes before."""
        assert self._player is not None, "started before"
        return self._player

    @property
    def behaviours(self) -> Mapping[str, UnityBehaviour]:
        """Behaviours that have appeared in the player so far, by Unity's names."""
        behaviours: Mapping[str, UnityBehaviour] = self.player.env.behaviours
        return behaviours

    @property
    def seed(self) -> int:
        """Seed of the last start."""
        return self._request.seed_of(self.index, self._request.since + self._starts - 1)

    @property
    def place(self) -> str:
        """Index, start, seed and step of the player, for messages."""
        return f"player {self.index}, start {self._starts}, seed {self.seed}, step {self.steps}"

    def start(self) -> None:
        """Start a player, after the end of any other. Raises as :class:`Player`."""
        self.close()
        self._starts += 1
        self.steps = self.compared = 0
        self._channels = PlayerChannels(
            self._request.unity,
            watched=self._watched,
            classes=self._channel_classes,
            seed=self.seed,
            statistics=self.statistics,
        )
        self._player = Player(
            self._request,
            index=self.index,
            no_graphics=self._request.unity.no_graphics and not self._watched,
            seed=self.seed,
            side_channels=self._channels.all,
        )

    def reset(self) -> PlayerMessage:
        """Start new episodes of all agents; return the first message. Raises PlayerError."""
        assert self._channels is not None, "started before"
        self._channels.send(self._parameters)
        self.player.env.reset()
        return self._message()

    def renew_parameters(self, samplers: Mapping[str, ParameterSampler]) -> None:
        """Send the changed parameters with the next exchange."""
        self._parameters |= samplers
        if self._channels is not None:
            self._channels.send(self._parameters)

    def step(self, actions: Mapping[str, Float]) -> PlayerMessage:
        """Send flat actions, by behaviour in the order of ``awaiting``; return the next message.

        Raises PlayerError.
        """
        env = self.player.env
        for name, flat in actions.items():
            env.set_actions(name, self.behaviours[name].actions(flat))
        self.steps += 1
        env.step()
        return self._message()

    def random_step(self, rng: np.random.Generator) -> PlayerMessage:
        """Step with random actions that the last masks allow; return the next message."""
        actions = {}
        for name, behaviour in self.behaviours.items():
            asking, _ = self.player.env.get_steps(name)
            actions[name], _, _ = behaviour.spec.action.random(rng, asking.action_mask)
        return self.step(actions)

    def close(self) -> None:
        """End the player, within five seconds."""
        if self._player is not None:
            self._player.close()
            self._player = None

    def _message(self) -> PlayerMessage:
        """Return the states of the player's agents, by behaviour."""
        return {name: self.player.env.get_steps(name) for name in self.behaviours}


class AgentNumbers:
    """Allocator of agents' numbers, unique over all players and behaviours; the smallest free one is next."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._lowest = 0  # no smaller number is free

    def take(self) -> int:
        """Return the smallest free number, which is taken then."""
        while self._lowest in self._taken:
            self._lowest += 1
        self._taken.add(self._lowest)
        return self._lowest

    def reserve(self, numbers: Collection[int]) -> None:
        """Take numbers, free or not."""
        self._taken.update(numbers)

    def release(self, numbers: Collection[int]) -> None:
        """Make numbers free."""
        self._taken.difference_update(numbers)
        self._lowest = min((self._lowest, *numbers))


class ResultRows:
    """Rows of one behaviour's result, collected from the messages of all players."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._states = [_no_states(spec)]  # so that there is always an array to join
        self._total = 0
        self.ids: list[int] = []
        self._seen: list[int] = []  # index, among all states, of the observation to act on
        self._end: list[int] = []  # index of the final observation, −1 without one
        self._left: list[bool] = []

    def add(self, *states: AgentStates) -> int:
        """Add the states of agents; return the place of the first one among all states."""
        base = self._total
        for state in states:
            if len(state):
                self._states.append(state)
                self._total += len(state)
        return base

    def put(self, number: int, seen: int | None, end: int | None) -> None:
        """Add the row of an agent.

        seen, end: places of the observation to act on, and of the end of the episode; not both None
        """
        place = end if seen is None else seen
        assert place is not None
        self.ids.append(number)
        self._seen.append(place)
        self._end.append(-1 if end is None else end)
        self._left.append(seen is None)

    def observation(self) -> Observation:
        """Return the observations to act on, in the order of the agents' numbers."""
        return self._observation(self._order(), np.array(self._seen, np.int64))

    def result(self, vanished: Sequence[int]) -> StepResult:
        """Return the result, in the order of the agents' numbers; vanished: agents of failed players."""
        order = self._order()
        seen, end = np.array(self._seen, np.int64), np.array(self._end, np.int64)
        ended, last = (end >= 0)[order], np.where(end >= 0, end, seen)
        left = np.array(self._left, np.bool_)[order]
        interrupted = self._column("interrupted")[last][order] & ended
        return StepResult(
            **vars(self._observation(order, seen)),
            reward=self._column("reward")[last][order],
            terminated=ended & ~interrupted,
            truncated=interrupted,
            final=self._observation(order, last) if ended.any() else None,
            left=left if left.any() else None,
            vanished=np.array(vanished, np.int64) if vanished else None,
        )

    def _order(self) -> Int:
        """Return the order of the rows by the agents' numbers."""
        order: Int = np.argsort(np.array(self.ids, np.int64), kind="stable")
        return order

    def _observation(self, order: Int, places: Int) -> Observation:
        rows = places[order]
        return Observation(
            ids=np.array(self.ids, np.int64)[order],
            obs={
                name: np.concatenate([state.obs[name] for state in self._states])[rows]
                for name in self._spec.obs.names
            },
            action_mask=self._column("action_mask")[rows],
        )

    def _column(self, name: str) -> Any:  # noqa: ANN401 - an array of the column's dtype
        return np.concatenate([getattr(state, name) for state in self._states])


def _no_states(spec: AgentSpec) -> AgentStates:
    """Return the states of no agents."""
    return AgentStates(
        ids=[],
        obs=spec.obs.zeros(0),
        reward=np.zeros(0, np.float32),
        action_mask=spec.action.all_allowed(0),
        interrupted=np.zeros(0, np.bool_),
    )
