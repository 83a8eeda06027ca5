"""A run of the whole program in the Unity Editor: one player, no evaluation, and Stop as a signal.

A task of Gymnasium stands in for the scene: all that is looked at lies outside of the environment.
"""

from __future__ import annotations

import json

import pytest

from algorithm.env.gym import GymRecipe
from algorithm.env.unity import vec
from algorithm.env.unity.player import EditorStoppedError
from algorithm.experience.collector import LocalCollector
from main import main

TASK = """\
default:
  base_config: {env_type: UNITY, env_name: Pendulum-v1, max_step: 60, max_step_each_iter: 20}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000}
  sac_config: {batch_size: 8, start_step: 20, replay_ratio: 0.1}
  eval_config: {per_step: 20, episodes: 1}
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The numbers of environments that were made, in their order."""
    made = []

    def make(request):
        made.append(request.n)
        recipe = GymRecipe(env_id=request.env_name, env_args={})
        return request.pool.make(recipe, n=request.n, seed_of=request.seed_of)

    monkeypatch.setattr(vec, "UnityVecEnv", make)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    return made


def result(folder):
    return json.loads((folder / "models" / "task" / "a" / "result.json").read_text())


def test_an_editor_is_one_player_without_evaluation(made, tmp_path):
    assert main(["./task", "-n", "a", "--editor", "--device=cpu", "--quiet"]) == 0
    assert made == [1]
    assert result(tmp_path)["steps"] == 60
    assert result(tmp_path)["last_eval"] is None


def test_a_build_has_a_second_player_for_evaluations(made, tmp_path):
    assert main(["./task", "-n", "a", "--device=cpu", "--quiet"]) == 0
    assert made == [1, 1]
    assert result(tmp_path)["last_eval"] is not None


def test_stop_in_the_editor_saves_and_ends_like_a_signal(made, tmp_path, monkeypatch, capsys):
    real = LocalCollector.step

    def step(self):
        if self.steps == 37:
            raise EditorStoppedError("the Unity Editor has stopped playing")
        return real(self)

    monkeypatch.setattr(LocalCollector, "step", step)
    assert main(["./task", "-n", "a", "--editor", "--device=cpu"]) == 130
    assert result(tmp_path)["steps"] == 37
    told = capsys.readouterr().out
    assert "the Unity Editor has stopped playing" in told and "SIGINT" not in told
    monkeypatch.setattr(LocalCollector, "step", real)
    assert main(["./task", "-n", "a", "--resume", "--device=cpu", "--quiet"]) == 0
    assert result(tmp_path)["steps"] == 60
    assert made == [1, 1]  # the run keeps its editor


def test_stop_at_the_end_of_an_iteration_ends_the_run_alike(made, tmp_path, monkeypatch):
    def truncate(self):
        raise EditorStoppedError("the Unity Editor has stopped playing")

    monkeypatch.setattr(LocalCollector, "truncate", truncate)
    words = ["--device=cpu", "--quiet", "-o", "base_config.reset_on_iteration=true"]
    assert main(["./task", "-n", "a", "--editor", *words]) == 130
    assert result(tmp_path)["steps"] == 20


def test_stop_in_a_reset_counts_the_steps_before_it(made, tmp_path, monkeypatch):
    real = LocalCollector._reset

    def reset(self, agents):
        if any(agents.values()):
            raise EditorStoppedError("the Unity Editor has stopped playing")
        real(self, agents)

    monkeypatch.setattr(LocalCollector, "_reset", reset)
    assert main(["./task", "-n", "a", "--editor", "--device=cpu", "--quiet"]) == 130
    assert result(tmp_path)["steps"] == 20


def test_an_editor_cannot_be_several_players(made, capsys):
    assert main(["./task", "-n", "a", "--editor", "--agents=2"]) == 2
    assert "the Unity Editor is one player" in capsys.readouterr().err
    assert main(["./task", "--editor", "--dry_run"]) == 2
    assert "--dry_run and --editor cannot go together" in capsys.readouterr().err
