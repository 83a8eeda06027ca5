"""Playing from the command line: a table, a film, a recording, and the very numbers that were logged."""

import json
import re
import shutil
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from algorithm.app.outputs import scores_json, table
from algorithm.core.errors import StorageError
from algorithm.core.wording import short
from algorithm.run.evaluation.evaluate import Performance
from algorithm.run.evaluation.statistics import mean_interval
from algorithm.store.logs.metrics import read_metrics
from tests.lib.processes import Program
from tests.lib.sessions import TASK, run, trained, weights_hash

SHORT = "base_config.max_step_each_iter=20"
"""Pendulum's episodes, so that few pictures are drawn."""


@pytest.fixture
def folder(task) -> Path:
    """The folder of a run ``a``, which has been trained."""
    return trained("a", "--seed=1", "-o", SHORT)


def evaluation(folder: Path) -> dict:
    return json.loads((folder / "evaluation.json").read_text())


def logged(folder: Path, step: int) -> float:
    metrics = read_metrics(folder / "metrics.jsonl")
    return metrics["eval/return_mean"][metrics["step"].index(step)]


def frames_of(film: Path) -> int:
    return int(imageio_ffmpeg.count_frames_and_secs(str(film))[0])


KINDS = {
    "images": 'base_config: {env_name: "algorithm.env.toys:ToyTwoCameras-v0"}\n'
    "  nn_config: {rep: {dense_n: 8, random_shift: 2}, policy: {noisy: true}}\n"
    "  sac_config: {use_normalization: true}",
    "rnn": "nn_config: {rep: {rnn_n: 8}}\n"
    "  sac_config: {seq_encoder: RNN, burn_in_step: 3, learn_step: 4, use_normalization: true}",
    "attn": "nn_config: {rep: {attn_n: 8}}\n"
    "  sac_config: {seq_encoder: ATTN, burn_in_step: 3, learn_step: 4}",
}
"""Networks that act unlike themselves unless they are in evaluation mode, with all that they have learned."""


def test_a_fresh_process_reproduces_what_was_logged_to_the_last_bit(cwd):
    (cwd / "task").mkdir()
    short = "max_step: 60, max_step_each_iter: 20, reset_on_iteration: false"
    text = TASK.replace("max_step: 260, reset_on_iteration: false", short)
    text = text.replace("start_step: 100", "start_step: 40")
    text += "".join(f"{kind}:\n  {section}\n" for kind, section in KINDS.items())
    (cwd / "task" / "config.yaml").write_text(text)
    for kind in KINDS:
        assert run("-c", kind, "-n", kind, "--quiet", "-o", "eval_config.episodes=3") == 0
        playing = Program(cwd, "-n", kind, "--eval=3")
        assert playing.end() == 0, playing.said
        run_folder = cwd / "models" / "task" / kind
        found = evaluation(run_folder)
        assert found["behaviours"]["default"]["mean"] == logged(run_folder, 60) and found["step"] == 60
        assert len(set(found["behaviours"]["default"]["returns"])) == 3
    assert run("-n", "attn", "--eval=1", "--record=seen.npz", "--quiet") == 0
    with np.load("seen.npz", allow_pickle=False) as file:  # the cache too, which no replay stores
        assert (file["0/carry"].reshape(21, -1).any(1) == [False] + [True] * 20).all()


def test_a_flag_without_effect_is_told(folder, capsys):
    assert run("--eval=1", "--quiet", "-p", "5006", "--editor") == 0
    said = "".join(capsys.readouterr())
    assert re.findall(r"warning: (--\w+) .*has no effect on", said)[:2] == ["--port", "--editor"]


