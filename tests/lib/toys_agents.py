"""Agents that come and go as a script says, and a player that notices when two of them are mixed up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from algorithm.core.data import ActorOutput, Array, Segment, State, StepBatch
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import Observation, ResetResult, StepResult, VecEnv

SPEC = AgentSpec(
    ObsSpec(("obs", "tag"), ((3,), (1,)), ("float32", "uint8")), ActionSpec(branches=(3,), continuous=1)
)
START = np.array([7.0, 7.0], np.float32)  # the carry at an episode's start

Moment = tuple[int, int, int]  # agent, number of its episode from 1, step


def see(moments: Sequence[Moment]) -> dict[str, Array]:
    """They observe who, when and where they are."""
    seen = np.array(moments, np.float32).reshape(-1, 3)
    return {"obs": seen, "tag": seen[:, :1].astype(np.uint8)}


def allowed(moments: Iterable[Moment]) -> np.ndarray:
    """One choice of three is forbidden, another one in each step, [N, 3]."""
    return np.array([[(sum(m) + k) % 3 != 0 for k in range(3)] for m in moments], np.bool_).reshape(-1, 3)


def chosen(moments: Iterable[Moment]) -> np.ndarray:
    """The action that is right for each, [N, 4]; it tells the moments apart and is never zero."""
    rows = [
        [(sum(m) + k) % 3 == 1 for k in range(3)] + [np.tanh(0.1 * m[0] + 0.01 * m[1] + 0.001 * (m[2] + 1))]
        for m in moments
    ]
    return np.array(rows, np.float32).reshape(-1, 4)


def carried(moment: Moment) -> list[float]:
    """The carry before the observation of this moment."""
    agent, episode, step = moment
    return [agent + 100.0 * episode, float(step)] if step else START.tolist()


class Guests(VecEnv):
    """Agent i does in step t what ``script[t][i]`` says; those in ``first`` are there from the start.

    One that is there:  ``T U`` its episode ends terminated, truncated · ``t u`` the same, and it leaves ·
                        ``s`` it is skipped · ``v`` it vanishes · ``w`` it waits · anything else: it goes on.
    One that is not:    ``a`` it appears · ``p`` it appears and has left in the same step.

    The reward of a step is the number of the step. Rows are ``shuffled``, but not always, and what means
    nothing is NaN or true.
    Agents 2k and 2k+1 are in one room if ``rooms``, and a reset is one for the room; else each is alone.
    on_reset: who is gone and who is new after each reset of some rooms
    """

    arrangement = "a house"
    render_modes = ()
    time_limit = None

    def __init__(
        self,
        script: Sequence[str],
        first: Collection[int],
        *,
        rooms: bool = False,
        on_reset: Iterable[tuple[set[int], set[int]]] = (),
        shuffled: bool = True,
    ) -> None:
        self.specs = {DEFAULT_BEHAVIOUR: SPEC}
        self._script, self._line, self._first, self._per_room = script, 0, first, 1 + rooms
        self._on_reset = iter(on_reset)
        self._rng, self._shuffled = np.random.default_rng(0), shuffled
        self._there: dict[int, Moment] = {}
        self._episodes: dict[int, int] = {}
        self._waits: set[int] = set()
        self._order: list[int] = []

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        gone: set[int] = set()
        if indices is None:
            assert episode == 0
            begun = list(self._first)
            self._order = begun
        else:
            gone, new = next(self._on_reset, (set(), set()))
            rooms = {i // self._per_room for i in indices}
            begun = [i for i in self._there if i // self._per_room in rooms and i not in gone]
            self._rng.shuffle(begun)
            new |= self._waits & set(begun)  # they had no row
            begun = [i for i in begun if i not in new] + sorted(new)
            self._order = [i for i in self._order if i not in gone] + sorted(new)
            self._waits -= {*begun, *gone}
        for agent in gone:
            del self._there[agent]
        for agent in begun:
            self._begin(agent)
        seen = self._seen(begun, self._there)
        return {DEFAULT_BEHAVIOUR: ResetResult(**vars(seen), removed=np.array(sorted(gone), np.int64))}

    def step(self, actions: Mapping[str, np.ndarray]) -> dict[str, StepResult]:
        self._check(actions[DEFAULT_BEHAVIOUR])
        before = set(self._there)
        ends: dict[int, Moment] = {}
        marks: dict[int, str] = {}
        self._line += 1
        for agent, event in enumerate(self._script[self._line - 1]):
            self._happen(agent, event, ends, marks)
        rows = sorted(marks)
        if self._shuffled and self._rng.random() < 0.7:
            self._rng.shuffle(rows)
        self._order = [i for i in rows if i in self._there]
        self._waits = set(self._there) - set(self._order)
        vanished = np.array(sorted(before - {*self._there, *ends}), np.int64)
        result = self._result(rows, ends, marks)
        return {DEFAULT_BEHAVIOUR: replace(result, vanished=vanished) if len(vanished) else result}

    def close(self) -> None:
        pass

    def state(self) -> State:
        there = [list(moment) for moment in self._there.values()]
        own = {"line": self._line, "there": there, "waits": sorted(self._waits), "order": self._order}
        episodes = list(self._episodes.items())
        return State(meta={**own, "episodes": episodes, "rng": self._rng.bit_generator.state})

    def resume(self, state: State) -> dict[int, str]:
        own = state.meta
        self._line, self._order, self._waits = own["line"], own["order"], set(own["waits"])
        self._there = {moment[0]: tuple(moment) for moment in own["there"]}
        self._episodes = dict(own["episodes"])
        self._rng.bit_generator.state = own["rng"]
        return {}

    def _check(self, action: np.ndarray) -> None:
        expected = chosen([self._there[i] for i in self._order])
        assert action.shape == expected.shape, "one action for each who is there"
        assert np.array_equal(action, expected), "the action is for somebody else"

    def _happen(self, agent: int, event: str, ends: dict[int, Moment], marks: dict[int, str]) -> None:
        """``marks``: what happened to each who has a row; ``ends``: where episodes ended."""
        if agent not in self._there:
            if event in "ap":
                marks[agent] = event
                self._begin(agent)
                if event == "p":
                    ends[agent] = self._there.pop(agent)
            return
        if event == "v":
            del self._there[agent]
            return
        if event == "w":  # its action goes on
            return
        who, episode, step = self._there[agent]
        self._there[agent] = (who, episode, step + 1)
        marks[agent] = event if event in "TUtus" else "."
        if event in "TUtu":
            ends[agent] = self._there[agent]
        if event in "TUs":
            self._begin(agent)
        if event in "tu":
            del self._there[agent]

    def _begin(self, agent: int) -> None:
        self._episodes[agent] = self._episodes.get(agent, 0) + 1
        self._there[agent] = (agent, self._episodes[agent], 0)

    def _seen(self, rows: list[int], where: Mapping[int, Moment]) -> Observation:
        """NaN for those who are not there."""
        moments = [where.get(i, (i, 0, 0)) for i in rows]
        obs = see(moments)
        obs["obs"][[i not in where for i in rows]] = np.nan
        return Observation(ids=np.array(rows, np.int64), obs=obs, action_mask=allowed(moments))

    def _result(self, rows: list[int], ends: dict[int, Moment], marks: dict[int, str]) -> StepResult:
        mark = [marks[i] for i in rows]
        before = [ends.get(i, self._there.get(i, (i, 0, 0))) for i in rows]
        reward = [
            np.nan if m in "ap" else 0.0 if m == "s" else b[2] for m, b in zip(mark, before, strict=True)
        ]
        left = np.array([m in "tup" for m in mark], np.bool_)
        skipped = np.array([m == "s" for m in mark], np.bool_)
        return StepResult(
            **vars(self._seen(rows, self._there)),
            reward=np.array(reward, np.float32),
            terminated=np.array([m in "Ttap" for m in mark], np.bool_),
            truncated=np.array([m in "Uu" for m in mark], np.bool_),
            final=self._seen(rows, ends) if ends else None,
            skipped=skipped if skipped.any() else None,
            left=left if left.any() else None,
        )


class Both(VecEnv):
    """Two houses with agents of the same ids, each with a behaviour of its own."""

    def __init__(self, **houses: Guests) -> None:
        self._houses = houses
        self.specs = dict.fromkeys(houses, SPEC)

    def reset(self, indices=None, *, episode=None):
        return {k: h.reset(indices, episode=episode)[DEFAULT_BEHAVIOUR] for k, h in self._houses.items()}

    def step(self, actions) -> dict[str, StepResult]:
        told = {k: {DEFAULT_BEHAVIOUR: actions[k]} for k in self._houses}
        return {k: h.step(told[k])[DEFAULT_BEHAVIOUR] for k, h in self._houses.items()}


class Attentive:
    """Acts for Guests. Everybody must come with the carry and the action that it was given last.

    stored:  its stored_carry_shape
    ghosts:  agents whose carry and last action are not checked
    """

    def __init__(self, stored: tuple[int, ...] = (2,), ghosts: Collection[int] = ()) -> None:
        self.stored_carry_shape = stored
        self._ghosts = ghosts
        self.calls: list[list[Moment]] = []
        self.segments: list[Segment] = []
        self.log: list[tuple[str, int]] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.tile(START, (n, 1))

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        moments: list[Moment] = [tuple(row) for row in obs["obs"].astype(int).tolist()]
        assert moments, "nobody is there to act for"
        assert obs["tag"][:, 0].tolist() == [m[0] for m in moments]
        self.calls.append(moments)
        known = [m[0] not in self._ghosts for m in moments]
        assert np.array_equal(action_mask[known], allowed(moments)[known])
        for i in np.flatnonzero(known):
            agent, episode, step = moments[i]
            assert carry[i].tolist() == carried(moments[i])
            before = chosen([(agent, episode, step - 1)])[0] if step else np.zeros(4)
            assert np.array_equal(prev_action[i], before)
        action = chosen(moments)
        return ActorOutput(
            action=action,
            z=np.arctanh(action[:, 3:]),
            behaviour_logp=np.array([[m[0], m[2]] for m in moments], np.float32),
            carry=np.array([carried((m[0], m[1], m[2] + 1)) for m in moments], np.float32),
        )

    def add_steps(self, steps: StepBatch) -> None:
        self.segments += steps.segments()
        self.log += [("add", stream) for stream in steps.streams.tolist()]

    def close(self, stream: int) -> None:
        self.log.append(("close", stream))

    @property
    def closed(self) -> list[int]:
        return [agent for what, agent in self.log if what == "close"]


def random_script(rng: np.random.Generator, steps: int, agents: int) -> list[str]:
    events = rng.choice(list("......TUtusvapwww"), (steps, agents))
    events[[20, 50]] = "v"  # nobody is left, once for a while
    events[21:24] = "."
    return ["".join(line) for line in events]


def tale(script: list[str], first: set[int], limit: int) -> tuple[list[tuple], list[int], list[tuple]]:
    """What a plain loop over each agent by itself stores, closes and reports."""
    rows, closed, episodes = [], [], []
    for agent in range(len(script[0])):
        there = agent in first
        number, step = int(there), 0
        for event in (line[agent] for line in script):
            if not there:
                there = event == "a"
                number += event in "ap"
            elif event in "sv":
                closed += [agent] * (step > 0)
                there, number, step = event == "s", number + (event == "s"), 0
            else:
                if event == "w":
                    continue
                step += 1
                ends = (event in "Tt", event in "Uu" or (step == limit and event not in "Tt"))
                rows.append((agent, number, step - 1, float(step), *ends))
                if any(ends):
                    episodes.append((agent, step * (step + 1) / 2, step))
                    there, step = event not in "tu", 0
                    number += there
    return rows, closed, episodes
