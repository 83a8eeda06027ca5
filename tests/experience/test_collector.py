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
from algorithm.env.base import Observation, ResetResult, StepResult
from algorithm.env.registry import make_vec_env
from algorithm.experience.collector import LocalCollector
from algorithm.replay.buffer import ReplayBuffer, UniformSampler

SEEDS = episode_seeds(3, "train")


def choose(obs: np.ndarray) -> np.ndarray:
    """An action [N, 1] that any loop can compute from the observation alone."""
    return np.tanh(np.sin(obs.sum(-1, keepdims=True))).astype(np.float32)


class Scripted:
    """Acts by ``choose`` and records what it is told; its carry counts the steps of each episode."""

    stored_carry_shape = (1,)

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.closed: list[int] = []

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

    def close(self, stream: int) -> None:
        self.closed.append(stream)


def make(n: int, **options: int) -> tuple[LocalCollector, Scripted]:
    env = make_vec_env("GYM", "tests.toys:Counting-v0", n=n, seed_of=SEEDS)
    player = Scripted()
    return LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options), player


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


@pytest.mark.parametrize(("n", "limit"), [(1, -1), (3, 2), (3, 5)])
def test_stored_transitions_are_those_of_single_environments(n, limit):
    rollout, player = make(n, length_limit=limit)
    episodes = [episode for _ in range(60) for episode in rollout.step()]
    expected = [r for index in range(n) for r in plain_rows(index, 60, limit)]
    assert Counter(map(row, player.segments)) == Counter(expected)
    ended = [r for r in expected if r[-1] or r[-2]]
    assert len(episodes) == len(ended)
    assert sorted(e.length for e in episodes) == sorted(r[1] + 1 for r in ended)


def test_a_rollout_begins_at_episode_zero():
    env = make_vec_env("GYM", "tests.toys:Counting-v0", seed_of=SEEDS)
    for _ in range(2):
        player = Scripted()
        LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}).step()
        assert player.segments[0].obs["obs"][0, 0] == SEEDS(0, 0) % 1000


class Losing:
    """Copies that lose their episode in the steps ``lost`` [T, n]; they observe (episode, step).

    The reward is the step; an episode ends after five steps, terminated if that number is odd.
    """

    def __init__(self, lost: np.ndarray) -> None:
        self._lost = iter(lost)
        self._n = lost.shape[1]
        self.specs = {
            DEFAULT_BEHAVIOUR: AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(continuous=1))
        }
        self.state = np.zeros((self._n, 2), np.float32)

    def reset(self, indices=None, *, episode=None):
        assert indices is None and episode == 0
        self.state[:] = 1, 0
        return {DEFAULT_BEHAVIOUR: ResetResult(**vars(self._see(self.state)))}

    def step(self, actions):
        lost = next(self._lost)
        self.state[~lost, 1] += 1
        ended = ~lost & (self.state[:, 1] == 5)
        final = self._see(self.state) if ended.any() else None
        odd = self.state[:, 0] % 2 == 1
        reward = np.where(lost, 0, self.state[:, 1]).astype(np.float32)
        self.state[lost | ended, 0] += 1
        self.state[lost | ended, 1] = 0
        return {
            DEFAULT_BEHAVIOUR: StepResult(
                **vars(self._see(self.state)),
                reward=reward,
                terminated=ended & odd,
                truncated=ended & ~odd,
                final=final,
                skipped=lost if lost.any() else None,
            )
        }

    def _see(self, state):
        mask = np.zeros((self._n, 0), np.bool_)
        return Observation(ids=np.arange(self._n), obs={"obs": state.copy()}, action_mask=mask)


def follow(lost: np.ndarray) -> tuple[list[tuple], list[int], list[tuple]]:
    """What a plain loop over each copy stores, closes and reports."""
    rows, closed, episodes = [], [], []
    for i, schedule in enumerate(lost.T):
        number, step = 1, 0
        for fails in schedule:
            if fails:
                closed += [i] * (step > 0)
                number, step = number + 1, 0
                continue
            step += 1
            ends = (step == 5 and number % 2 == 1, step == 5 and number % 2 == 0)
            rows.append((i, step - 1, (number, step - 1), (number, step), float(step), *ends))
            if step == 5:
                episodes.append((i, 15.0, 5))
                number, step = number + 1, 0
    return rows, closed, episodes


