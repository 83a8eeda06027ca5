"""Ends of lessons, by hand numbers."""

import json
from dataclasses import replace

import pytest

from algorithm.core.data import Episode
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import Curricula, LessonChange


def curriculum(*lessons: dict[str, object]) -> dict[str, object]:
    """Return lessons 0, 1, … that end by these criteria, and a last one."""
    steps = [{"name": f"{i}", "value": i, "completion_criteria": end} for i, end in enumerate(lessons)]
    return {"curriculum": [*steps, {"name": "last", "value": len(steps)}]}


def made(**parameters: object) -> Curricula:
    return Curricula(read_parameters(parameters))


def episode(total: float, agent: int = 0, behaviour: str = "Robot") -> Episode:
    return Episode(behaviour, agent, total, 10)


def plain(threshold: float, length: int = 1, **more: object) -> dict[str, object]:
    return {"threshold": threshold, "min_lesson_length": length, "signal_smoothing": False, **more}


def after(curricula: Curricula, *totals: float, progress: float = 0.0) -> list[str]:
    """Return the lesson of ``height`` after each episode."""
    found = []
    for total in totals:
        curricula.add([episode(total)])
        curricula.advance(progress)
        found.append(curricula.lessons["height"])
    return found


def test_a_mean_has_to_be_above_the_threshold_over_so_many_episodes_of_the_lesson():
    curricula = made(height=curriculum(plain(1.0, 2), plain(1.0, 2)))
    # Alone it does not count; (3 + −1)/2 = 1 is not above 1; (−1 + 3.5)/2 = 1.25 is. Then all begins anew:
    # 9 alone is one episode, and (9 + 0)/2 is above.
    assert after(curricula, 3, -1, 3.5, 9, 0) == ["0", "0", "1", "1", "last"]
    assert curricula.numbers == {"height": 2}
    assert after(curricula, 100, 100) == ["last", "last"]


def test_the_mean_is_that_of_the_last_episodes_so_that_an_early_failure_is_forgotten():
    assert after(made(height=curriculum(plain(1.0, 2))), -100, -100, 2, 2) == ["0", "0", "0", "last"]


def test_smoothing_keeps_a_quarter_of_the_former_measure():
    curricula = made(height=curriculum({"threshold": 2.5, "min_lesson_length": 2}))
    # Means of the last two: 0, 2, 3, 3; m = 0, 0.25·0 + 0.75·2 = 1.5, 0.375 + 2.25 = 2.625.
    curricula.add([episode(0)])
    assert not curricula.advance(0)
    found = []
    for total in (0, 4, 2):
        curricula.add([episode(total)])
        found.append(bool(curricula.advance(0)))
        assert not curricula.advance(0), "without an episode nothing is measured again"
    assert found == [False, False, True]


def test_a_lesson_with_negative_returns_does_not_end_by_a_beginning_at_0():
    assert after(made(height=curriculum({"threshold": -90.0})), -100, -100) == ["0", "0"]


def test_progress_counts_once_the_lesson_has_lasted():
    curricula = made(height=curriculum(plain(0.5, 2, measure="progress")))
    assert after(curricula, 0, progress=0.9) == ["0"]
    assert after(curricula, 0, progress=0.5) == ["0"]
    assert [change.after for change in curricula.advance(0.51)] == ["last"]


def test_a_rating_counts_once_the_lesson_has_lasted_and_stays_in_a_resumed_run():
    curricula = made(height=curriculum(plain(1250, measure="elo"), plain(1300, 2, measure="elo")))
    curricula.add([episode(9000)])
    assert not curricula.advance(0), "no game has been rated yet"
    curricula.add([replace(episode(-1), infos={"elo": 1251.0}), episode(-1)])
    assert [change.after for change in curricula.advance(0)] == ["1"]
    curricula.add([replace(episode(1), infos={"elo": 1301.0})])
    assert not curricula.advance(0), "one game of two"
    resumed = made(height=curriculum(plain(1250, measure="elo"), plain(1300, 2, measure="elo")))
    resumed.load_state(curricula.state())
    resumed.add([episode(0)])
    assert [change.after for change in resumed.advance(0)] == ["last"]


def test_episodes_count_for_their_behaviour_and_an_open_one_for_the_lesson_it_began_in():
    curricula = made(height=curriculum(plain(1.0, behavior="Robot"), plain(1.0, behavior="Robot")))
    curricula.add([episode(9, behaviour="Wolf")])
    assert not curricula.advance(0)
    curricula.add([episode(9, behaviour="Robot?team=1")])
    assert curricula.advance(0) == [LessonChange("height", "0", "1", False)]
    curricula.pass_over([("Robot", 3)])
    curricula.add([episode(9, agent=3)])  # it began in lesson 0
    assert not curricula.advance(0)
    curricula.add([episode(9, agent=3)])
    assert curricula.advance(0)


def test_a_change_of_one_parameter_begins_the_count_of_all():
    curricula = made(height=curriculum(plain(1.0, 3)), width=curriculum(plain(1.0, 1, require_reset=True)))
    curricula.add([episode(9)])
    assert curricula.advance(0) == [LessonChange("width", "0", "last", True)]
    assert after(curricula, 9, 9, 9) == ["0", "0", "last"]


def test_a_state_goes_on_in_the_middle_of_a_lesson():
    given = {"height": curriculum({"threshold": 2.5, "min_lesson_length": 2}), "scale": 1.0}
    first, second = made(**given), made(**given)
    after(first, 0, 0, 4)
    first.pass_over([("Robot", 3)])
    second.load_state(type(first.state())(meta=json.loads(json.dumps(first.state().meta))))
    for curricula in (first, second):
        curricula.add([episode(9, agent=3)])  # it began in an earlier lesson
        assert not curricula.advance(0)
    assert after(second, 2) == after(first, 2) == ["last"]
    assert made(scale=1.0).state().meta == {}, "a run without lessons is what it was"
    assert made(**given).load_state(made().state()) is None, "lessons may be added to a run"


def test_other_lessons_than_those_of_a_state_are_refused():
    saved = made(height=curriculum(plain(1), plain(1))).state()
    for other in ({}, {"height": curriculum(plain(1))}, {"height": 1.0}):
        with pytest.raises(ValueError, match=r"height were 0, 1, last, and now are (none|0, last)"):
            made(**other).load_state(saved)
