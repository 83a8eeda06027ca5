"""Resets of whole simulators."""

import tests.lib.toys  # noqa: F401 - registers the environments
from algorithm.run.experience.collector import LocalCollector
from tests.env.oracles import Witness
from tests.run.test_behaviours import TwoKinds


def test_the_length_limit_resets_a_simulator_once_for_all_behaviours():
    env = TwoKinds()
    players = {name: Witness(spec) for name, spec in env.specs.items()}
    rollout = LocalCollector(env, players, players, length_limit=3)
    episodes = [episode for _ in range(6) for episode in rollout.step()]
    assert [(e.behaviour, e.length) for e in episodes] == [("walker", 3), ("walker", 3), ("runner", 3)] * 2
    for seen in (seen for player in players.values() for seen in player.seen.values()):
        steps = [(transition.step, transition.truncated) for transition in seen]
        assert steps == [(0, False), (1, False), (2, True)] * 2
