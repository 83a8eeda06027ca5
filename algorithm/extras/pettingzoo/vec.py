"""PettingZoo environments (https://pettingzoo.farama.org), several agents each, stepped in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from copy import copy

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.errors import EnvError, described
from algorithm.core.spec import AgentSpec
from algorithm.core.steps import Array, Float
from algorithm.env.adapter import Adapter
from algorithm.env.base import Observation, Picture, ResetResult, StepResult, VecEnv
from algorithm.env.pool.env_group import RestartBudget
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.env.pool.repetition import spec_as_json
from algorithm.env.pool.watchdog import Watchdog
from algorithm.env.request import EnvRequest
from algorithm.extras.pettingzoo.results import AgentRow, observation, step_result
from algorithm.extras.pettingzoo.slot import GameSlot


class PettingZooVecEnv(VecEnv):
    """Environments of PettingZoo; agent k of environment i has the id ``i·A + k``, A of them are possible.

    In a parallel environment all agents that are alive need an action, else only the one whose turn it is. An
    episode ends with its last agent, and the same step begins the next one.
    Raises EnvError for an environment that cannot be made, and UsageError as ``Roster``.
    """

    def __init__(self, request: EnvRequest) -> None:
        self._request, n = request, request.n
        budget = RestartBudget(request.restarts, request.on_fault)
        self._watchdog = Watchdog(np.zeros(n), request.env_name, request.timeout, request.on_hang, fix="")
        self._slots: list[GameSlot] = []
        try:
            for i in range(n):
                request.waiting(f"{i:,} of {n:,} environments are made")
                self._slots.append(GameSlot(request, i, budget, self._watchdog))
        except BaseException:
            with suppress(Exception):  # the first error is raised
                self.close()
            raise
        self._roster, env = self._slots[0].roster, self._slots[0].game.env
        self._a = len(self._roster.names)
        self.specs: Mapping[str, AgentSpec] = self._roster.specs
        limit = request.env_args.get("max_cycles", getattr(env.unwrapped, "max_cycles", None))
        self.time_limit = limit if isinstance(limit, int) and limit > 0 else None
        metadata = getattr(env, "metadata", {})  # PettingZoo only annotates it
        self.fps: float | None = metadata.get("render_fps")
        self.render_modes = tuple(metadata.get("render_modes") or ())
        self.arrangement = f"{n} in process: {self._roster.text}"
        self._rows: dict[str, list[int]] = {name: [] for name in self.specs}
        self._anew: dict[str, list[int]] = {}  # rows before a resume, until it is known which ones continue
        self._lost: dict[int, list[int]] = {}  # environment -> agents of a saved run whose episodes end
        self._stepped = [-1] * n  # episodes of the last step
        self._infos: dict[int, dict[str, float]] = {}
        self._interrupted = self.masked = False

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """Behaviour -> adapter of its agents' spaces, whose observations lack what all observe."""
        adapters = dict(zip(self._roster.behaviours, map(copy, self._roster.adapters), strict=True))
        for name, adapter in adapters.items():
            adapter.spec = self.specs[name]
        return adapters

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        self._interrupted = True
        if self._anew and set(indices or ()) == {i for ids in self._anew.values() for i in ids}:
            self._rows = self._anew  # nothing of the saved run is continued
        self._anew, former = {}, set[int]()
        envs = range(len(self._slots)) if indices is None else self.environments_of(indices)
        for i in envs:
            former.update(self._ids(i, self._slots[i].open), self._lost.pop(i, ()))
            self._slots[i].begin(episode)
        results = {}
        for name, seen in self._seen(envs).items():
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
        self._interrupted, self._anew = True, {}
        self._stepped = [slot.episode for slot in self._slots]
        flat = {
            agent: row
            for name in self.specs
            for agent, row in zip(self._rows[name], actions[name], strict=True)
        }
        rows, vanished = list[AgentRow](), list[int]()
        for i, slot in enumerate(self._slots):
            base = i * self._a
            turn, gone = slot.step({k: flat[base + k] for k in slot.seen})
            vanished += self._ids(i, gone)
            self._infos |= {base + k: numbers for k, numbers in turn.infos.items()}
            for k in sorted({*slot.seen, *turn.ended}):
                reward = turn.reward.get(k, 0.0)
                rows.append(AgentRow(base + k, slot.seen.get(k), turn.ended.get(k), reward))
        self.masked |= any(row.seen.mask is not None for row in rows if row.seen)
        results = {}
        for name, spec in self.specs.items():
            of_one = [row for row in rows if self._behaviour(row.agent) == name]
            lost = [agent for agent in vanished if self._behaviour(agent) == name]
            results[name] = step_result(spec, of_one, lost)
            self._rows[name] = [row.agent for row in of_one if row.seen]
        self._interrupted = False
        return results

    @override
    def state(self) -> State:
        slots, envs = self._slots, range(len(self._slots))
        arrays: dict[str, Array] = {
            "episode": np.array([slot.episode for slot in slots], np.int64),
            "length": np.array([len(slot.done) for slot in slots], np.int64),
            "actions": np.concatenate([np.array(slot.done, np.float32) for slot in slots]),
            "total": np.array([slot.total for slot in slots], np.float64),
            "open": np.array([agent for i in envs for agent in self._ids(i, slots[i].open)], np.int64),
        }
        for k, rows in enumerate(self._rows.values()):
            arrays[f"rows/{k}"] = np.array(rows, np.int64)
        seen = [slot.digest() for slot in slots]
        return State(arrays, {"specs": self._specs_as_json(), "cut": self._interrupted, "seen": seen})

    @override
    def resume(self, state: State) -> dict[int, str]:
        n, saved = len(self._slots), state.arrays
        for slot, number in zip(self._slots, saved["episode"].tolist(), strict=False):
            slot.episode = number
        if len(saved["episode"]) != n or state.meta["specs"] != self._specs_as_json():
            return dict.fromkeys(
                range(0, n * self._a, self._a), "the environments or their agents were others"
            )
        self._anew = self._rows
        self._rows = {name: saved[f"rows/{k}"].tolist() for k, name in enumerate(self.specs)}
        done = np.split(saved["actions"].astype(np.float32), np.cumsum(saved["length"])[:-1])
        began, lost = {agent for ids in self._anew.values() for agent in ids}, {}
        for i in range(n):
            cut = "its last step was interrupted" * bool(state.meta["cut"])
            if why := cut or self._repeat(i, done[i], state):
                agents = self._ids(i, range(self._a))
                self._lost[i] = [agent for agent in saved["open"].tolist() if agent in agents]
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
        slot = self._slots[i]
        return f"{slot.place(slot.episode if begins else self._stepped[i])}, agent {self._roster.names[k]}"

    @override
    def infos(self, agent: int) -> dict[str, float]:
        return dict(self._infos.get(agent, {}))

    @override
    def render(self) -> Picture | None:
        if not self._request.video:
            return None
        try:
            with exits_as_errors():
                picture = np.array(self._slots[0].game.env.render())
        except Exception as error:
            raise EnvError(
                "the environment could not be filmed", where=self._request.env_name, why=described(error)
            ) from error
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
        with self._watchdog.closing(), ExitStack() as stack:
            for slot in self._slots:
                stack.callback(slot.game.close)

    def _repeat(self, i: int, done: Float, state: State) -> str:
        """Repeat the saved episode of environment i from its actions; return a difference, or ""."""
        slot, agents = self._slots[i], self._ids(i, range(self._a))
        if why := slot.repeat(slot.episode, done, state.arrays["total"].item(i)):
            return why
        if self._ids(i, slot.open) != [agent for agent in state.arrays["open"].tolist() if agent in agents]:
            return "repeated, other agents were alive"
        return "" if slot.digest() == state.meta["seen"][i] else "repeated, it reached another observation"

    def _seen(self, envs: Iterable[int]) -> dict[str, Observation]:
        """Return the observations of the agents that need an action, by behaviour."""
        sights = [(i * self._a + k, sight) for i in envs for k, sight in sorted(self._slots[i].seen.items())]
        self.masked |= any(sight.mask is not None for _, sight in sights)
        return {
            name: observation(spec, [entry for entry in sights if self._behaviour(entry[0]) == name])
            for name, spec in self.specs.items()
        }

    def _ids(self, i: int, indices: Iterable[int]) -> list[int]:
        """Return the ids of agents of environment i."""
        return [i * self._a + k for k in indices]

    def _behaviour(self, agent: int) -> str:
        """Return the behaviour of an agent."""
        return self._roster.behaviours[agent % self._a]

    def _specs_as_json(self) -> list[object]:
        """Return agents, behaviours and spaces as JSON, equal only for the same ones."""
        specs = [[name, spec_as_json(spec)] for name, spec in self.specs.items()]
        return [[f"{name}" for name in self._roster.names], self._roster.behaviours, specs]
