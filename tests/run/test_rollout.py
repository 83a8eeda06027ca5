"""Every transition of a rollout, against a plain loop over single environments."""

from __future__ import annotations

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest

import tests.toys  # noqa: F401 - registers the environments
from algorithm.data import Segment
from algorithm.env.registry import make_vec_env
from algorithm.run.rollout import Rollout
from algorithm.run.seeding import episode_seeds
from algorithm.sac.actor import ActorOutput
from algorithm.spec import DEFAULT_BEHAVIOUR

SEEDS = episode_seeds(3, "train")


def choose(obs: np.ndarray) -> np.ndarray:
    """An action [N, 1] that any loop can compute from the observation alone."""
    return np.tanh(np.sin(obs.sum(-1, keepdims=True))).astype(np.float32)


class Scripted:
    """Acts by ``choose`` and records what it is told; its carry counts the steps of each episode."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.closed: list[int] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry) -> ActorOutput:
        action = choose(obs["obs"])
        assert np.array_equal(prev_action == 0.0, obs["obs"][:, 1:] == 0.0)  # zero at episode starts only
        assert np.array_equal(carry, obs["obs"][:, 1:])
        logp = np.zeros((len(action), 1), np.float32)
        return ActorOutput(action=action, z=np.arctanh(action), behaviour_logp=logp, carry=carry + 1)

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def close(self, stream: int) -> None:
        self.closed.append(stream)


def make(n: int, **options: int) -> tuple[Rollout, Scripted]:
    env = make_vec_env("GYM", "tests.toys:Counting-v0", n=n, seed_of=SEEDS)
    player = Scripted()
    return Rollout(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options), player


def row(s: Segment) -> tuple:
    assert np.array_equal(s.carry[:, 0], [s.start_step, s.start_step + 1])
    ends = (bool(s.terminated[0]), bool(s.truncated[0]))
    obs, after = (tuple(o) for o in s.obs["obs"].tolist())
    return (s.stream, s.start_step, obs, after, float(s.action[0, 0]), float(s.reward[0]), *ends)


def plain_rows(index: int, count: int, limit: int = -1) -> list[tuple]:
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
            ends = (terminated, truncated)
            rows.append(
                (index, step, tuple(obs.tolist()), tuple(after.tolist()), float(action[0]),
                 float(np.float32(reward)), *ends)
            )  # fmt: skip
            obs, step, over = after, step + 1, terminated or truncated
        episode += 1
    return rows


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("limit", [-1, 2, 5])
def test_stored_transitions_are_those_of_single_environments(n, limit):
    rollout, player = make(n, length_limit=limit)
    episodes = [episode for _ in range(60) for episode in rollout.step()]
    expected = [r for index in range(n) for r in plain_rows(index, 60, limit)]
    assert Counter(map(row, player.segments)) == Counter(expected)
    ended = [r for r in expected if r[-1] or r[-2]]
    assert len(episodes) == len(ended)
    assert sorted(e.length for e in episodes) == sorted(r[1] + 1 for r in ended)


def test_returns_are_sums_of_rewards():
    rollout, player = make(1)
    episodes = [episode for _ in range(40) for episode in rollout.step()]
    rewards = iter(float(s.reward[0]) for s in player.segments)
    for episode in episodes:
        assert episode.total == pytest.approx(sum(next(rewards) for _ in range(episode.length)))


def test_truncate_ends_what_is_unfinished_and_only_that():
    rollout, player = make(3)
    while len({e.agent for e in rollout.step()}) != 1:  # one agent has just begun anew, two are under way
        pass
    fresh = [s.stream for s in player.segments[-3:] if s.terminated[0] or s.truncated[0]]
    before = len(player.segments)
    rollout.truncate()
    assert sorted(player.closed + fresh) == [0, 1, 2]
    rollout.step()
    assert [s.start_step for s in player.segments[before:]] == [0, 0, 0]


def test_a_rollout_begins_at_episode_zero():
    env = make_vec_env("GYM", "tests.toys:Counting-v0", seed_of=SEEDS)
    for _ in range(2):
        player = Scripted()
        Rollout(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}).step()
        assert player.segments[0].obs["obs"][0, 0] == SEEDS(0, 0) % 1000
