"""PettingZoo environments (https://pettingzoo.farama.org), several agents each, stepped in this process."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.core.steps import Array, Float
from algorithm.env.base import Observation, Picture, ResetResult, StepResult, VecEnv
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.pool.env_group import RestartBudget, failure_of
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.pool.repetition import spec_as_json
from algorithm.env.request import EnvRequest
from algorithm.extras.league.games import IDLE, Game, Turn, make_game
from algorithm.extras.league.grouping import Sight
from algorithm.extras.league.results import (
    AgentRow,
    difference,
    observation,
    saved_arrays,
    saved_observation,
    step_result,
)


class PettingZooVecEnv(VecEnv):
    """Environments of PettingZoo; agent k of environment i has the id ``i·A + k``, A of them are possible.

    In a parallel environment all agents that are alive need an action, else only the one whose turn it is. An
    episode ends with its last agent, and the same step begins the next one.
    Raises EnvError for an environment that cannot be made, and UsageError as ``Roster``.
    """

    def __init__(self, request: EnvRequest) -> None:
        self._request, n = request, request.n
        self._budget = RestartBudget(request.restarts, request.on_fault)
        self._games: list[Game | None] = []
        try:
            for i in range(n):
                request.waiting(f"{i:,} of {n:,} environments are made")
                self._games.append(make_game(request, i))
        except BaseException:
            with suppress(Exception):  # the first error is raised
                self.close()
            raise
        first = self._game(0)
        self._roster = first.roster
        self._a = len(self._roster.names)
        self.specs: Mapping[str, AgentSpec] = self._roster.specs
        limit = request.env_args.get("max_cycles", getattr(first.env.unwrapped, "max_cycles", None))
        self.time_limit = limit if isinstance(limit, int) and limit > 0 else None
        fps = first.env.metadata.get("render_fps")
        self.fps = None if fps is None else float(fps)
        self.render_modes = tuple(first.env.metadata.get("render_modes") or ())
        self.arrangement = f"{n} in process: {self._roster.text}"
        self._rows: dict[str, list[int]] = {name: [] for name in self.specs}
        self._anew: dict[str, list[int]] = {}  # rows before a resume, until it is known which ones continue
        self._lost: dict[int, set[int]] = {}  # environment -> agents of a saved run whose episodes end
        self._episode = [-1] * n
        self._stepped = [*self._episode]  # episodes of the last step
        self._actions = [array("f") for _ in range(n)]  # of the open episodes
        self._total = [0.0] * n  # their rewards
        self._seen: list[dict[int, Sight]] = [{} for _ in range(n)]  # what agents observe that need an action
        self._infos: dict[int, dict[str, float]] = {}
        self._interrupted = self.masked = False

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        self._interrupted = True
        envs = range(len(self._games)) if indices is None else self.environments_of(indices)
        if self._anew and set(indices or ()) == {i for ids in self._anew.values() for i in ids}:
            self._rows = self._anew  # nothing of the saved run is continued
        self._anew = {}
        former = {agent for i in envs for agent in (*self._open(i), *self._lost.pop(i, ()))}
        for i in envs:
            if episode is not None:
                self._episode[i] = episode - 1
            self._begin(i)
        results = {}
        for name, seen in self._seen_in(envs).items():
            ids = seen.ids.tolist()
            gone = {agent for agent in former.difference(ids) if self._behaviour(agent) == name}
            stay = [agent for agent in self._rows[name] if agent not in gone]
            self._rows[name] = stay + [agent for agent in ids if agent not in stay]
            removed = np.array(sorted(gone), np.int64) if gone else None
            results[name] = ResetResult(**vars(seen), removed=removed)
        self._interrupted = False
        return results

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        self._interrupted, self._anew, self._stepped = True, {}, [*self._episode]
        flat = {
            agent: row
            for name, ids in self._rows.items()
            for agent, row in zip(ids, actions[name], strict=True)
        }
        rows, vanished = list[AgentRow](), list[int]()
        for i in range(len(self._games)):
            rows += self._step(i, flat, vanished)
        results = {}
        for name, spec in self.specs.items():
            gone = [agent for agent in vanished if self._behaviour(agent) == name]
            of_one = [row for row in rows if self._behaviour(row.agent) == name]
            results[name] = step_result(spec, of_one, gone)
            self._rows[name] = [row.agent for row in of_one if row.seen]
        self._interrupted = False
        return results

    @override
    def state(self) -> State:
        envs = range(len(self._games))
        arrays: dict[str, Array] = {
            "episode": np.array(self._episode, np.int64),
            "length": np.array([len(done) for done in self._actions], np.int64),
            "actions": np.concatenate([np.array(done, np.float32) for done in self._actions]),
            "total": np.array(self._total),
            "open": np.array([agent for i in envs for agent in self._open(i)], np.int64),
        }
        for k, (name, seen) in enumerate(self._seen_in(envs).items()):
            arrays |= {f"rows/{k}": np.array(self._rows[name], np.int64), **saved_arrays(f"{k}", seen)}
        return State(arrays, {"specs": self._specs_as_json(), "cut": self._interrupted})

    @override
    def resume(self, state: State) -> dict[int, str]:
        n, saved = len(self._games), state.arrays
        self._episode = [*saved["episode"][:n].tolist(), *self._episode[len(saved["episode"]) :]]
        if len(saved["episode"]) != n or state.meta["specs"] != self._specs_as_json():
            return dict.fromkeys(
                range(0, n * self._a, self._a), "the environments or their agents were others"
            )
        self._anew = self._rows
        self._rows = {name: saved[f"rows/{k}"].tolist() for k, name in enumerate(self.specs)}
        done = np.split(saved["actions"].astype(np.float32), np.cumsum(saved["length"])[:-1])
        began, lost = {agent for ids in self._anew.values() for agent in ids}, {}
        for i in range(n):
            why = "its last step was interrupted" if state.meta["cut"] else self._repeat(i, done[i], saved)
            if why:
                agents = range(i * self._a, (i + 1) * self._a)
                self._lost[i] = {agent for agent in saved["open"].tolist() if agent in agents}
                # An agent that has not begun, so that a reset of these is no reset of all that have.
                lost[next((agent for agent in agents if agent not in began), agents[0])] = why
        return lost

    @override
    def environments_of(self, agents: Collection[int]) -> list[int]:
        return sorted({agent // self._a for agent in agents})

    @override
    def team_of(self, agent: int) -> int:
        return self._roster.teams[agent % self._a]

    @override
    def episode_of(self, agent: int, *, begins: bool) -> str:
        i, k = divmod(agent, self._a)
        episode = (self._episode if begins else self._stepped)[i]
        return f"{self._place(i, episode)}, agent {self._roster.names[k]}"

    @override
    def infos(self, agent: int) -> dict[str, float]:
        return dict(self._infos.get(agent, {}))

    @override
    def render(self) -> Picture | None:
        if not self._request.video or self._games[0] is None:
            return None
        with exits_as_errors():
            picture = np.array(self._games[0].env.render())
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
            raise EnvError(
                "the environment could not be filmed",
                where=self._request.env_name,
                why=f"render returned {picture.dtype} of shape {picture.shape}",
                fix="it must return bytes [height, width, 3]; otherwise leave out --video",
            )
        return picture

    @override
    def close(self) -> None:
        for game in self._games:
            if game is not None:
                game.env.close()

    def _step(self, i: int, flat: Mapping[int, Float], vanished: list[int]) -> list[AgentRow]:
        """Step environment i, and begin its next episode where it has ended or failed.

        flat: actions by agent; the agents of a failed environment are added to ``vanished``
        """
        game = self._game(i)
        chosen = {k: flat[i * self._a + k] for k in game.asked}
        for action in chosen.values():
            self._actions[i].frombytes(action.astype(np.float32).tobytes())
        try:
            with exits_as_errors():
                turn = game.step(chosen)
        except Exception as error:
            vanished += self._open(i)
            self._fail(i, "step", error)
            turn = Turn()
        self._total[i] += sum(turn.reward.values())
        self._infos |= {i * self._a + k: numbers for k, numbers in turn.infos.items()}
        self._seen[i] = turn.asked
        if not turn.asked:
            self._begin(i)
        asked = self._seen[i]
        return [
            AgentRow(i * self._a + k, asked.get(k), turn.ended.get(k), turn.reward.get(k, 0.0))
            for k in sorted({*asked, *turn.ended})
        ]

    def _begin(self, i: int) -> None:
        """Begin the next episode of environment i; after a failure later ones, until one succeeds."""
        for _ in range(IDLE):
            self._episode[i] += 1
            self._actions[i], self._total[i] = array("f"), 0.0
            try:
                with exits_as_errors():
                    self._seen[i] = self._made(i).reset(self._request.seed_of(i, self._episode[i])).asked
            except Exception as error:
                self._fail(i, "reset", error)
                continue
            if self._seen[i]:
                return
        raise EnvError(
            f"{self._request.env_name} needs no actions",
            where=self._place(i, self._episode[i]),
            why=f"{IDLE:,} episodes in a row ended before any agent could act",
            fix="fill self.agents in reset",
        )

    def _made(self, i: int) -> Game:
        """Return environment i, made again after a failure. Raises SpaceMismatchError for other agents."""
        game = self._games[i]
        if game is None:
            game = make_game(self._request, i)
            if game.roster.names != self._roster.names or game.roster.specs != self.specs:
                raise SpaceMismatchError(
                    f"after a restart it has other agents or spaces: {game.roster.specs}"
                )
            self._games[i] = game
        return game

    def _fail(self, i: int, call: str, error: Exception) -> None:
        """Close environment i after a failure, and count it. Raises EnvError for one too many."""
        failure = failure_of(self._request.env_name, i, call, error)
        if (game := self._games[i]) is not None:
            self._games[i] = None
            with suppress(Exception), exits_as_errors():  # the first failure is reported
                game.env.close()
        self._budget.survive(failure, self._place(i, self._episode[i]))

    def _repeat(self, i: int, actions: Float, saved: Mapping[str, Array]) -> str:
        """Begin the saved episode of environment i and repeat its actions; return a difference, or ""."""
        self._episode[i] -= 1
        episode, failures = self._episode[i] + 1, self._budget.spent
        self._begin(i)
        at, sizes = 0, [adapter.spec.action.size for adapter in self._roster.adapters]
        while at < len(actions) and self._episode[i] == episode and failures == self._budget.spent:
            flat = {}
            for k in self._game(i).asked:
                flat[i * self._a + k] = actions[at : at + sizes[k]]
                at += sizes[k]
            self._step(i, flat, [])
        if failures != self._budget.spent:
            return "it failed while it was repeated"
        if self._episode[i] != episode:
            return f"repeated, it ended after {at:,} of {len(actions):,} numbers of actions"
        if self._open(i) != [agent for agent in saved["open"].tolist() if agent // self._a == i]:
            return "repeated, other agents were alive"
        agents = range(i * self._a, (i + 1) * self._a)
        for k, now in enumerate(self._seen_in([i]).values()):
            if why := difference(saved_observation(f"{k}", saved, agents), now):
                return why
        return "repeated, it got other rewards" * bool(self._total[i] != saved["total"][i])

    def _seen_in(self, envs: Iterable[int]) -> dict[str, Observation]:
        """Return what the agents of some environments observe that need an action, by behaviour."""
        sights = [(i * self._a + k, sight) for i in envs for k, sight in sorted(self._seen[i].items())]
        self.masked |= any(sight.mask is not None for _, sight in sights)
        return {
            name: observation(spec, [entry for entry in sights if self._behaviour(entry[0]) == name])
            for name, spec in self.specs.items()
        }

    def _game(self, i: int) -> Game:
        """Return environment i, which is in an episode."""
        game = self._games[i]
        assert game is not None, "it was begun after each failure"
        return game

    def _open(self, i: int) -> list[int]:
        """Return the agents of environment i with an open episode, whether they need an action or wait."""
        game = self._games[i]
        return [] if game is None else [i * self._a + k for k in sorted(game.open)]

    def _behaviour(self, agent: int) -> str:
        """Return the behaviour of an agent."""
        return self._roster.behaviours[agent % self._a]

    def _specs_as_json(self) -> list[object]:
        """Return agents, behaviours and spaces as JSON, equal only for the same ones."""
        specs = [[name, spec_as_json(spec)] for name, spec in self.specs.items()]
        return [[f"{name}" for name in self._roster.names], self._roster.behaviours, specs]

    def _place(self, i: int, episode: int) -> str:
        """Return environment, episode and seed, for a message."""
        return f"environment {i}, episode {episode}, seed {self._request.seed_of(i, episode)}"