class Remembering(Scripted):
    """Stores what it is told in a replay as well."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__()
        self.replay = ReplayBuffer(
            spec,
            capacity=2000,
            batch_size=64,
            n_step=3,
            carry_shape=(1,),
            sampler=UniformSampler(),
        )

    def add_steps(self, steps: StepBatch) -> None:
        super().add_steps(steps)
        self.replay.add_steps(steps)

    def close(self, stream: int) -> None:
        super().close(stream)
        self.replay.close(stream)


@pytest.mark.parametrize(("n", "share"), [(1, 0.1), (3, 0.5)])
def test_an_agent_that_is_skipped_stores_nothing_and_begins_anew(rng, n, share):
    lost = rng.random((120, n)) < share
    lost[0] = lost[7] = True  # before anything is stored, and all at once
    env = Losing(lost)
    player = Remembering(env.specs[DEFAULT_BEHAVIOUR])
    rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player})
    episodes, steps = [], []
    for _ in lost:
        episodes += [(e.agent, e.total, e.length) for e in rollout.step()]
        steps.append(rollout.steps)
    assert steps == np.cumsum((~lost).sum(axis=1)).tolist()
    rows, closed, ended = follow(lost)
    stored = [(*row(s)[:4], *row(s)[5:]) for s in player.segments]
    assert Counter(stored) == Counter(rows)
    assert Counter(player.closed) == Counter(closed)
    assert Counter(episodes) == Counter(ended)
    assert player.replay.num_transitions == len(rows)
    check_windows(player.replay.sample(), set(rows))


def check_windows(batch, rows: set[tuple]) -> None:
    """No window leaves its episode, and only what ended by itself is terminated."""
    ends = {(before, after): terminated for _, _, before, after, _, terminated, _ in rows}
    obs, valid = batch.obs["obs"].numpy(), batch.valid.numpy()
    for b, t in zip(*np.nonzero(valid), strict=True):
        before, after = tuple(obs[b, t].tolist()), tuple(obs[b, t + 1].tolist())
        assert bool(batch.terminated[b, t]) == ends[before, after]


def test_what_is_stored_before_a_reset_fails_is_counted(monkeypatch):
    rollout, player = make(3, length_limit=4)

    def fails(indices=None, *, episode=None):
        raise EnvError("the simulator is gone")

    monkeypatch.setattr(rollout._env, "reset", fails)
    with pytest.raises(EnvError, match="gone"):
        for _ in range(4):
            rollout.step()
    assert rollout.steps == sum(segment.length for segment in player.segments) == 12


def test_the_time_of_a_step_is_charged_to_its_parts():
    class Marks(Stopwatch):
        def lap(self, part):
            marks.append(part)

    marks: list[str] = []
    env = make_vec_env("GYM", "tests.toys:Counting-v0", n=2, seed_of=SEEDS)
    rollout = LocalCollector(env, {DEFAULT_BEHAVIOUR: Scripted()}, length_limit=2, watch=Marks())
    rollout.step()
    assert marks == ["act", "step", "store"]
    marks.clear()
    rollout.step()  # both copies reach the limit and are reset
    assert marks == ["act", "step", "store", "step", "store"]


class Shared:
    """One simulator with an agent of two behaviours; the observation is (1, step)."""

    def __init__(self) -> None:
        spec = AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(continuous=1))
        self.specs = {"a": spec, "b": spec}
        self._step = 0

    def reset(self, indices=None, *, episode=None):
        self._step = 0
        return {name: ResetResult(**self._seen()) for name in self.specs}

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
        steps = [tuple(segment.obs["obs"][:, 1].tolist()) for segment in player.segments]
        assert steps == [(0, 1), (1, 2), (2, 3)] * 2
        assert [bool(segment.truncated[0]) for segment in player.segments] == [False, False, True] * 2
