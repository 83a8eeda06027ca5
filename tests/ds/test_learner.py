"""What a learner refuses before anything is written, and whose run is whose."""

import json
from pathlib import Path

import pytest

import main
import main_ds

TASK = """\
default:
  base_config: {preset: plain, env_type: GYM, env_name: Pendulum-v1, max_step: 100, max_episode_length: 50}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  replay_config: {capacity: 200}
  sac_config: {batch_size: 8, start_step: 50}
  net_config: {learner_port: 0}
small: {base_config: {max_episode_length: 200}}
"""


@pytest.fixture
def folder(cwd):
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    return cwd


def refused(capsys, *arguments):
    """Exit 2 with nothing left behind; what was said."""
    assert main_ds.main(["./task", "learner", "--device=cpu", "--quiet", "-n", "x", *arguments]) == 2
    assert not Path("models/task/x").exists()
    return capsys.readouterr().err


def test_a_segment_must_fit_into_the_replay(folder, capsys):
    said = refused(capsys, "-c", "small")
    assert "200 steps and 200 rows" in said and "base_config.max_episode_length" in said


def test_a_family_without_remote_actors_is_refused(folder, capsys):
    said = refused(capsys, "-o", "algorithm=ACKTR")
    assert "ACKTR has no actors in other processes" in said and "python main.py ./task" in said


def test_learning_without_an_environment_is_refused(folder, capsys):
    offline = "demonstrations={path: a.npz, offline: true}"
    said = refused(capsys, "-o", offline, "-o", "sac_config.start_step=0")
    assert "actors step environments, and offline training steps none" in said


@pytest.mark.parametrize("by_learner", [True, False])
def test_a_run_is_resumed_only_by_what_began_it(folder, capsys, by_learner):
    run = folder / "models" / "task" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(TASK.replace("default:", "").split("small")[0])
    if by_learner:
        (run / "endpoint.json").write_text(json.dumps({"host": "127.0.0.1", "port": 1}))
    words = ["./task", "--device=cpu", "--quiet", "-n", "x", "--resume"]
    if by_learner:
        code, right = main.main(words), "python main_ds.py ./task learner -n x --resume"
    else:
        code, right = main_ds.main([words[0], "learner", *words[1:]]), "python main.py ./task -n x --resume"
    assert code == 2
    said = capsys.readouterr().err
    assert "it can be resumed only in the same way" in said and right in said
