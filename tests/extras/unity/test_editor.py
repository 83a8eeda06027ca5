"""A run of the whole program in the Unity Editor: one player, no evaluation, and Stop as a signal.

A task of Gymnasium stands in for the scene: all that is looked at lies outside of the environment.
"""

from __future__ import annotations

import json

import pytest

from algorithm.core.errors import EditorStoppedError
from algorithm.env.gym import GymRecipe
from algorithm.env.registry import make_pool
from algorithm.extras.unity import vec
from algorithm.run.experience.collector import LocalCollector
from main import main

TASK = """\
default:
  base_config: {env_type: UNITY, env_name: Pendulum-v1, max_step: 60, max_step_each_iter: 20}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 1000}
  sac_config: {batch_size: 8, start_step: 20, replay_ratio: 0.1}
  eval_config: {per_step: 20, episodes: 1}
"""
RUN = ["./task", "-n", "a", "--device=cpu"]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The numbers of environments that were made, in their order."""
    made = []

    def make(request):
        made.append(request.n)
        recipe = GymRecipe(env_id=request.env_name, env_args={})
        return make_pool(recipe, request)

    monkeypatch.setattr(vec, "UnityVecEnv", make)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "config.yaml").write_text(TASK)
    return made


def result(folder):
    return json.loads((folder / "models" / "task" / "a" / "result.json").read_text())


def test_a_build_has_a_second_player_for_evaluations(made, tmp_path):
    assert main([*RUN, "--quiet"]) == 0
    assert made == [1, 1]
    assert result(tmp_path)["last_eval"] is not None


def test_stop_in_the_editor_saves_and_ends_like_a_signal(made, tmp_path, monkeypatch, capsys):
    real = LocalCollector.step

    def step(self):
        if self.steps == 37:
            raise EditorStoppedError("the Unity Editor has stopped playing")
        return real(self)

    monkeypatch.setattr(LocalCollector, "step", step)
    assert main([*RUN, "--editor"]) == 130
    assert result(tmp_path)["steps"] == 37
    told = capsys.readouterr().out
    assert "the Unity Editor has stopped playing" in told and "SIGINT" not in told
    monkeypatch.setattr(LocalCollector, "step", real)
    assert main([*RUN, "--resume", "--quiet"]) == 0
    assert (result(tmp_path)["steps"], result(tmp_path)["last_eval"]) == (60, None)
    assert made == [1, 1], "the run keeps its editor, which has no second player for evaluations"


@pytest.mark.parametrize("call", ["truncate", "_reset"])
def test_stop_at_the_end_of_an_iteration_or_in_a_reset_ends_the_run_alike(made, tmp_path, monkeypatch, call):
    real = getattr(LocalCollector, call)

    def stop(self, *agents):
        if agents and not any(agents[0].values()):
            return real(self, *agents)
        raise EditorStoppedError("the Unity Editor has stopped playing")

    monkeypatch.setattr(LocalCollector, call, stop)
    words = ["-o", "base_config.reset_on_iteration=true"] if call == "truncate" else []
    assert main([*RUN, "--editor", "--quiet", *words]) == 130
    assert result(tmp_path)["steps"] == 20


@pytest.mark.parametrize("flag", ["--agents=2", "--dry_run"])
def test_an_editor_cannot_be_several_players(made, flag):
    assert main(["./task", "--editor", flag]) == 2
