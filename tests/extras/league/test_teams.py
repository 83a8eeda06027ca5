"""Tests of self-play as a filter: who acts, what the trainer sees, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from algorithm.core.data import ActorOutput, Array, Bool, Float, State, StepBatch
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.env.base import StepResult, VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.league.season import Opponents
from algorithm.extras.league.teams import SelfPlayEnv
from algorithm.run.experience.collector import LocalCollector

pytest.importorskip("pettingzoo")


class Uniform:
    """Policy with random legal actions, which keeps a count in its carry."""

    stored_carry_shape = (1,)

    def __init__(self, spec: AgentSpec, seed: int) -> None:
        self._spec, self.rng = spec.action, np.random.default_rng(seed)

    def initial_carry(self, n: int) -> Float:
        return np.zeros((n, 1), np.float32)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        action, z, logp = self._spec.random(self.rng, action_mask)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry + 1.0)


class Turns(Opponents):
    """Opponents that let another team learn every ``every`` calls, and keep the scores of games."""

    def __init__(self, spec: AgentSpec, every: int) -> None:
        super().__init__({})
        self.policy = Uniform(spec, 5)
        self.policies = {"player": self.policy}
        self.scores: list[float] = []
        self.steps, self._every, self._calls = 0, every, 0

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        self.scores.append(score)
        return {"elo": float(len(self.scores))}

    @override
    def advance(self, steps: Mapping[str, int]) -> bool:
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


class Seen(VecEnv):
    """Environments that keep all actions and results, as (agent, action) and (agent, result's row)."""

    def __init__(self, env: VecEnv) -> None:
        self._env, self.rows, self.results = env, np.zeros(0, np.int64), list[StepResult]()
        self.actions: list[tuple[list[int], Float]] = []
        self.specs, self.time_limit, self.fps = env.specs, env.time_limit, env.fps
        self.render_modes, self.arrangement, self.masked = env.render_modes, env.arrangement, True

    def __getattribute__(self, name: str) -> Any:
        if name in ("state", "resume", "environments_of", "team_of", "infos", "close", "metrics", "drop"):
            return getattr(self._env, name)
        return super().__getattribute__(name)

    @override
    def reset(self, indices: Sequence[int] | None = None, *, episode: int | None = None) -> Any:
        return self._env.reset(indices, episode=episode)

    @override
    def step(self, actions: Mapping[str, Float]) -> Any:
        results = self._env.step(actions)
        self.results.append(results["player"])
        self.actions.append(actions["player"])
        return results


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


def tictactoe(n: int) -> VecEnv:
    """Return n games of tic-tac-toe, in which agent 2i begins and agent 2i + 1 follows."""
    return make_vec_env(
        EnvRequest("PETTINGZOO", "pettingzoo.classic.tictactoe_v3", n=n, seed_of=episode_seeds(1, "train"))
    )


def collector(every: int, n: int = 3) -> tuple[LocalCollector, SelfPlayEnv, Turns, Kept, Seen]:
    """Return a collector of self-play in n games, in which another team learns after ``every`` steps."""
    inner = Seen(tictactoe(n))
    spec = inner.specs["player"]
    turns, kept = Turns(spec, every), Kept()
    env = SelfPlayEnv(inner, turns)
    rollout = LocalCollector(env, {"player": Uniform(spec, 9)}, {"player": kept}, num_envs=n)
    return rollout, env, turns, kept, inner


def test_only_the_learning_team_is_stored() -> None:
    rollout, _, turns, kept, _ = collector(every=10**9)
    for _ in range(600):
        rollout.step()
    assert {row[0] % 2 for row in kept.rows} == {0}
    assert rollout.steps == turns.steps == len(kept.rows) > 800
    assert kept.closed == []


def test_each_transition_is_that_of_the_game_and_its_score_the_game_s() -> None:
    rollout, env, turns, kept, inner = collector(every=10**9)
    episodes = []
    for _ in range(900):
        episodes += rollout.step()
    of_agents = [e for e in episodes]
    expected = [(np.sign(episode.total) + 1) / 2 for episode in of_agents]
    assert turns.scores == expected
    assert {0.0, 0.5, 1.0} == set(turns.scores)
    assert [episode.infos["elo"] for episode in episodes] == [1.0 + k for k in range(len(episodes))]
    by_agent: dict[int, float] = {}
    for result in inner.results:
        for agent, reward in zip(result.ids.tolist(), result.reward.tolist(), strict=True):
            by_agent[agent] = by_agent.get(agent, 0.0) + reward * (agent % 2 == 0)
    stored: dict[int, float] = {}
    for agent, _, _, _, reward, _ in kept.rows:
        stored[agent] = stored.get(agent, 0.0) + reward
    assert stored == {agent: total for agent, total in by_agent.items() if agent % 2 == 0}


def test_another_team_learns_and_no_transition_is_mixed_up() -> None:
    rollout, _, turns, kept, _ = collector(every=25)
    for _ in range(1500):
        rollout.step()
    assert {row[0] % 2 for row in kept.rows} == {0, 1}
    open_steps: dict[int, int] = {}
    for agent, step, _, _, _, over in kept.rows:
        if agent in kept.closed and step == 0:
            open_steps.pop(agent, None)
        assert step == open_steps.get(agent, 0), "each transition follows the one before"
        if over:
            open_steps.pop(agent, None)
        else:
            open_steps[agent] = step + 1
    assert len(kept.closed) > 10
    assert rollout.steps == len(kept.rows)


def test_a_resumed_game_goes_on_with_the_same_transitions() -> None:
    through, env, _, kept, _ = collector(every=25)
    for _ in range(137):
        through.step()
    state = through.state()
    state = State(
        {name: np.array(value) for name, value in state.arrays.items()}, json.loads(json.dumps(state.meta))
    )
    before, rng = len(kept.rows), through._groups["player"].policy.rng.bit_generator.state
    for _ in range(200):
        through.step()
    again, _, turns, kept_again, _ = collector(every=25)
    assert again.load_state(state) == []
    again._groups["player"].policy.rng.bit_generator.state = rng
    for _ in range(200):
        again.step()
    assert kept_again.rows == kept.rows[before:]
