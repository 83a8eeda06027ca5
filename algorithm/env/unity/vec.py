"""Unity players as one vector environment, stepped at once by threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from algorithm.core.data import Float, State
from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.env.base import EpisodeSeed, ResetResult, StepResult, VecEnv
from algorithm.env.config import without_team
from algorithm.env.pool.env_group import GroupFailure
from algorithm.env.pool.restart_budget import RestartBudget
from algorithm.env.rules import read_parameters
from algorithm.env.unity.channels import load_channels
from algorithm.env.unity.player import PlayerError, player_options
from algorithm.env.unity.result_rows import ResultRows
from algorithm.env.unity.seat import AgentNumbers, PlayerMessage, PlayerSetup, Seat, UnityOptions
from algorithm.env.unity.spaces import UnityBehaviour, changed_spaces
from algorithm.env.unity.start import absent, behaviour_names, black_images, late, use_graphics

_CANNOT_RESUME = "a player cannot be set back"

_T = TypeVar("_T")


class UnityVecEnv(VecEnv):
    """``n`` players of a build, or the Unity Editor.

    env_name: scene; env_args: further arguments of the build
    parameters: ``reset_config``, sent with every reset
    folder:  of the task; log: of the players' output
    timeout: seconds for the start of a player, each of its messages, and for behaviours at the start
    budget:  of failures that are survived by starting another player

    A behaviour is called by its name in Unity, without the team where there is only one. The agents of a
    player that fails vanish. A reset is one of a whole player.

    Raises UsageError for settings that cannot work and EnvError if a player does not start.
    """

    def __init__(
        self,
        env_name: str,
        env_args: Mapping[str, Any],
        *,
        n: int,
        options: UnityOptions,
        parameters: Mapping[str, Any] | None,
        seed_of: EpisodeSeed,
        folder: Path | None,
        log: Path | None,
        timeout: float,
        budget: RestartBudget,
    ) -> None:
        args, self._budget, self._timeout = options.args, budget, timeout
        setup = PlayerSetup(
            unity=options,
            parameters=read_parameters(parameters),
            channels=load_channels(args.side_channels, folder),
            seed_of=seed_of,
        )
        described = [
            player_options(
                args,
                env_name,
                env_args,
                folder=folder,
                timeout=timeout,
                log_dir=log,
                label=options.purpose,
                index=index,
                graphics=options.watched,
            )
            for index in range(n)
        ]
        self._seats = [Seat(index, one, setup) for index, one in enumerate(described)]
        self._threads = ThreadPoolExecutor(n, thread_name_prefix="unity player") if n > 1 else None
        self.time_limit = self.fps = None
        self.render_modes = () if args.editor else ("human",)
        build = described[0].file
        self.arrangement = "the Unity Editor" if build is None else f"{n} player{'s' * (n > 1)} of {build}"
        self._numbers = AgentNumbers()
        self._rng = np.random.default_rng(setup.seed_of(0, options.since))
        self._stale: dict[str, set[int]] = {}  # agents of a saved run, whose episodes end with the next reset
        try:
            found = self._meet(options.behaviours)
            if described[0].no_graphics and not args.editor and (black := black_images(self._seats)):
                self._remark(use_graphics(self._seats, black, args.no_graphics), where=", ".join(black))
                found = found if args.no_graphics is True else self._meet(options.behaviours)
            for seat in self._seats:
                self._remark(seat.player.remark, where=seat.place)
        except BaseException:
            self.close()
            raise
        self._behaviours, self._names = found, behaviour_names(found, options.behaviours)
        self.specs: Mapping[str, AgentSpec] = {self._names[name]: one.spec for name, one in found.items()}
        self._rows: dict[str, list[int]] = {name: [] for name in self.specs}
        self._known: dict[str, set[int]] = {name: set() for name in self.specs}  # with the last result

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        """Reset the players of the agents ``indices``. Episodes have no numbers: ``episode`` is ignored."""
        named = None if indices is None or self._stale else set(indices)
        seats = [seat for seat in self._seats if named is None or not named.isdisjoint(seat.agents.values())]
        former = {name: set(self._stale.get(name, ())) for name in self.specs}
        stale = set().union(*former.values())
        messages = self._survived(seats, self._on_all(seats, Seat.reset))
        for seat in seats:
            for (_, behaviour, _), number in seat.agents.items():
                former[self._names[behaviour]].add(number)
            if not stale:
                self._numbers.release(seat.agents.values())
            seat.agents = {}
        found = {name: ResultRows(self.specs[name]) for name in self.specs}
        for seat in seats:
            self._seat_agents(seat, messages[seat.index], found, but=stale)
        if stale:
            self._numbers.release(set().union(*former.values()))
        self._stale, self._known = {}, self._ids()
        results = {}
        for name, rows in found.items():
            seen = rows.observation()
            gone = former[name].difference(rows.ids)
            stay = [number for number in self._rows[name] if number not in gone]
            self._rows[name] = stay + sorted(set(rows.ids).difference(stay))
            results[name] = ResetResult(
                **vars(seen), removed=np.array(sorted(gone), np.int64) if gone else None
            )
        return results

    @override
    def drop(self, agents: Collection[int]) -> dict[str, ResetResult]:
        """Ignore the agents until their next episodes, since Unity ends no single one when asked.

        A player is reset where these are all of its agents.
        """
        gone = set(agents)
        alone = [seat for seat in self._seats if gone.issuperset(seat.agents.values())]
        whole = [number for seat in alone for number in seat.agents.values()]
        leaving = gone.difference(whole)
        results = self.reset(whole)
        for seat in self._seats:
            for key in [key for key, number in seat.agents.items() if number in leaving]:
                name = self._names[key[1]]
                number = seat.agents.pop(key)
                seat.muted.add(key)
                self._rows[name] = [row for row in self._rows[name] if row != number]
                before = results[name].removed
                removed = np.append([] if before is None else before, number).astype(np.int64)
                results[name] = replace(results[name], removed=removed)
        self._numbers.release(leaving)
        self._known = self._ids()
        return results

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        places = {name: {number: row for row, number in enumerate(ids)} for name, ids in self._rows.items()}
        own = {seat.index: self._actions_of(seat, actions, places) for seat in self._seats}
        messages = self._on_all(self._seats, lambda seat: seat.step(own[seat.index]))
        failed = [seat for seat in self._seats if isinstance(messages[seat.index], PlayerError)]
        vanished: dict[str, list[int]] = {name: [] for name in self.specs}
        survived = self._survived(self._seats, messages)
        for seat in failed:
            for (_, behaviour, _), number in seat.agents.items():
                vanished[self._names[behaviour]].append(number)
            self._numbers.release(seat.agents.values())
            seat.agents = {}
        found = {name: ResultRows(spec) for name, spec in self.specs.items()}
        left: list[int] = []
        for seat in self._seats:
            left += self._seat_agents(seat, survived[seat.index], found)
        self._numbers.release(left)
        self._known = self._ids()
        results = {name: rows.result(sorted(vanished[name])) for name, rows in found.items()}
        for name, result in results.items():
            stay = result.ids if result.left is None else result.ids[~result.left]
            self._rows[name] = stay.tolist()
        return results

    @override
    def metrics(self) -> dict[str, float]:
        first, *others = (seat.statistics for seat in self._seats)
        return first.take(*others)

    @override
    def state(self) -> State:
        return State(
            {f"ids/{k}": np.array(sorted(ids), np.int64) for k, ids in enumerate(self._known.values())},
            {"behaviours": list(self._known)},
        )

    @override
    def resume(self, state: State) -> dict[int, str]:
        """End all saved episodes: no player can repeat them. The next reset is one of all players."""
        saved = {name: state.arrays[f"ids/{k}"].tolist() for k, name in enumerate(state.meta["behaviours"])}
        self._stale = {name: now.union(saved.get(name, ())) for name, now in self._known.items()}
        named = [min(seat.agents.values()) for seat in self._seats if seat.agents]
        return dict.fromkeys(named or sorted(set().union(*saved.values()))[:1], _CANNOT_RESUME)

    @override
    def environments_of(self, agents: Collection[int]) -> list[int]:
        """Return the numbers of the agents' players; of all while saved episodes are to end."""
        return [
            seat.index
            for seat in self._seats
            if self._stale or not set(agents).isdisjoint(seat.agents.values())
        ]

    @override
    def close(self) -> None:
        """End all players, within five seconds."""
        # Not by the threads that step: if an exception interrupts the wait for them, they wait for players.
        with ThreadPoolExecutor(len(self._seats)) as threads:
            list(threads.map(Seat.close, self._seats))
        if self._threads is not None:
            self._threads.shutdown()

    def _ids(self) -> dict[str, set[int]]:
        """Return the agents of each behaviour, waiting ones too."""
        ids: dict[str, set[int]] = {name: set() for name in self.specs}
        for seat in self._seats:
            for (_, behaviour, _), number in seat.agents.items():
                ids[self._names[behaviour]].add(number)
        return ids

    def _actions_of(
        self, seat: Seat, actions: Mapping[str, Float], places: Mapping[str, Mapping[int, int]]
    ) -> dict[str, Float]:
        """Return the actions of a player's agents, in the order of its last message.

        places: row of each agent, by behaviour
        """
        own = {}
        for behaviour, asked in seat.asked.items():
            name = self._names[behaviour]
            keys = [(seat.index, behaviour, agent) for agent in asked]
            rows = [places[name][seat.agents[key]] for key in keys if key in seat.agents]
            if len(rows) == len(keys):
                own[behaviour] = actions[name][rows]
                continue
            own[behaviour] = seat.random_actions(behaviour, self._rng)  # what muted agents do is not recorded
            own[behaviour][[key in seat.agents for key in keys]] = actions[name][rows]
        return own

    def _seat_agents(
        self, seat: Seat, message: PlayerMessage, found: Mapping[str, ResultRows], *, but: Iterable[int] = ()
    ) -> list[int]:
        """Add the agents of a message to the rows of their behaviours; return the numbers of those that left.

        An agent with an end and a question has both in one row. An end of an agent that was not asked before
        belongs to an episode without a decision, and is passed over. An agent that is not in the message
        waits. A muted one is new once its episode has ended.
        """
        left = []
        seat.asked = {}
        if len(seat.behaviours) > seat.compared:
            self._compare(seat)
        for behaviour, (asking, ending) in message.items():
            rows = found[self._names[behaviour]]
            base = rows.add(asking, ending)
            ends: dict[int, int] = {}
            for at, agent in enumerate(ending.ids):
                ends.setdefault(agent, base + len(asking) + at)
            for at, agent in enumerate(asking.ids):
                key = (seat.index, behaviour, agent)
                if key in seat.muted and agent not in ends:
                    continue
                seat.muted.discard(key)
                end = ends.pop(agent, None) if key in seat.agents else None
                if key not in seat.agents:
                    ends.pop(agent, None)
                    seat.agents[key] = self._numbers.take(key, but=but)
                rows.put(seat.agents[key], base + at, end)
            for agent, end in ends.items():
                seat.muted.discard((seat.index, behaviour, agent))
                number = seat.agents.pop((seat.index, behaviour, agent), None)
                if number is not None:
                    rows.put(number, None, end)
                    left.append(number)
            seat.asked[behaviour] = asking.ids
        return left

    def _survived(
        self, seats: Sequence[Seat], outcomes: Mapping[int, PlayerMessage | Exception]
    ) -> dict[int, PlayerMessage]:
        """Return a message of every player: of those that failed, the first one of the next player."""
        messages: dict[int, PlayerMessage] = {}
        for seat in seats:
            outcome = outcomes[seat.index]
            while isinstance(outcome, PlayerError):
                self._survive(outcome, seat)
                outcome = _caught(_restart, seat)
            if isinstance(outcome, Exception):
                raise outcome
            messages[seat.index] = outcome
        return messages

    def _survive(self, error: PlayerError, seat: Seat) -> None:
        """Count a failure. Raises EnvError for one too many."""
        why, _, more = error.why.partition("\n")
        failure = GroupFailure(
            envs=(seat.index,), culprit=None, what=error.what, why=why, trace=f"{error.where}\n{more}"
        )
        try:
            self._budget.survive(failure, seat.place)
        except EnvError as last:
            raise EnvError(
                error.what,
                where=f"{seat.place}\n{error.where}",
                why=error.why,
                fix=f"{error.fix}\n{last.fix}" if self._budget.spent else error.fix,
            ) from error

    def _compare(self, seat: Seat) -> None:
        """Raise EnvError unless a player's behaviours so far are known, with the same spaces."""
        for name, behaviour in seat.behaviours.items():
            if name not in self._behaviours:
                raise late(self._behaviours, name)
            before = self._behaviours[name]
            if behaviour.differs(before):
                raise changed_spaces(name, before.describe(), behaviour.describe())
        seat.compared = len(seat.behaviours)

    def _meet(self, awaited: Sequence[str]) -> dict[str, UnityBehaviour]:
        """Return the behaviours of all players; step with random actions until the ``awaited`` are there.

        The episodes of that time are dropped: a reset follows. Raises UsageError if one does not come.
        """
        end = time.monotonic() + self._timeout if self._timeout > 0 else float("inf")
        self._begin()
        while True:
            found: dict[str, UnityBehaviour] = {}
            for seat in self._seats:
                for name, behaviour in seat.behaviours.items():
                    if found.setdefault(name, behaviour).differs(behaviour):
                        raise changed_spaces(name, found[name].describe(), behaviour.describe())
            there = {*found, *(without_team(name) for name in found)}
            missing = [name for name in awaited if name not in there]
            if found and not missing:
                return dict(sorted(found.items()))
            if time.monotonic() > end:
                raise absent(missing, found, self._timeout)
            generators = {seat.index: self._rng.spawn(1)[0] for seat in self._seats}
            stepped = self._on_all(self._seats, lambda seat: seat.random_step(generators[seat.index]))  # noqa: B023
            self._survived(self._seats, stepped)

    def _begin(self) -> None:
        """Start and reset all players. No other follows one that ends in that: it would end alike."""
        outcomes = self._on_all(self._seats, _restart)
        for outcome in outcomes.values():
            if isinstance(outcome, PlayerError) and outcome.kind != "hangs":
                raise outcome
        self._survived(self._seats, outcomes)

    def _remark(self, text: str, *, where: str) -> None:
        """Report what is no failure."""
        if text:
            fix = "it goes on"  # a training, an evaluation, a check
            self._budget.survive(GroupFailure(envs=(), culprit=None, what=text, why="", fix=fix), where)

    def _on_all(self, seats: Sequence[Seat], call: Callable[[Seat], _T]) -> dict[int, _T | Exception]:
        """Return the result of a call for each player, or what it raised."""
        if self._threads is None or len(seats) < 2:
            return {seat.index: _caught(call, seat) for seat in seats}
        running = {seat.index: self._threads.submit(_caught, call, seat) for seat in seats}
        return {index: future.result() for index, future in running.items()}


def _caught(call: Callable[[Seat], _T], seat: Seat) -> _T | Exception:
    try:
        return call(seat)
    except Exception as error:
        return error


def _restart(seat: Seat) -> PlayerMessage:
    seat.start()
    return seat.reset()
