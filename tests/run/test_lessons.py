"""Lessons of a training: from the episodes to the environments, evaluations, metrics and a resumed run."""

from typing import Any

import pytest

import asac
from algorithm.config import ConfigError
from algorithm.config.loader import load_config
from algorithm.core.errors import UsageError
from algorithm.run.inputs import set_up

TASK = "tests.lib.toys:Weighed-v0"
"""Its episodes have 3 steps, and its return is 3 times the mass."""


pytestmark = pytest.mark.usefixtures("cwd")


def masses(*values: float, **criteria: Any) -> list[dict[str, Any]]:
    """Return a lesson for each value; each ends with four returns that are above 3 times itself − 1.6."""
    lessons: list[dict[str, Any]] = [{"name": f"of {value}", "value": value} for value in values]
    for lesson in lessons[:-1]:
        end = {"threshold": 3 * lesson["value"] - 1.6, "min_lesson_length": 4, "signal_smoothing": False}
        lesson["completion_criteria"] = {**end, **criteria}
    return lessons


def train(curriculum: list[dict[str, Any]], max_step: int = 42, **overrides: Any) -> asac.Run:
    keys = {
        "base_config.n_envs": 2,
        "environment_parameters": {"mass": {"curriculum": curriculum}},
        "nn_config": {"q": {"dense_n": 8}, "policy": {"dense_n": 8}},
        "sac_config.start_step": 1000,
        "sac_config.write_summary_per_step": 6,
        "sac_config.save_model_per_step": 20,
        "eval_config": {"per_step": 20, "episodes": 2},
        **overrides,
    }
    return asac.train(TASK, overrides=keys, name="a", max_step=max_step, seed=1, device="cpu", quiet=True)


def column(run: asac.Run, name: str) -> dict[int, float]:
    """Return step -> value of a metric, where there is one."""
    rows = zip(run.metrics["step"], run.metrics[name], strict=True)
    return {int(step): value for step, value in rows if value == value}


def test_a_lesson_ends_with_its_episodes_and_the_next_reaches_the_next_reset() -> None:
    run = train(masses(1, 2, 3))
    # Two episodes every 6 steps. At step 12 the fourth one ends lesson 0; those open then go on with mass 1
    # and do not count: (3 + 3 + 6 + 6)/4 = 4.5 would end lesson 1 at step 24, and its own four do at 30.
    assert column(run, "lesson/mass") == {6: 0, 12: 1, 18: 1, 24: 1, 30: 2, 36: 2, 42: 2}
    assert column(run, "rollout/return_mean") == {6: 3, 12: 3, 18: 3, 24: 6, 30: 6, 36: 6, 42: 9}
    assert column(run, "param/mass")[24] == 2
    assert {*column(run, "eval/return_mean").values()} == {9}, "evaluations are made in the last lesson"
    assert run.evaluate(2).interval.mean == 9 and run.make_env().reset(seed=3)[0][0] == 3
    assert run.evaluate(2, lesson="of 2").interval.mean == 6
    assert run.make_env(lesson="mass=of 1").reset(seed=3)[0][0] == 1


def test_require_reset_begins_the_next_lesson_at_once() -> None:
    run = train(masses(1, 2, 3, require_reset=True))
    assert column(run, "lesson/mass") == {6: 0, 12: 1, 18: 1, 24: 2, 30: 2, 36: 2, 42: 2}
    assert column(run, "rollout/return_mean") == {6: 3, 12: 3, 18: 6, 24: 6, 30: 9, 36: 9, 42: 9}


def test_progress_and_evaluations_in_the_lesson_of_the_training() -> None:
    run = train(masses(1, 2, measure="progress", threshold=0.5), **{"eval_config.lesson": "current"})
    assert column(run, "lesson/mass") == {6: 0, 12: 0, 18: 0, 24: 1, 30: 1, 36: 1, 42: 1}
    assert column(run, "eval/return_mean") == {20: 3, 40: 6, 42: 6}
    assert run.evaluate(2, checkpoint=20).interval.mean == 3, "the lesson is in the checkpoint"
    assert run.evaluate(2, checkpoint=40).interval.mean == 6


@pytest.mark.parametrize(("lesson", "goal"), [("last", 475), ("current", None)])
def test_the_threshold_of_an_environment_is_not_that_of_an_early_lesson(lesson: str, goal: float) -> None:
    end = "completion_criteria: {threshold: 9}"
    lessons = f"[{{name: a, value: 1, {end}}}, {{name: b, value: 2}}]"
    given = [
        f"environment_parameters={{g: {{set: gravity, curriculum: {lessons}}}}}",
        f"eval_config.lesson={lesson}",
    ]
    loaded = set_up(load_config("CartPole-v1", overrides=given, seed=1))
    assert loaded.config.base_config.stop_at_return == goal


def test_a_resumed_run_may_have_other_values_and_no_other_lessons() -> None:
    run = train(masses(1, 2, 3), max_step=20)
    key = "environment_parameters.mass.curriculum"
    with pytest.raises(ConfigError, match=r"lessons of mass were of 1, of 2, of 3 and are of 1, of 3"):
        run.resume(max_step=42, overrides={key: masses(1, 3)})
    other = masses(1, 2, 3)
    other[2]["value"] = 5
    run.resume(max_step=42, overrides={key: other}, quiet=True, device="cpu")
    assert column(run, "lesson/mass") == {6: 0, 12: 1, 18: 1, 24: 1, 30: 2, 36: 2, 42: 2}
    assert column(run, "rollout/return_mean")[42] == 15


def test_a_criterion_of_another_behaviour_is_refused_once_the_environment_is_known() -> None:
    with pytest.raises(UsageError) as raised:
        train(masses(1, 2, behavior="Robot"))
    assert "names 'Robot'" in raised.value.what and "'default'" in raised.value.why
