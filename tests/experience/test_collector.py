"""Every transition of a rollout, against a plain loop over single environments."""

from __future__ import annotations

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest

import tests.toys  # noqa: F401 - registers the environments
from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.core.timing import Stopwatch
from algorithm.env.base import ResetResult, StepResult
from algorithm.env.registry import make_vec_env
from algorithm.experience.collector import LocalCollector

SEEDS = episode_seeds(3, "train")


def choose(obs: np.ndarray) -> np.ndarray:
    """An action [N, 1] that any loop can compute from the observation alone."""
    return np.tanh(np.sin(obs.sum(-1, keepdims=True))).astype(np.float32)


class Scripted:
    """Acts by ``choose`` and records what it is told; its carry counts the steps of each episode."""

    stored_carry_shape = (1,)

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        action = choose(obs["obs"])
        assert np.array_equal(prev_action == 0.0, obs["obs"][:, 1:] == 0.0)  # zero at episode starts only
        assert np.array_equal(carry, obs["obs"][:, 1:])
        logp = np.zeros((len(action), 1), np.float32)
        return ActorOutput(action=action, z=np.arctanh(action), behaviour_logp=logp, carry=carry + 1)

    def add_steps(self, steps: StepBatch) -> None:
        self.segments += steps.segments()


def make(n: int, **options) -> tuple[LocalCollector, Scripted]:
    """A rollout, which begins at episode 0 whatever has been played before."""
    env, player = make_vec_env("GYM", "tests.toys:Counting-v0", n=n, seed_of=SEEDS), Scripted()
    env.reset()
    return LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options), player


def row(s: Segment) -> tuple:
    assert np.array_equal(s.carry[:, 0], [s.start_step, s.start_step + 1])
    ends = (bool(s.terminated[0]), bool(s.truncated[0]))
    obs, after = (tuple(o) for o in s.obs["obs"].tolist())
    return (s.stream, s.start_step, obs, after, float(s.action[0, 0]), float(s.reward[0]), *ends)


def plain_rows(index: int, count: int, limit: int) -> list[tuple]:
    """The first ``count`` transitions of environment ``index``, one environment, one step at a time."""
    env, rows, episode = gym.make("tests.toys:Counting-v0"), [], 0
    while len(rows) < count:
        obs = env.reset(seed=SEEDS(index, episode))[0].astype(np.float32)
        step, over = 0, False
        while not over and len(rows) < count:
            action = choose(obs[None])[0]
            after, reward, terminated, truncated, _ = env.step(np.float32(1.0) + np.float32(3.0) * action)
            after = after.astype(np.float32)
            truncated = truncated or (step + 1 == limit and not terminated)
            done = (float(action[0]), float(np.float32(reward)), terminated, truncated)
            rows.append((index, step, tuple(obs.tolist()), tuple(after.tolist()), *done))
            obs, step, over = after, step + 1, terminated or truncated
        episode += 1
    return rows


@pytest.mark.parametrize(("n", "limit"), [(1, -1), (3, 2), (3, 5)])
def test_stored_transitions_are_those_of_single_environments(n, limit):
    rollout, player = make(n, length_limit=limit)
    episodes = [episode for _ in range(60) for episode in rollout.step()]
    expected = [r for index in range(n) for r in plain_rows(index, 60, limit)]
    assert Counter(map(row, player.segments)) == Counter(expected)
    assert sorted(e.length for e in episodes) == sorted(r[1] + 1 for r in expected if r[-1] or r[-2])


def test_what_is_stored_before_a_reset_fails_is_counted(monkeypatch):
    rollout, player = make(3, length_limit=4)

    def fails(indices=None, *, episode=None):
        raise EnvError("the simulator is gone")

    monkeypatch.setattr(rollout._env, "reset", fails)
    with pytest.raises(EnvError, match="gone"):
        for _ in range(4):
            rollout.step()
    assert rollout.steps == len(player.segments) == 12


def test_the_time_of_a_step_is_charged_to_its_parts():
    """Both copies reach the limit with the second step and are reset."""
    marks: list[str] = []
    watch = Stopwatch()
    watch.lap = marks.append
    rollout, _ = make(2, length_limit=2, watch=watch)
    rollout.step()
    rollout.step()
    assert marks == ["act", "step", "store", "act", "step", "store", "step", "store"]


class Shared:
    """One simulator with an agent of two behaviours; the observation is (1, step)."""

    def __init__(self) -> None:
        spec = AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(continuous=1))
        self.specs = {"a": spec, "b": spec}
        self._step = 0

    def reset(self, indices=None, *, episode=None):
        self._step = 0
        return dict.fromkeys(self.specs, ResetResult(**self._seen()))

    def step(self, actions):
        self._step += 1
        no = np.zeros(1, bool)
        result = StepResult(**self._seen(), reward=np.zeros(1, np.float32), terminated=no, truncated=no)
        return dict.fromkeys(self.specs, result)

    def _seen(self):
        obs = {"obs": np.array([[1, self._step]], np.float32)}
        return {"ids": np.array([0]), "obs": obs, "action_mask": np.zeros((1, 0), bool)}


def test_the_length_limit_resets_a_simulator_once_for_all_behaviours():
    players = {"a": Scripted(), "b": Scripted()}
    rollout = LocalCollector(Shared(), players, players, length_limit=3)
    episodes = [episode for _ in range(6) for episode in rollout.step()]
    assert [(e.behaviour, e.length) for e in episodes] == [("a", 3), ("b", 3)] * 2
    for player in players.values():
        steps = [(segment.start_step, bool(segment.truncated[0])) for segment in player.segments]
        assert steps == [(0, False), (1, False), (2, True)] * 2
