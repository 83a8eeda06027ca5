"""Tests of self-play as a filter: who acts, what the trainer sees, and what is stored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from algorithm.core.data import Episode, Float, State, StepBatch
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.env.base import StepResult
from algorithm.env.config import PettingZooArgs
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.league.season import Opponents
from algorithm.extras.league.teams import SelfPlayEnv
from algorithm.run.experience.collector import LocalCollector
from tests.lib.episodes import Scripted

pytest.importorskip("pettingzoo")


class Turns(Opponents):
    """Opponents that let another team learn every ``every`` calls, and keep the scores of games."""

    def __init__(self, behaviour: str, spec: AgentSpec, every: int) -> None:
        super().__init__({})
        self.policy = Scripted(spec)
        self.policies = {behaviour: self.policy}
        self.scores: list[float] = []
        self.steps, self._every, self._calls = 0, every, 0

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        self.scores.append(score)
        return {"elo": float(len(self.scores))}

    @override
    def advance(self, steps: Mapping[str, int], *, playing: bool) -> bool:
        self._calls += 1
        self.steps += sum(steps.values())
        if self._calls % self._every:
            return False
        self._next_team()
        return True

    @override
    def state(self) -> State:
        rng = self.policy.rng.bit_generator.state
        return State(meta={"calls": self._calls, "team": self.team, "teams": self._teams, "rng": rng})

    @override
    def load_state(self, state: State) -> None:
        meta = state.meta
        self._calls, self.team, self._teams = meta["calls"], meta["team"], list(meta["teams"])
        self.policy.rng.bit_generator.state = meta["rng"]


class Kept:
    """Recorder of transitions by agent: (step in the episode, observation, action, reward, ended)."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, bytes, int, float, bool]] = []
        self.closed: list[int] = []

    def add_steps(self, steps: StepBatch) -> None:
        for i, agent in enumerate(steps.streams.tolist()):
            seen = b"".join(value[i].tobytes() for value in steps.obs.values())
            over = bool(steps.terminated[i] or steps.truncated[i])
            action = int(steps.action[i].argmax())
            self.rows.append((agent, int(steps.start_steps[i]), seen, action, float(steps.reward[i]), over))

    def close(self, stream: int) -> None:
        self.closed.append(stream)


@dataclass
class Played:
    """Self-play in three games, in which another team learns after ``every`` steps."""

    every: int = 10**9
    game: str = "pettingzoo.classic.tictactoe_v3"
    args: dict[str, Any] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    results: list[StepResult] = field(default_factory=list)  # of the games themselves

    def __post_init__(self) -> None:
        request = EnvRequest(
            "PETTINGZOO",
            self.game,
            n=3,
            seed_of=episode_seeds(1, "train"),
            env_args=self.args,
            pettingzoo=PettingZooArgs(share={"*": "everybody"}),
            restarts=99,
        )
        games = make_vec_env(request)
        ((name, spec),) = games.specs.items()
        step = games.step

        def recorded(actions: Mapping[str, Float]) -> Mapping[str, StepResult]:
            shown = step(actions)
            self.results.append(shown[name])
            return shown

        games.step = recorded  # type: ignore[method-assign]
        self.turns, self.policy = Turns(name, spec, self.every), Scripted(spec)
        self.policy.rng = np.random.default_rng(9)  # others than its opponent's
        env = SelfPlayEnv(games, self.turns)
        self.rollout = LocalCollector(env, {name: self.policy}, {name: self.kept}, num_envs=3)

    def steps(self, n: int) -> list[Episode]:
        """Take n steps; return the episodes that ended."""
        return [episode for _ in range(n) for episode in self.rollout.step()]


def test_only_the_learning_team_is_stored() -> None:
    played = Played()
    played.steps(600)
    assert {row[0] % 2 for row in played.kept.rows} == {0}
    assert played.rollout.steps == played.turns.steps == len(played.kept.rows) > 800
    assert played.kept.closed == []


def test_each_reward_is_stored_once_and_each_game_gets_its_score() -> None:
    played = Played()
    episodes = played.steps(900)
    assert played.turns.scores == [(np.sign(episode.total) + 1) / 2 for episode in episodes]
    assert set(played.turns.scores) == {0.0, 0.5, 1.0}
    assert [episode.infos["elo"] for episode in episodes] == [1.0 + k for k in range(len(episodes))]
    of_games, stored = defaultdict[int, float](float), defaultdict[int, float](float)
    for result in played.results:
        for agent, reward in zip(result.ids.tolist(), result.reward.tolist(), strict=True):
            of_games[agent] += reward * (agent % 2 == 0)
    for row in played.kept.rows:
        stored[row[0]] += row[4]
    assert stored == {agent: total for agent, total in of_games.items() if agent % 2 == 0}


def test_teams_take_turns_and_no_transition_is_mixed_up() -> None:
    played = Played(every=25)
    played.steps(1500)
    kept, following = played.kept, dict[int, int]()
    assert {row[0] % 2 for row in kept.rows} == {0, 1}
    for agent, step, _, _, _, over in kept.rows:
        assert step == following.get(agent, 0), "each transition follows the one before"
        following[agent] = 0 if over else step + 1
    assert kept.closed == [], "no game is cut off"
    assert played.rollout.steps == len(kept.rows)


def test_a_resumed_game_goes_on_with_the_same_transitions() -> None:
    through, resumed = Played(every=25), Played(every=25)
    through.steps(137)
    state, drawn = through.rollout.state(), through.policy.rng.bit_generator.state
    saved = State({k: np.array(v) for k, v in state.arrays.items()}, json.loads(json.dumps(state.meta)))
    before = len(through.kept.rows)
    through.steps(200)
    assert resumed.rollout.load_state(saved) == []
    resumed.policy.rng.bit_generator.state = drawn
    resumed.steps(200)
    assert resumed.kept.rows == through.kept.rows[before:]


@pytest.mark.parametrize("game", ["Ring", "Crowd"])
def test_games_that_fail_end_without_mixing_up_agents(game: str) -> None:
    """Each environment fails at its seventh step; agents die at different times, and may come back."""
    played = Played(
        every=40,
        game=f"tests.extras.toys_games:{game}",
        args={"fail_at": 7, "alike": True},
    )
    played.steps(150)
    following = dict[int, int]()
    for agent, step, seen, _, _, over in played.kept.rows:
        assert step in (0, following.get(agent, 0))
        assert np.frombuffer(seen)[0] == agent % 3, "an agent's observations are its own"
        following[agent] = 0 if over else step + 1
    assert len(played.kept.rows) > 100
