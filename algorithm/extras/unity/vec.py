"""Unity players as one vector environment, stepped concurrently by threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from algorithm.core.data import Float, State
from algorithm.core.errors import UsageError
from algorithm.core.spec import AgentSpec
from algorithm.env.base import ResetResult, StepResult, VecEnv
from algorithm.env.config import team_in
from algorithm.env.request import EnvRequest
from algorithm.extras.unity.player import PlayerError
from algorithm.extras.unity.players import Players, behaviour_names
from algorithm.extras.unity.slot import AgentNumbers, PlayerMessage, PlayerSlot, ResultRows

_CANNOT_RESUME = "a player cannot be set back"


class UnityVecEnv(VecEnv):
    """Players of a build, or the Unity Editor, as one environment with agents of several behaviours.

    ``reset_config`` and ``environment_parameters`` are sent with a player's first reset, and changes of them
    with the next exchange; ``env_args`` are further arguments of the build.

    A behaviour has its name in Unity, without the team if it has only one, or if teams share it (``teams`` of
    the request). The agents of a failed player vanish. Only whole players can be reset.

    Raises UsageError for settings that cannot work, and EnvError if a player does not start.
    """

    def __init__(self, request: EnvRequest) -> None:
        self._players = Players(request)
        self._parameters = request.parameters
        self._slots = self._players.slots
        self.time_limit = self.fps = None
        self.render_modes = () if request.unity.editor else ("human",)
        file, n = self._slots[0].player.file, request.n
        self.arrangement = "the Unity Editor" if file is None else f"{n} player{'s' * (n > 1)} of {file}"
        self._numbers = AgentNumbers()
        self._stale: dict[str, set[int]] = {}  # agents of a saved run, whose episodes end with the next reset
        known = self._players.behaviours
        self._names = behaviour_names(known, request.behaviours, shared=request.teams)
        self._teams: dict[int, int] = {}  # by the agents' numbers
        self.specs: Mapping[str, AgentSpec] = {self._names[name]: each.spec for name, each in known.items()}
        for name, each in known.items():
            if each.spec != self.specs[self._names[name]]:
                self.close()
                raise _unlike_teams(self._names[name], each.spec, self.specs[self._names[name]])
        self._rows: dict[str, list[int]] = {name: [] for name in self.specs}

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        """Reset players, with all their agents; return by behaviour those that wait for an action.

        indices: agents whose players are reset; None for all. After a restored state all are reset at first
        episode: ignored, since episodes have no numbers

        Agents that are gone are in ``removed``. A player that fails is replaced; raises EnvError once the
        budget of replacements is spent.
        """
        named = None if indices is None or self._stale else set(indices)
        slots = [slot for slot in self._slots if named is None or not named.isdisjoint(slot.agents.values())]
        former = {name: set(self._stale.get(name, ())) for name in self.specs}
        stale = set().union(*former.values())
        messages = self._players.survived(slots, self._players.on_all(slots, PlayerSlot.reset))
        for name, ids in self._ids(slots).items():
            former[name] |= ids
        for slot in slots:
            if not stale:
                self._numbers.release(slot.agents.values())
            slot.agents = {}
        all_rows = {name: ResultRows(spec) for name, spec in self.specs.items()}
        for slot in slots:
            self._read_message(slot, messages[slot.index], all_rows)
        self._numbers.release(stale)
        self._stale = {}
        results = {}
        for name, rows in all_rows.items():
            seen = rows.observation()
            gone = former[name].difference(rows.ids)
            stay = [number for number in self._rows[name] if number not in gone]
            self._rows[name] = stay + sorted(set(rows.ids).difference(stay))
            results[name] = ResetResult(
                **vars(seen), removed=np.array(sorted(gone), np.int64) if gone else None
            )
        return results

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        places = {name: {number: row for row, number in enumerate(ids)} for name, ids in self._rows.items()}
        of_slot = {slot.index: self._actions_of(slot, actions, places) for slot in self._slots}
        messages = self._players.on_all(self._slots, lambda slot: slot.step(of_slot[slot.index]))
        failed = [slot for slot in self._slots if isinstance(messages[slot.index], PlayerError)]
        vanished = self._ids(failed)
        survived = self._players.survived(self._slots, messages)
        for slot in failed:
            self._numbers.release(slot.agents.values())
            slot.agents = {}
        all_rows = {name: ResultRows(spec) for name, spec in self.specs.items()}
        left: list[int] = []
        for slot in self._slots:
            left += self._read_message(slot, survived[slot.index], all_rows)
        self._numbers.release(left)
        results = {name: rows.result(sorted(vanished[name])) for name, rows in all_rows.items()}
        for name, result in results.items():
            stay = result.ids if result.left is None else result.ids[~result.left]
            self._rows[name] = stay.tolist()
        return results

    @override
    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        self._parameters.renew(lessons)
        for slot in self._slots:
            slot.renew_parameters(self._parameters.samplers)

    @override
    def metrics(self) -> dict[str, float]:
        first, *others = (slot.statistics for slot in self._slots)
        return first.take(*others)

    @override
    def state(self) -> State:
        return State(
            {
                f"ids/{k}": np.array(sorted(ids), np.int64)
                for k, ids in enumerate(self._ids(self._slots).values())
            },
            {"behaviours": list(self.specs)},
        )

    @override
    def resume(self, state: State) -> dict[int, str]:
        """Mark all saved episodes as ended, since none can be repeated; the next reset is of all players."""
        saved = {name: state.arrays[f"ids/{k}"].tolist() for k, name in enumerate(state.meta["behaviours"])}
        self._stale = {name: now.union(saved.get(name, ())) for name, now in self._ids(self._slots).items()}
        self._numbers.reserve(set().union(*self._stale.values()))
        named = [min(slot.agents.values()) for slot in self._slots if slot.agents]
        return dict.fromkeys(named or sorted(set().union(*saved.values()))[:1], _CANNOT_RESUME)

    @override
    def environments_of(self, agents: Collection[int]) -> list[int]:
        """Return the indices of the players that hold ``agents``.

        Between :meth:`resume` and the next reset these are all players, since that reset is of all.
        """
        return [
            slot.index
            for slot in self._slots
            if self._stale or not set(agents).isdisjoint(slot.agents.values())
        ]

    @override
    def team_of(self, agent: int) -> int:
        return self._teams[agent]

    @override
    def close(self) -> None:
        self._players.close()

    def _ids(self, slots: Iterable[PlayerSlot]) -> dict[str, set[int]]:
        """Return the numbers of the players' agents, by behaviour."""
        ids: dict[str, set[int]] = {name: set() for name in self.specs}
        for slot in slots:
            for (behaviour, _), number in slot.agents.items():
                ids[self._names[behaviour]].add(number)
        return ids

    def _actions_of(
        self, slot: PlayerSlot, actions: Mapping[str, Float], places: Mapping[str, Mapping[int, int]]
    ) -> dict[str, Float]:
        """Return the actions of a player's agents, in the order of its last message.

        places: row of each agent, by behaviour
        """
        flat = {}
        for behaviour, agents in slot.awaiting.items():
            name = self._names[behaviour]
            numbers = [slot.agents[behaviour, agent] for agent in agents]
            flat[behaviour] = actions[name][[places[name][number] for number in numbers]]
        return flat

    def _read_message(
        self, slot: PlayerSlot, message: PlayerMessage, all_rows: Mapping[str, ResultRows]
    ) -> list[int]:
        """Add the agents of a message to the rows of their behaviours; return the numbers of those that left.

        An end of an episode and a request of the same agent share a row. An end without an earlier request
        is of an episode without a decision, and is ignored. An agent that is not in the message waits.
        """
        left = []
        slot.awaiting = {}
        if len(slot.behaviours) > slot.compared:
            self._players.compare(slot)
        for behaviour, (asking, ending) in message.items():
            rows = all_rows[self._names[behaviour]]
            base = rows.add(asking, ending)
            ends: dict[int, int] = {}
            for at, agent in enumerate(ending.ids):
                ends.setdefault(agent, base + len(asking) + at)
            for at, agent in enumerate(asking.ids):
                key, end = (behaviour, agent), ends.pop(agent, None)
                if key not in slot.agents:
                    slot.agents[key], end = self._numbers.take(), None
                    self._teams[slot.agents[key]] = team_in(behaviour)
                rows.put(slot.agents[key], base + at, end)
            for agent, end in ends.items():
                number = slot.agents.pop((behaviour, agent), None)
                if number is not None:
                    rows.put(number, None, end)
                    left.append(number)
            slot.awaiting[behaviour] = asking.ids
        return left


def _unlike_teams(behaviour: str, spec: AgentSpec, other: AgentSpec) -> UsageError:
    return UsageError(
        f"the teams of {behaviour} cannot share a policy",
        where="self_play.window",
        why=f"their sensors or actions differ: {spec}, and {other}",
        fix="give the agents of all teams the same ones, or set self_play.window: 0",
    )
