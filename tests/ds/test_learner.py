"""What a learner refuses before anything is written, and whose run is whose."""

import json

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


OFFLINE = ("-o", "demonstrations={path: a.npz, offline: true}", "-o", "sac_config.start_step=0")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-c", "small"), "200 steps and 200 rows"),
        (("-o", "algorithm=ACKTR"), "ACKTR has no actors in other processes"),
        (OFFLINE, "actors step environments, and offline training steps none"),
    ],
)
def test_what_no_learner_can_train_is_refused_with_nothing_left_behind(folder, capsys, flags, said):
    assert main_ds.main(["./task", "learner", "--device=cpu", "--quiet", "-n", "x", *flags]) == 2
    assert said in capsys.readouterr().err and not (folder / "models/task/x").exists()


@pytest.mark.parametrize("by_learner", [True, False])
def test_a_run_is_resumed_only_by_what_began_it(folder, capsys, by_learner):
    run = folder / "models" / "task" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(TASK.replace("default:", "").split("small")[0])
    if by_learner:
        (run / "endpoint.json").write_text(json.dumps({"host": "127.0.0.1", "port": 1}))
    words = ["--device=cpu", "--quiet", "-n", "x", "--resume"]
    if by_learner:
        code, right = main.main(["./task", *words]), "python main_ds.py ./task learner -n x --resume"
    else:
        code, right = main_ds.main(["./task", "learner", *words]), "python main.py ./task -n x --resume"
    assert code == 2 and right in capsys.readouterr().err