def test_the_table_says_what_was_played_and_whether_it_was_logged(folder, capsys, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    assert run("--eval=2") == 0
    said = capsys.readouterr().out
    returns = evaluation(folder)["behaviours"]["default"]["returns"]
    mean = float(np.mean(returns))
    assert mean == logged(folder, 260)
    rows = dict(re.findall(r"^  (\w[\w ]*?)  +(.+)$", said, re.M))
    assert rows["mean return"] == mean_interval(returns).text and rows["length"] == "20.0 steps"
    assert rows["min and max"] == f"{short(min(returns))} and {short(max(returns))}"
    assert rows["file"] == "models/task/a/evaluation.json"
    assert rows["watch"] == "python main.py ./task -n a --watch --ckpt=260"


@pytest.mark.fault("F09")
@pytest.mark.parametrize("flags", [("--eval=1",), ("--run", "-o", "base_config.max_iter=1")])
def test_a_result_that_cannot_be_written_is_shown(folder, capsys, monkeypatch, flags):
    def refuse(path, value):
        raise StorageError("a file cannot be written", where=path, why="Read-only file system")

    monkeypatch.setattr("algorithm.app.play.write_json", refuse)
    assert run(*flags) == 0
    said = capsys.readouterr().out
    assert "the result was not saved" in said and "Read-only file system" in said
    assert "mean return" in said


def test_another_seed_or_more_environments_play_other_episodes(folder):
    for flags, equal in (([], True), (["--agents=2"], False), (["--seed=2"], False)):
        assert run("--eval=2", "--quiet", *flags) == 0
        assert (evaluation(folder)["behaviours"]["default"]["mean"] == logged(folder, 260)) is equal


LESSONS = """\
lessons:
  base_config: {env_name: "algorithm.env.toys:ToyParking-v0"}
  environment_parameters:
    distance:
      curriculum:
        - {name: near, value: 1, completion_criteria: {threshold: 1}}
        - {name: far, value: 8}
"""


@pytest.mark.parametrize(
    ("flags", "distance"),
    [((), 8), (("--lesson=near",), 1), (("--lesson=distance=near",), 1), (("--lesson=far",), 8)],
)
def test_a_lesson_is_played_by_its_name(task, capsys, flags, distance):
    """The last one if there is no name."""
    with Path("task/config.yaml").open("a") as file:
        file.write(LESSONS)
    folder = trained("lessons", "-c", "lessons", "--seed=1")
    assert run("-n", "lessons", "--eval=2", "--record=seen.npz", *flags) == 0
    told = capsys.readouterr().out
    assert f"deterministic actions, distance {'near' if distance == 1 else 'far'};" in told
    with np.load("seen.npz", allow_pickle=False) as file:
        begun = [np.linalg.norm(file[f"{episode}/obs/obs"][0, :2]) for episode in range(2)]
    np.testing.assert_allclose(begun, distance / 10, rtol=1e-5)
    assert evaluation(folder)["lessons"] == {"distance": "near" if distance == 1 else "far"}
    assert run("-n", "lessons", "--run", "--lesson=middle") == 2


def test_behaviours_have_rows_of_their_own():
    reached = Performance((5.0, 2.0), (1, 1), {"is_success": 0.5})
    scores = {"a": Performance((1.0, 2.0), (3, 4)), "b": reached}
    rows = dict(table(scores))
    assert rows["b: success rate"] == "50%" and "a: success rate" not in rows
    assert rows["a: length"] == "3.5 steps" and rows["b: min and max"] == "2 and 5"
    assert scores_json(scores)["b"]["infos"] == {"is_success": 0.5}


def test_films_while_training_change_nothing(folder):
    """The same weights and the same numbers, and a film of each evaluation."""
    assert run("--seed=1", "-n", "b", "--quiet", "-o", SHORT, "-o", "eval_config.video=true") == 0
    filmed = folder.with_name("b")
    assert weights_hash(folder) == weights_hash(filmed)
    for step in (200, 260):
        assert logged(folder, step) == logged(filmed, step)
        assert frames_of(filmed / "videos" / f"step_{step:09d}_episode_1.mp4") == 20
    assert not (folder / "videos").exists()


def test_a_film_and_a_recording_change_no_number(folder):
    assert run("--eval=2", "--quiet") == 0
    alone = evaluation(folder)
    (folder / "evaluation.json").unlink()
    assert run("--video", "--seed=3", "--quiet") == 0
    film = folder / "videos" / "step_000000260_episode_1.mp4"
    assert frames_of(film) == 20 and not (folder / "evaluation.json").exists(), "a film alone is none"
    film.unlink()
    assert run("--eval=2", "--video", "--record=seen.npz", "--ckpt=260", "--quiet") == 0
    assert evaluation(folder) == alone and frames_of(film) == 20
    played = alone["behaviours"]["default"]
    with np.load("seen.npz", allow_pickle=False) as file:
        assert file["total"].tolist() == played["returns"] and file["length"].tolist() == [20, 20]
        assert np.isclose(file["1/reward"].sum(), played["returns"][1])
        assert file["1/truncated"].tolist() == [False] * 19 + [True]


@pytest.mark.parametrize(("flags", "code", "says"), [
    (["--video", "-o", "base_config.env_name=tests.lib.toys:Endless-v0"], 4, "leave out --video"),
    (["--eval=2", "--record=nowhere/a.npz"], 6, "the recording cannot be written"),
    (["--eval=2", "--ckpt=7"], 6, "there is no checkpoint of step 7"),
    (["--run", "-o", "nn_config.policy={dense_n: 9}"], 6, "does not fit this agent"),
    (["-n", "a"], 2, "-n a_2"),
])  # fmt: skip
def test_what_cannot_be_played_is_said(folder, capsys, flags, code, says):
    assert run(*flags) == code
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error
    assert not (folder / "videos").exists() and not (folder / "evaluation.json").exists()


def test_a_run_that_was_killed_is_played_from_its_newest_complete_checkpoint(folder, capsys):
    """No result, half a checkpoint that is newer, no replay: playing needs none of it."""
    (folder / "result.json").unlink()
    shutil.rmtree(folder / "replay", ignore_errors=True)
    (folder / "checkpoints/step_000000260/model.safetensors").write_bytes(b"half")
    assert run("--run", "--disable_sample", "--max_iter=2") == 0
    assert evaluation(folder)["step"] == 200 and "trying the one before" in capsys.readouterr().out
