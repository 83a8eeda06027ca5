"""A rollout of environments: where it begins, what it counts, and resets of whole simulators."""

from __future__ import annotations

import pytest

import tests.lib.toys  # noqa: F401 - registers the environments
from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import Stopwatch
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.run.experience.collector import LocalCollector
from tests.env.oracles import Witness
from tests.run.test_behaviours import TwoKinds

SEEDS = episode_seeds(3, "train")


def make(n: int, **options) -> tuple[LocalCollector, Witness]:
    """A rollout of copies that have been used before."""
    env = make_vec_env(EnvRequest("GYM", "tests.lib.toys:Counting-v0", n=n, seed_of=SEEDS))
    env.reset()
    player = Witness(env.specs[DEFAULT_BEHAVIOUR])
    return LocalCollector(env, {DEFAULT_BEHAVIOUR: player}, {DEFAULT_BEHAVIOUR: player}, **options), player


def test_what_is_stored_before_a_reset_fails_is_counted(monkeypatch):
    rollout, player = make(3, length_limit=4)
    rollout.step()
    assert [player.seen[i][0].obs[0] for i in range(3)] == [SEEDS(i, 0) % 1000 for i in range(3)], "episode 0"

    def fails(indices=None, *, episode=None):
        raise EnvError("the simulator is gone")

    monkeypatch.setattr(rollout._env, "reset", fails)
    with pytest.raises(EnvError, match="gone"):
        for _ in range(4):
            rollout.step()
    assert rollout.steps == sum(map(len, player.seen.values())) == 12


def test_the_time_of_a_step_is_charged_to_its_parts():
    """Both copies reach the limit with the second step and are reset."""
    marks: list[str] = []
    watch = Stopwatch()
    watch.lap = marks.append
    rollout, _ = make(2, length_limit=2, watch=watch)
    rollout.step()
    rollout.step()
    assert marks == ["act", "step", "store", "act", "step", "store", "step", "store"]


def test_the_length_limit_resets_a_simulator_once_for_all_behaviours():
    env = TwoKinds()
    players = {name: Witness(spec) for name, spec in env.specs.items()}
    rollout = LocalCollector(env, players, players, length_limit=3)
    episodes = [episode for _ in range(6) for episode in rollout.step()]
    assert [(e.behaviour, e.length) for e in episodes] == [("walker", 3), ("walker", 3), ("runner", 3)] * 2
    for seen in (seen for player in players.values() for seen in player.seen.values()):
        steps = [(transition.step, transition.truncated) for transition in seen]
        assert steps == [(0, False), (1, False), (2, True)] * 2
