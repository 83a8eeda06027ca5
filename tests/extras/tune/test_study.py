"""The loop of a study: its trials, their failures, kills, and the runs on fresh seeds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithm.extras.tune import trial
from algorithm.extras.tune.records import best_of
from algorithm.extras.tune.trial import fitting, nominal
from algorithm.run.signals import StopRequest
from tests.extras.tune.conftest import Made

Make = Callable[..., Made]


class When(StopRequest):
    """A stop at a condition."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    def __bool__(self) -> bool:
        return self._condition()


def test_evaluations_of_several_environments_count_for_their_nominal_steps() -> None:
    assert [nominal(step, 500) for step in (500, 504, 996, 1)] == [500, 500, 1000, 500]
    assert nominal(504, 0) == 504


def test_keys_of_an_algorithm_that_was_not_drawn_are_left_out() -> None:
    drawn = {"td3_config.policy_delay": 3, "sac_config.learning_rate": 0.1, "sac_config.v_lambda": 0.5}
    for algorithm, left in (("SAC", [1, 2]), ("TD3", [0, 1])):
        expected = ["algorithm", *(list(drawn)[index] for index in left)]
        assert list(fitting({"algorithm": algorithm, **drawn}, "PPO")) == expected
        assert list(fitting(drawn, algorithm)) == expected[1:]


def test_a_study_finds_the_best_and_compares_it_on_fresh_seeds(made: Make) -> None:
    study = made(trials=8, pruner="none", final_seeds=2)
    trials = study.search()
    best = best_of(trials, "maximize")
    assert best is not None and [one.state for one in trials] == ["complete"] * 8
    assert best.score == max(one.score for one in trials)
    final = study.study().compare(study.stop, best)
    x = best.values["sac_config.learning_rate"]
    assert isinstance(x, float)
    assert final["default"] == pytest.approx([-0.12 - 0.001 * (seed % 7) for seed in (10_001, 10_002)])
    assert final["tuned"] == pytest.approx(
        [-3 * (x - 0.3) ** 2 - 0.001 * (seed % 7) for seed in (10_001, 10_002)]
    )
    tuned = f"tuned_{best.number:03d}"
    assert study.begun[-4:] == [f"{tuned} new", "default new", f"{tuned}_2 new", "default_2 new"]
    assert study.study().compare(study.stop, best) == final, "runs that are over are not run again"


def test_hopeless_trials_end_early_and_jobs_run_at_a_time(made: Make) -> None:
    alone = made(trials=16, pruner="median").search()
    assert {one.state for one in alone} == {"complete", "pruned"}
    assert all(max(one.reports) < 300 for one in alone if one.state == "pruned")
    several = made("b", trials=5, jobs=3)
    waits = [several.run.path / f"wait_trial_{number:03d}" for number in (1, 2, 3)]
    for wait in waits:
        wait.touch()
    several.study().search(When(lambda: len(several.begun) == 3), lambda: None)
    assert [one.state for one in several.optimiser().trials] == ["running"] * 3
    for wait in waits:
        wait.unlink()
    assert len(several.search()) == 5


def test_seeds_of_a_trial_run_one_after_the_other_and_their_mean_counts(made: Make) -> None:
    study = made(trials=1, seeds=3)
    (trial,) = study.search()
    runs = [-3 * (trial.values["sac_config.learning_rate"] - 0.3) ** 2 - 0.001 * seed for seed in (1, 2, 3)]
    assert trial.score == pytest.approx(sum(runs) / 3)
    assert study.begun == ["trial_001 new", "trial_001_2 new", "trial_001_3 new"]


def test_a_run_that_is_killed_is_resumed_and_fails_with_the_third_kill(made: Make) -> None:
    study = made(trials=1)
    (study.run.path / "kill_trial_001").touch()
    (trial,) = study.search()
    assert trial.state == "complete" and study.begun == ["trial_001 new", "trial_001 resumed"]


def test_failures_are_told_with_exit_code_and_reason(made: Make) -> None:
    study = made(trials=3)
    (study.run.path / "fail_trial_002").write_text("5 the critic's loss is NaN")
    trials = study.search()
    assert [one.state for one in trials] == ["complete", "failed", "complete"]
    assert trials[1].why == "exit code 5: the critic's loss is NaN"
    assert any("trial 2 of 3: failed, exit code 5" in line for line in study.said)


def test_draws_that_a_configuration_refuses_are_infeasible(made: Make) -> None:
    study = made(trials=8)
    study.refused = lambda values: "refused: too much" if values["sac_config.learning_rate"] > 0.8 else ""
    assert {one.state for one in study.search()} == {"complete", "failed"}
    study = made("b", trials=4)
    study.refused = lambda values: "refused: it never fits"
    assert {one.state for one in study.search()} == {"failed"}


def test_a_study_stops_with_its_runs_and_goes_on_with_them(made: Make) -> None:
    undisturbed = made(trials=4)
    expected = undisturbed.search()
    study = made("b", trials=4)
    (study.run.path / "wait_trial_003").touch()
    begun = study.run.path / "trial_003" / "metrics.jsonl"
    study.study().search(When(begun.exists), lambda: None)
    assert [one.state for one in study.optimiser().trials] == ["complete", "complete", "running"]
    (study.run.path / "wait_trial_003").unlink()
    assert study.search() == expected
    assert study.begun.count("trial_003 resumed") == 1 and "trial 3 continues" in study.said


@pytest.mark.parametrize("metric", ["eval/episode_steps", "rollout/return_mean"])
def test_a_trial_without_values_of_the_metric_fails(made: Make, metric: str) -> None:
    """There is no such column, or its values are null."""
    (trial,) = made(trials=1, metric=metric).search()
    assert trial.why == f"no row of its metrics has {metric}"


def test_a_run_is_asked_to_stop_once_for_the_second_signal_would_end_it_while_it_saves(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, sent = made(trials=1), list[int]()
    send = trial.send_signal
    monkeypatch.setattr(trial, "send_signal", lambda pid, number: (sent.append(number), send(pid, number)))
    (study.run.path / "wait_trial_001").touch()
    begun = study.run.path / "trial_001" / "metrics.jsonl"
    study.study().search(When(begun.exists), lambda: None)
    assert sent == [signal.SIGTERM]


def test_a_run_that_a_signal_ended_goes_on(made: Make) -> None:
    study = made(trials=1)
    study.optimiser().ask()
    folder = study.run.path / "trial_001"
    folder.mkdir()
    (folder / "result.json").write_text('{"steps": 100, "last_eval": null, "ended": {"by": "signal"}}')
    assert study.search()[0].state == "complete" and study.begun == ["trial_001 new"]


def test_a_run_killed_before_its_first_checkpoint_begins_anew(made: Make) -> None:
    study = made(trials=1)
    study.optimiser().ask()
    folder: Path = study.run.path / "trial_001"
    folder.mkdir()
    (folder / "train.log").touch()
    assert study.search()[0].state == "complete"
    assert study.begun == ["trial_001 new"] and not (folder / "train.log").exists()
