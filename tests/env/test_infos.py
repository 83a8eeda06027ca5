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
    assert present(one.keys, one.values[0]) == {"done": 1.0, "reward_a": 3.0}
    one.begin()
    assert present(one.keys, one.values[0]) == {}
    one.add({"done": np.inf, "reward_a": 4.0})
    assert present(one.keys, one.values[0]) == {"reward_a": 4.0}, "what is not finite is not there"
    one.add({"done": None})
    assert present(one.keys, one.values[0]) == {"reward_a": 4.0}, "None is not there"
    with pytest.raises(SpaceMismatchError, match="done"):
        one.add({"done": "yes"})


def test_objects_of_vector_classes_are_read_one_by_one():
    """Gymnasium batches numpy's own truth values so."""
    many, took = EpisodeInfos(KEYS, 3), np.ones(3, np.bool_)
    values = np.array([np.True_, None, np.False_], object)
    many.add_batch([({"done": values, "_done": np.array([True, True, True])}, took)], took, ~took)
    assert [present(many.keys, row) for row in many.values] == [{"done": 1.0}, {}, {"done": 0.0}]
    with pytest.raises(SpaceMismatchError, match="done"):
        many.add_batch([({"done": np.array([None, "yes", None], object)}, took)], took, ~took)


def test_of_many_those_count_that_have_one_and_took_a_step():
    many, all_three, none = EpisodeInfos(KEYS, 3), np.ones(3, np.bool_), np.zeros(3, np.bool_)
    ended = np.array([False, True, False])
    many.add_batch([({"reward_a": np.array([1.0, 2.0, 3.0])}, all_three)], all_three, none)
    infos = {"reward_a": np.array([1.0, 50.0, 3.0]), "_reward_a": np.array([True, True, False])}
    last = {"reward_a": np.array([0.0, 7.0, 0.0]), "done": np.array([0, 1, 0])}
    many.add_batch([(infos, ~ended), (last, ended)], all_three, ended)
    assert many.values[:, 1].tolist() == [2.0, 9.0, 3.0], "50 is of the next episode's reset"
    assert present(many.keys, many.values[1]) == {"done": 1.0, "reward_a": 9.0}

    fives = {"reward_a": np.array([5.0, 5.0, 5.0])}
    many.add_batch([(fives, ~ended)], ~ended, none)
    assert many.values[:, 1].tolist() == [7.0, 9.0, 8.0], "the second one was reset in that step"
    many.begin_next(np.array([0]))
    many.add_batch([(fives, all_three)], all_three, none)
    assert many.values[:, 1].tolist() == [5.0, 5.0, 13.0]


def test_from_the_first_report_on_every_episode_counts_a_person_s_steps():
    many, all_three, none = EpisodeInfos((), 3), np.ones(3, np.bool_), np.zeros(3, np.bool_)
    many.add_batch([({}, all_three)], all_three, none)
    assert np.isnan(many.values).all(), "nothing was reported"
    many.add_batch([], np.array([True, True, False]), none, np.array([True, False, True]))
    assert many.values[:2, 0].tolist() == [1.0, 0.0] and np.isnan(many.values[2, 0]), "it took no step"
    many.begin_next(np.array([0]))
    many.add_batch([], all_three, none)
    assert many.values[:2, 0].tolist() == [0.0, 0.0], "the next episode begins with 0"
