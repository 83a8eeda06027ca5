"""Evaluations: agents that are waited for, and callbacks, which change nothing."""

from contextlib import nullcontext
from typing import Any

import pytest

from algorithm.config.schema import Config
from algorithm.core.data import Episode
from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.run.evaluation import evaluate as module
from algorithm.run.evaluation.callbacks import CallbackList, EvalCallback
from algorithm.run.evaluation.evaluate import Performance, cut_off_line, episode_limit, evaluate
from tests.lib.toys_agents import Attentive, Both, Guests

ONE = {DEFAULT_BEHAVIOUR: Attentive()}


class Noting(EvalCallback):
    """Writes down what it is told, with a name before it."""

    def __init__(self, told: list[Any], name: str = "", *, fails: bool = False) -> None:
        self._told, self._name, self._fails = told, name, fails

    def begin(self) -> None:
        self._told.append(f"{self._name}begin")

    def step(self, ended) -> None:
        self._told.append((self._name, len(ended)) if self._name else len(ended))

    def end(self) -> None:
        self._told.append(f"{self._name}end")
        if self._fails:
            raise OSError("cannot end")


@pytest.mark.parametrize(
    ("script", "error", "told"),
    [
        ([".", "."], (StopIteration, IndexError), ["begin", 0, 0, "end"]),  # the script is over
        (["."] * 9, None, ["begin", 0, 0, 0, "end"]),  # it is asked to stop
    ],
)
def test_the_end_is_told_however_it_comes(script, error, told):
    found: list[Any] = []
    with pytest.raises(error) if error else nullcontext():
        evaluate(Guests(script, {0}), ONE, 1, stop=lambda: len(found) > 3, callback=Noting(found))
    assert found == told


def test_callbacks_of_a_list_run_in_order_and_all_end_even_if_one_raises():
    told: list[Any] = []
    callback = CallbackList(Noting(told, "a", fails=True), Noting(told, "b"))
    with pytest.raises(OSError, match="cannot end"):
        evaluate(Guests(["T"], {0}), ONE, 1, callback=callback)
    assert told == ["abegin", "bbegin", ("a", 1), ("b", 1), "aend", "bend"]


@pytest.mark.parametrize(
    ("time_limit", "each_iter", "own", "limit"),
    [
        (None, -1, None, 10_000),
        (200, -1, None, -1),
        (None, 50, None, 50),
        (200, 50, 30, 30),
        (None, -1, -1, -1),
        (None, 50, 80, 50),
        (20, -1, 20, 20),
    ],
)
def test_an_episode_of_an_evaluation_ends_somewhere(time_limit, each_iter, own, limit):
    config = Config.model_validate(
        {"base_config": {"max_step_each_iter": each_iter}, "eval_config": {"max_step": own}}
    )
    assert episode_limit(config, time_limit) == limit
    line = cut_off_line([Performance((1.0, 2.0), (limit, 7))], config, time_limit)
    if limit in (-1, 50, 20):  # never, or by the limit of the training or the environment, which is known
        assert line is None
    else:
        assert f"1 of 2 episodes of the evaluation were cut off after {limit:,} steps" in line


def both(a: list[str], b: list[str]) -> Both:
    """Agent 0 of ``a`` is there from the start, nobody of ``b``."""
    return Both(a=Guests(a, {0}), b=Guests(b, set()))


def players() -> dict[str, Attentive]:
    return {"a": Attentive(), "b": Attentive()}


def test_nobody_waits_for_agents_that_never_come(monkeypatch):
    """While others still play nothing is counted; then it takes PATIENCE steps."""
    monkeypatch.setattr(module, "PATIENCE", 4)
    seen: list[Any] = []
    script = ["."] * 9 + ["T"] + ["."] * 9
    with pytest.raises(EnvError, match=r"do not appear: 'b' \(0 of 1\)"):
        evaluate(both(script, ["."] * 20), players(), 1, callback=Noting(seen))
    assert len(seen) == 1 + 10 + 3 + 1, "the step that ended the last episode is the first one of the wait"


def test_nobody_waits_for_episodes_that_are_always_cut_off(monkeypatch):
    """Agent 0 of ``b`` acts in every other step: a reset for agent 0 of ``a`` always comes first."""
    monkeypatch.setattr(module, "PATIENCE", 4)
    env = Both(a=Guests(["."] * 30, {0}), b=Guests([".", "w"] * 15, {0}))
    with pytest.raises(EnvError, match=r"do not end: 'b' \(0 of 1\)"):
        evaluate(env, players(), 1, length_limit=3)


def test_who_comes_in_time_is_waited_for(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 4)
    late = ["." if t != 12 else "a" for t in range(30)]
    late[20] = "T"
    found = evaluate(both(["."] * 9 + ["T"] + ["."] * 20, late), players(), 1)
    assert found is not None and found["b"].lengths == (20 - 12,)


@pytest.mark.parametrize(
    ("script", "episodes", "told", "lengths"),
    [
        pytest.param(
            ["TT", ".T", "TT"], 4, [(0, 1), (1, 1), (1, 1), (0, 2)], (1, 1, 2, 1), id="all that count"
        ),
        # Agent 0 has episodes of one step, agent 1 of five: four have ended before the one that began second.
        pytest.param(
            ["T."] * 4 + ["TT"] * 2, 4, [(0, 1), (0, 1), (0, 1), (1, 5)], (1, 5, 1, 1), id="began first"
        ),
        # Agent 1 vanishes; the place goes to the episode that began next, which may have ended already.
        pytest.param(["T..", "T..", "Tv.", "T.a", "..T", "T.."], 3, [(0, 1)] * 3, (1, 1, 1), id="lost"),
        pytest.param(["Tw", "Tw", "TT"], 2, [(0, 1), (1, 1)], (1, 1), id="an agent that waits"),
    ],
)
def test_the_episodes_that_began_first_count_and_are_told(script, episodes, told, lengths):
    found: list[Episode] = []
    scores = evaluate(Guests(script, {0, 1}, shuffled=False), ONE, episodes, on_episode=found.append)
    assert [(e.agent, e.length) for e in found] == told
    assert scores is not None and scores[DEFAULT_BEHAVIOUR].lengths == lengths
