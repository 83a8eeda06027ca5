"""A rollout of environments: where it begins, what it counts, and resets of whole simulators."""

from __future__ import annotations

import numpy as np
import pytest

import tests.lib.toys  # noqa: F401 - registers the environments
from algorithm.core.data import ActorOutput, Segment, StepBatch
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR, ActionSpec, AgentSpec, ObsSpec
from algorithm.core.timing import Stopwatch
from algorithm.env.base import ResetResult, StepResult, VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector

SEEDS = episode_seeds(3, "train")


class Scripted:
    """Records what it is told; its carry counts the steps of each episode."""

    stored_carry_shape = (1,)

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def initial_carry(self, n: int) -> np.ndarray:
        return np.zeros((n, 1), np.float32)

    def act(self, obs, prev_action, carry, action_mask) -> ActorOutput:
        action = np.full((len(carry), 1), 0.5, np.float32)
        assert np.array_equal(prev_action == 0.0, obs["obs"][:, 1:] == 0.0)  # zero at episode starts only
        assert np.array_equal(carry, obs["obs"][:, 1:])
        logp = np.zeros((len(action), 1), np.float32)
        return ActorOutput(action=action, z=np.arctanh(action), behaviour_logp=logp, carry=carry + 1)

    def add_steps(self, steps: StepBatch) -> None:
        self.segments += steps.segments()


def make(n: int, **options) -> tuple[LocalCollector, Scripted]:
    """A rollout of copies that have been used before."""
    env, player = (
        make_vec_env(EnvRequest("GYM", "tests.lib.toys:Counting-v0", n=n, seed_of=SEEDS)),
        Scripted(),
    )
    env.reset()
    return LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options), player


def test_what_is_stored_before_a_reset_fails_is_counted(monkeypatch):
    rollout, player = make(3, length_limit=4)
    rollout.step()
    assert [s.obs["obs"][0, 0] for s in player.segments] == [SEEDS(i, 0) % 1000 for i in range(3)], (
        "episode 0"
    )

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


class Shared(VecEnv):
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
