"""Numbers of episodes from the infos of environments, by hand."""

import numpy as np
import pytest

from algorithm.env.outputs import EpisodeInfos, SpaceMismatchError, present

KEYS = ("done", "reward_a")


def test_the_last_value_counts_or_the_sum_of_a_reward():
    one = EpisodeInfos(KEYS)
    for info in (
        {"reward_a": 1},
        {"done": False, "reward_a": np.float32(2.0), "other": "text"},
        {"done": True},
    ):
        one.add(info)
    assert present(one.keys, one.values) == {"done": 1.0, "reward_a": 3.0}
    one.begin()
    assert present(one.keys, one.values) == {}
    one.add({"done": np.inf, "reward_a": 4.0})
    assert present(one.keys, one.values) == {"reward_a": 4.0}, "what is not finite is not there"
    one.add({"done": None})
    assert present(one.keys, one.values) == {"reward_a": 4.0}, "None is not there"
    with pytest.raises(SpaceMismatchError, match="done"):
        one.add({"done": "yes"})


def test_from_the_first_report_on_every_episode_counts_a_person_s_steps():
    one = EpisodeInfos(())
    one.add({})
    assert np.isnan(one.values).all(), "nothing was reported"
    for by_person in (True, False, True):
        one.add({}, by_person)
    assert one.values.tolist() == [2.0]
    one.begin()
    assert one.values.tolist() == [0.0], "the next episode begins with 0"
