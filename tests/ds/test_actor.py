"""An actor that cannot go on: what its log holds, what the learner is told, and where it writes."""

import signal

import pytest

from algorithm.app.cli.ds import parse_distributed
from ds import actor
from ds.net.link import Link
from ds.net.protocol import Bye, LearnerRefused
from tests.ds.learners import HELLO, FakeLearner

TASK = """\
default:
  base_config: {preset: plain, env_type: GYM, env_name: Pendulum-v1}
  nn_config: {policy: {dense_n: 4}, q: {dense_n: 4}}
"""


LESSONS = """\
  environment_parameters:
    d:
      set: gravity
      curriculum:
        - {name: near, value: 1, completion_criteria: {threshold: 1}}
        - {name: far, value: 2}
"""
"""Lesson that the learner of the tests names; an observation of its environment has the value."""


def act(tmp_path, monkeypatch, learner, *flags):
    with pytest.raises(LearnerRefused) as caught:
        begin(tmp_path, monkeypatch, learner, *flags)
    return str(caught.value)


def begin(tmp_path, monkeypatch, learner, *flags, task=TASK):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(task)
    monkeypatch.chdir(tmp_path)

    def link(config, console, stop):
        def show(text):
            actor._show(console, text)

        return Link(learner, HELLO, where="host:1", patience=-1, show=show)

    monkeypatch.setattr(actor, "_link", link)
    return actor.act(parse_distributed(["./task", "actor", "--device=cpu", "--quiet", *flags]))


def test_what_made_it_fail_is_in_its_log_and_told_to_the_learner(tmp_path, monkeypatch):
    learner = FakeLearner(run="task/r")
    assert "weights cannot be used" in act(tmp_path, monkeypatch, learner, "--directory=kept")
    log = (tmp_path / "kept" / "task" / "r" / "actors" / "0" / "actor.log").read_text()
    assert "Traceback" in log and "LearnerRefused: the learner's weights cannot be used" in log
    assert "of task/r" in log, "what it showed is there too"
    (bye,) = learner.of(Bye)
    assert bye.reason.startswith("it failed: the learner's weights cannot be used · ")


@pytest.mark.parametrize(("version", "first"), [(2, 1.0), (3, 2.0)])
def test_it_begins_in_the_lessons_of_the_learner_and_goes_on_to_the_next(
    tmp_path, monkeypatch, version, first
):
    """Those of version 2 are near, those of version 3 far."""
    learner = FakeLearner(run="task/r")
    learner.version, learner.behaviour = version, "default"

    def hear():
        learner.version = 3
        learner.finished = len(learner.stored) > 40

    learner.on_deliver = hear
    monkeypatch.setattr(actor, "load", lambda pieces, behaviours: int(pieces[1]))
    task = TASK.replace("Pendulum-v1", "tests.lib.toys:Weighed-v0") + LESSONS
    assert begin(tmp_path, monkeypatch, learner, task=task) == 0
    values = [value for message in learner.stored for value in values_of(message.steps["default"])]
    assert values[0] == {first} and values[-1] == {2.0}
    assert all(len(seen) == 1 for seen in values), "an episode keeps its value"


def values_of(steps):
    """Those of each transition."""
    before = steps.acted_on(steps.obs["obs"], steps.next_obs["obs"])
    return [
        set(both) for both in zip(before[:, 1].tolist(), steps.next_obs["obs"][:, 1].tolist(), strict=True)
    ]


@pytest.mark.fault("F22")
def test_a_signal_ends_it_while_its_environments_are_made(tmp_path, monkeypatch):
    def make(context, purpose, n, **options):
        signal.raise_signal(signal.SIGTERM)
        context.faults.waiting("1 of 9 environments are made")
        raise AssertionError("it goes on")

    monkeypatch.setattr(actor.RunContext, "env", make)
    learner = FakeLearner(run="task/r")
    assert begin(tmp_path, monkeypatch, learner) == 143
    assert [bye.reason for bye in learner.of(Bye)] == ["its user stopped it"]
    assert "failed" not in (tmp_path / "models" / "task" / "r" / "actors" / "0" / "actor.log").read_text()


@pytest.mark.parametrize("run", ["../../out", "{}/out"])
def test_nothing_is_written_outside_of_the_runs_whatever_the_learner_says(tmp_path, monkeypatch, run):
    (tmp_path / "here").mkdir()
    learner = FakeLearner(run=run.format(tmp_path))
    assert "sent an invalid name of a run" in act(tmp_path / "here", monkeypatch, learner)
    assert [path.name for path in tmp_path.rglob("*")].count("out") == 0
    assert not (tmp_path / "here" / "models").exists()
