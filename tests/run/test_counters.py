"""Counts of a training, and that they survive a checkpoint."""

import json
import math

import pytest

from algorithm.config.schema import BaseConfig
from algorithm.core.data import Episode, State
from algorithm.run.counters import MAX_EPISODES, SHOWN_RETURNS, Counters
from algorithm.run.evaluation.evaluate import Performance


@pytest.fixture
def counters() -> Counters:
    """At step 60 and iteration 3; 2.0 at step 40, 0.5 at step 60; with a 1 that was logged."""
    counters = Counters(["a", "b"])
    counters.step, counters.iteration = 40, 3
    counters.log("x", 1.0)
    counters.add([Episode("a", 1, 0.1 + 0.2, 7), Episode("b", 0, -1e300, 2)])
    counters.record_evaluation({"a": Performance((1.5, 2.5), (10, 11))})
    counters.step = 60
    counters.record_evaluation({"a": Performance((0.5,), (9,))})
    return counters


def test_episodes_are_kept_until_the_next_summary_and_their_returns_a_while_longer(counters):
    assert (counters.episodes, len(counters.since_summary["a"]), len(counters.since_summary["b"])) == (
        2,
        1,
        1,
    )
    counters.add([Episode("a", 0, float(i), 1) for i in range(30)])
    assert list(counters.returns) == [float(i) for i in range(30 - SHOWN_RETURNS, 30)]


def test_a_run_ends_at_its_limit_and_not_before(counters):
    assert not counters.ends(BaseConfig(max_step=61, max_iter=4), None)
    assert list(counters.ends(BaseConfig(max_step=60, max_iter=3), None)) == ["max_step", "max_iter"]


def test_a_run_ends_after_evaluations_in_a_row_without_improvement(counters):
    patient = BaseConfig(stop_without_improvement=2)
    assert not counters.ends(patient, None)
    counters.record_evaluation({"a": Performance((2.0,), (1,))})
    assert list(counters.ends(patient, None)) == ["stop_without_improvement"]
    assert not counters.ends(BaseConfig(), None)
    counters.record_evaluation({"a": Performance((2.1,), (1,))})
    assert not counters.ends(patient, None), "an improvement begins a new row"


def test_what_callbacks_log_is_a_mean_since_the_last_row(counters):
    for value in (math.nan, 2.0, math.inf, 6.0):
        counters.log("x", value)
    assert counters.take_logged() == {"x": 3.0} and counters.take_logged() == {}


def test_the_best_evaluation_is_the_first_of_the_highest(counters):
    assert counters.last_eval.step == 60 and counters.best_eval.step == 40
    assert not counters.record_evaluation({"a": Performance((2.0,), (1,))})  # no better than 2.0 before
    assert counters.record_evaluation({"a": Performance((2.1,), (1,))})


def test_the_best_of_several_behaviours_is_that_of_their_mean():
    counters = Counters(["a", "b"])
    for step, (a, b) in enumerate([((1.0, 3.0), (10.0, 10.0)), ((9.0, 9.0), (1.0, 1.0))]):
        counters.step = step
        assert counters.record_evaluation({"a": Performance(a, (1, 1)), "b": Performance(b, (4, 2))}) == (
            step == 0
        )
    assert counters.best_eval.step == 0
    assert counters.best_eval.overall == Performance((5.5, 6.5), (2.5, 1.5))
    infos = ({"is_success": 1.0}, {"is_success": 0.5, "speed": 2.0})
    counters.record_evaluation(
        {name: Performance((1.0,), (1,), one) for name, one in zip("ab", infos, strict=True)}
    )
    assert counters.last_eval.overall.infos == {"is_success": 0.75, "speed": 2.0}


def test_success_is_that_of_every_behaviour_at_this_step(counters):
    counters.record_evaluation({"a": Performance((0.5,), (9,)), "b": Performance((3.0,), (1,))})
    assert counters.has_reached(0.5) and not counters.has_reached(0.6) and not counters.has_reached(None)
    counters.step += 1
    assert not counters.has_reached(0.5), "the next evaluation counts"


def test_the_evaluation_behind_the_end_is_remembered_and_ends_nothing(counters):
    base = BaseConfig(stop_at_return=2.0, stop_without_improvement=2)
    counters.step, before = 70, (counters.evaluations, counters.no_better)
    assert not counters.record_evaluation({"a": Performance((1.0,), (1,))}, on_way=False)
    assert (counters.evaluations, counters.no_better) == before and counters.last_eval.mean == 1.0
    assert counters.record_evaluation({"a": Performance((9.0,), (1,))}, on_way=False)
    assert counters.best_eval.mean == 9.0 and not counters.ends(base, None)


def test_everything_comes_back_through_json(counters):
    counters.owes_evaluation = True
    again = Counters(["a", "b"])
    again.load_state(State(meta=json.loads(json.dumps(counters.state().meta))))
    assert vars(again) == vars(counters)


@pytest.mark.fault("F32")
def test_of_episodes_without_a_summary_only_the_last_ones_are_kept():
    """Where no steps come, no summary is due, however many episodes are told."""
    counters = Counters(["a"])
    for number in range(3 * MAX_EPISODES):
        counters.add([Episode("a", number, 0.0, 1)])
    kept = counters.since_summary["a"]
    assert len(kept) <= 2 * MAX_EPISODES and kept[-1].agent == 3 * MAX_EPISODES - 1
    assert counters.episodes == 3 * MAX_EPISODES
