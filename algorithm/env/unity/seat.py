"""The player at one index, its replacements, and its agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from algorithm.core.data import Float
from algorithm.env.base import EpisodeSeed
from algorithm.env.config import UnityArgs
from algorithm.env.rules import EnvParameter
from algorithm.env.unity.channels import PlayerChannels, Statistics
from algorithm.env.unity.player import Player, PlayerOptions, open_player
from algorithm.env.unity.spaces import AgentStates, UnityBehaviour

PlayerMessage = Mapping[str, tuple[AgentStates, AgentStates]]
"""Unity's name of a behaviour -> its agents that ask for a decision, and those that end."""

AgentKey = tuple[int, str, int]
"""Seat, Unity's name of the behaviour, Unity's id of the agent."""


@dataclass(frozen=True, kw_only=True)
class UnityOptions:
    """Settings of Unity players besides those of every environment.

    args:       ``base_config.unity_args``
    behaviours: those that ``ma_config`` names, which are waited for at the start
    purpose:    name of the players' files
    watched:    a person watches: real time, a large window, graphics
    since:      number of the first start of each player; another one, and other seeds, in a resumed run
    """

    args: UnityArgs = field(default_factory=UnityArgs)
    behaviours: tuple[str, ...] = ()
    purpose: str = "player"
    watched: bool = False
    since: int = 0


@dataclass(frozen=True, kw_only=True)
class PlayerSetup:
    """Everything that a player is told.

    channels: classes of ``unity_args.side_channels``
    seed_of:  (seat, number of the start) -> seed
    """

    unity: UnityOptions
    parameters: Mapping[str, EnvParameter]
    channels: Sequence[type[Any]]
    seed_of: EpisodeSeed


class Seat:
    """The player at one index, its replacements, and its agents.

    ``start``, ``reset`` and ``step`` may run in a thread of their own.

    agents: number of every agent with an open question, by its key
    muted:  agents whose episodes go on in Unity and are not seen here
    asked:  Unity's ids of the agents in the last message that wait for an action, in its order
    compared: number of the player's behaviours whose spaces have been compared
    """

    def __init__(self, index: int, options: PlayerOptions, setup: PlayerSetup) -> None:
        self.index, self._options, self._setup = index, options, setup
        self.statistics = Statistics()
        self.agents: dict[AgentKey, int] = {}
        self.muted: set[AgentKey] = set()
        self.asked: dict[str, list[int]] = {}
        self.steps = 0  # of this player
        self.compared = 0
        self._starts = 0
        self._player: Player | None = None
        self._channels: PlayerChannels | None = None

    @property
    def player(self) -> Player:
        """The player; there is one after :meth:`start`."""
        assert self._player is not None, "started before"
        return self._player

    @property
    def behaviours(self) -> Mapping[str, UnityBehaviour]:
        """Behaviours that the player has shown so far, by Unity's names."""
        found: Mapping[str, UnityBehaviour] = self.player.env.behaviours
        return found

    @property
    def seed(self) -> int:
        """Seed of the last start."""
        return self._setup.seed_of(self.index, self._setup.unity.since + self._starts - 1)

    @property
    def place(self) -> str:
        """The player among all of a run, for messages."""
        return f"player {self.index}, start {self._starts}, seed {self.seed}, step {self.steps}"

    def start(self) -> None:
        """Start a player, after the end of any other. Raises what ``open_player`` raises."""
        self.close()
        self._starts += 1
        self.steps = self.compared = 0
        setup = self._setup
        self._channels = PlayerChannels(
            setup.unity.args,
            watched=setup.unity.watched,
            parameters=setup.parameters,
            own=setup.channels,
            seed=self.seed,
            statistics=self.statistics,
        )
        self._player = open_player(self._options, seed=self.seed, side_channels=self._channels.all)

    def reset(self) -> PlayerMessage:
        """Begin all episodes anew. Raises PlayerError."""
        assert self._channels is not None, "started before"
        self.muted.clear()
        self._channels.before_reset()
        self.player.env.reset()
        return self._message()

    def step(self, actions: Mapping[str, Float]) -> PlayerMessage:
        """Return what comes of flat actions, by behaviour in the order of ``asked``. Raises PlayerError."""
        env = self.player.env
        for name, flat in actions.items():
            env.set_actions(name, self.behaviours[name].actions(flat))
        self.steps += 1
        env.step()
        return self._message()

    def random_step(self, rng: np.random.Generator) -> PlayerMessage:
        """Step with random actions that the last message allows."""
        return self.step({name: self.random_actions(name, rng) for name in self.behaviours})

    def random_actions(self, name: str, rng: np.random.Generator) -> Float:
        """Return actions of a behaviour's agents that ask, [N, A], as the last message allows them."""
        asking, _ = self.player.env.get_steps(name)
        flat, _, _ = self.behaviours[name].spec.action.random(rng, asking.action_mask)
        return flat

    def draw(self) -> None:
        """Give graphics to all players from the next one on."""
        self._options = replace(self._options, no_graphics=False)

    def close(self) -> None:
        """End the player, within five seconds."""
        if self._player is not None:
            self._player.close()
            self._player = None

    def _message(self) -> PlayerMessage:
        return {name: self.player.env.get_steps(name) for name in self.behaviours}


class AgentNumbers:
    """Numbers of agents, unique over all players and behaviours: the smallest ones that are free.

    An agent that comes back gets its former number as long as no other has it.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._former: dict[AgentKey, int] = {}  # last holder of each number
        self._holder: dict[int, AgentKey] = {}
        self._lowest = 0  # no smaller number is free

    def take(self, agent: AgentKey, *, but: Iterable[int] = ()) -> int:
        """Return a number for an agent, none of ``but``."""
        excluded = set(but)
        number = self._former.get(agent, -1)
        if number < 0 or number in self._taken or number in excluded:
            number = self._smallest(excluded)
        self._taken.add(number)
        before = self._holder.get(number)
        if before is not None and self._former.get(before) == number:
            del self._former[before]  # so that there is at most one for each number
        if (old := self._former.get(agent)) is not None:
            self._holder.pop(old, None)
        self._holder[number] = agent
        self._former[agent] = number
        return number

    def release(self, numbers: Iterable[int]) -> None:
        """Make numbers free."""
        for number in numbers:
            self._taken.discard(number)
            self._lowest = min(self._lowest, number)

    def _smallest(self, excluded: set[int]) -> int:
        while self._lowest in self._taken:
            self._lowest += 1
        number = self._lowest
        while number in self._taken or number in excluded:
            number += 1
        return number
