"""Playing from the command line: a table, a film, a recording, and the very numbers that were logged."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from algorithm.app.scores import Logged, table
from algorithm.core.errors import StorageError
from algorithm.evaluation.evaluate import Performance
from algorithm.runs.logs.metrics import read_metrics
from algorithm.runs.rundir import RunDir
from tests.run.sessions import TASK, run, trained, weights_hash

ROOT = Path(__file__).resolve().parents[2]
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


def test_a_fresh_process_reproduces_what_was_logged_to_the_last_bit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task").mkdir()
    short = "max_step: 60, max_step_each_iter: 20, reset_on_iteration: false"
    text = TASK.replace("max_step: 260, reset_on_iteration: false", short)
    text = text.replace("start_step: 100", "start_step: 40")
    text += "".join(f"{kind}:\n  {section}\n" for kind, section in KINDS.items())
    (tmp_path / "task" / "config.yaml").write_text(text)
    for kind in KINDS:
        assert run("-c", kind, "-n", kind, "--quiet", "-o", "eval_config.episodes=3") == 0
    code = (
        "import sys\nfrom main import main\n"
        "for kind in sys.argv[1:]:\n"
        "    assert main(['./task', '--device=cpu', '-n', kind, '--eval=3']) == 0"
    )
    command = [sys.executable, "-c", code, *KINDS]
    said = subprocess.check_output(command, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert said.count("the same, to the last bit") == len(KINDS)
    for kind in KINDS:
        run_folder = tmp_path / "models" / "task" / kind
        found = evaluation(run_folder)
        assert found["behaviours"]["default"]["mean"] == logged(run_folder, 60) and found["step"] == 60
        assert len(set(found["behaviours"]["default"]["returns"])) == 3
        assert found["acting"] == "deterministic"
    assert run("-n", "attn", "--eval=1", "--record=seen.npz", "--quiet") == 0
    with np.load("seen.npz", allow_pickle=False) as file:  # the cache too, which no replay stores
        assert (file["0/carry"].reshape(21, -1).any(1) == [False] + [True] * 20).all()


@pytest.mark.parametrize(
    "flags",
    [
        *(["--eval=1"], ["--run", "--max_iter=1"], ["--report", "a"], ["--check"]),
        *(["--resume", "--max_step=262"], ["-n", "b", "--max_step=20"]),
    ],
    ids=" ".join,
)
def test_a_flag_without_effect_is_told_whatever_is_done(folder, capsys, monkeypatch, flags):
    monkeypatch.setattr("algorithm.app.check.check.check_task", lambda *_: 0)
    assert run(*flags, "--quiet", "-p", "5006", "--editor") == 0
    said = capsys.readouterr()
    told = [line for line in (said.out + said.err).splitlines() if "has no effect on" in line]
    found = dict.fromkeys(re.search(r"warning: (--\w+)", line)[1] for line in told)
    assert list(found) == ["--port", "--editor"]


def test_the_table_says_what_was_played_and_whether_it_was_logged(folder, capsys, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    before = set(folder.parent.rglob("*"))
    assert run("--eval=2") == 0
    assert set(folder.parent.rglob("*")) - before == {folder / "evaluation.json"}
    said = capsys.readouterr().out
    returns = evaluation(folder)["behaviours"]["default"]["returns"]
    mean = float(np.mean(returns))
    assert mean == logged(folder, 260)
    rows = dict(line.strip().split("  ", 1) for line in said.splitlines() if line.startswith("  "))
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["checkpoint"] == "step 260" and rows["episodes"] == "2" and rows["length"] == "20.0 steps"
    assert rows["mean return"].startswith(f"{mean:.1f} ± ") and "(Student's 95 %)" in rows["mean return"]
    assert rows["min and max"] == f"{min(returns):.1f} and {max(returns):.1f}"
    assert rows["logged"] == "the same, to the last bit"
    assert rows["file"] == "models/task/a/evaluation.json"
    assert rows["watch"] == "python main.py ./task -n a --watch --ckpt=260"
    assert said.count("episode ") == 2


@pytest.mark.fault("F09")
@pytest.mark.parametrize("flags", [("--eval=1",), ("--run", "-o", "base_config.max_iter=1")])
def test_a_result_that_cannot_be_written_is_shown(folder, capsys, monkeypatch, flags):
    def refuse(path, value):
        raise StorageError("a file cannot be written", where=path, why="Read-only file system")

    monkeypatch.setattr("algorithm.app.play.write_json", refuse)
    assert run(*flags) == 0
    said = capsys.readouterr().out
    assert "the result stands here alone" in said and "Read-only file system" in said
    assert "mean return" in said


def test_what_is_compared_with_what_was_logged(folder, capsys):
    for flags, says in (
        (["--eval=3"], None),
        (["--eval=2", "--agents=2"], "each of 2 environments has its own seeds"),
        (["--eval=2", "--seed=2"], "which differs by"),
        (["--eval=2", "--ckpt=200"], "the same, to the last bit"),
        (["--eval=2", "--ckpt=best", "--disable_sample"], "the same, to the last bit"),
        (["--eval=2", "--ckpt=latest", "-n", "a", "--quiet"], "the same, to the last bit"),
    ):
        assert run(*flags) == 0
        said = capsys.readouterr().out
        assert "mean return" in said
        assert says in said if says else "logged" not in said
    (folder / "metrics.jsonl").write_text('{"step": 200, "eval/return_mean": null}\n')
    for step in (200, 260):
        assert run("--eval=2", f"--ckpt={step}") == 0
    (folder / "metrics.jsonl").unlink()
    assert run("--eval=2") == 0
    said = capsys.readouterr().out
    assert said.count("mean return") == 3 and "logged" not in said


def test_behaviours_have_rows_of_their_own(tmp_path):
    row = {"step": 7, "a/eval/return_mean": 1.5, "b/eval/return_mean": 4.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    logged = Logged(run=RunDir("task", "a", tmp_path, "task"), step=7, episodes=2, num_envs=1)
    scores = {"a": Performance((1.0, 2.0), (3, 4)), "b": Performance((5.0, 2.0), (1, 1))}
    rows = dict(table(scores, logged))
    assert list(rows)[:2] == ["a: episodes", "a: mean return"] and rows["b: min and max"] == "2.0 and 5.0"
    assert rows["a: length"] == "3.5 steps" and rows["a: logged"] == "the same, to the last bit"
    assert rows["b: logged"].startswith("4, which differs by -0.5")


def test_films_while_training_change_nothing(folder, capsys):
    """The same weights and the same numbers, and a film of each evaluation."""
    assert run("--seed=1", "-n", "b", "--quiet", "-o", SHORT, "-o", "eval_config.video=true") == 0
    filmed = folder.with_name("b")
    assert weights_hash(folder) == weights_hash(filmed)
    for step in (200, 260):
        assert logged(folder, step) == logged(filmed, step)
        assert frames_of(filmed / "videos" / f"step_{step:09d}_episode_1.mp4") == 20
    assert not (folder / "videos").exists()
    blind = ("-o", "eval_config.video=true", "-o", "base_config.env_name=tests.toys:Endless-v0")
    assert run("-n", "c", *blind) == 4
    assert "eval_config.video" in capsys.readouterr().err and not filmed.with_name("c").exists()


def test_a_film_alone_is_one_episode_and_replaces_no_evaluation(folder, capsys):
    assert run("--video", "--seed=3") == 0
    film = folder / "videos" / "step_000000260_episode_1.mp4"
    assert frames_of(film) == 20
    assert not (folder / "evaluation.json").exists()
    said = capsys.readouterr().out
    assert "models/task/a/videos/step_000000260_episode_1.mp4" in said and said.count("episode   ") == 1


def test_a_film_and_a_recording_change_no_number(folder, capsys):
    assert run("--eval=2") == 0
    alone = evaluation(folder)
    assert run("--eval=2", "--video", "--record=seen.npz", "--ckpt=260") == 0
    assert evaluation(folder) == alone
    assert frames_of(folder / "videos" / "step_000000260_episode_1.mp4") == 20
    played = alone["behaviours"]["default"]
    with np.load("seen.npz", allow_pickle=False) as file:
        assert file["total"].tolist() == played["returns"] and file["length"].tolist() == [20, 20]
        assert file["0/obs/obs"].shape == (21, 3) and file["1/carry"].shape == (21, 0)
        assert np.isclose(file["1/reward"].sum(), played["returns"][1])
        assert np.abs(file["0/action"]).max() <= 1.0 and file["1/truncated"].tolist() == [False] * 19 + [True]
    assert "seen.npz, 2 episodes" in capsys.readouterr().out


def test_running_films_and_records_as_well(folder, capsys):
    """Playing has no end of its own, and a step size that falls to 0 needs one."""
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("schedule: constant", "schedule: linear"))
    assert run("--run", "--max_iter=3", "--video", "--record=seen.npz") == 0
    assert frames_of(folder / "videos" / "step_000000260_episode_1.mp4") == 20
    with np.load("seen.npz", allow_pickle=False) as file:
        assert file["total"].tolist() == evaluation(folder)["behaviours"]["default"]["returns"]
        assert len(file["total"]) == 3
    said = capsys.readouterr().out
    assert "film: models" in said and "recording: seen.npz, 3 episodes" in said
    assert evaluation(folder)["acting"] == "sampled"


@pytest.mark.parametrize(("flags", "code", "says"), [
    (["--run", "--eval=2"], 2, "--run and --eval exclude each other"),
    (["--video", "--render"], 2, "--render and --video exclude each other"),
    (["--video", "-o", "base_config.env_name=tests.toys:Endless-v0"], 4, "leave out --video"),
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
    half = folder / "checkpoints" / "step_000000261"
    shutil.copytree(folder / "checkpoints" / "step_000000260", half)
    (half / "model.safetensors").write_bytes(b"half")
    assert run("--run", "--disable_sample", "--max_iter=2") == 0
    assert evaluation(folder)["step"] == 260
    assert evaluation(folder)["behaviours"]["default"]["mean"] == logged(folder, 260)
    assert "trying the one before" in capsys.readouterr().out


SIGNALLED = """\
import os, signal, gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv
class Signalled(PendulumEnv):
    taken = 0
    def step(self, action):
        self.taken += 1
        if self.taken == 27:
            os.kill(os.getpid(), signal.{number})
        return super().step(action)
gym.register("Signalled-{number}-v0", entry_point=Signalled)
"""


@pytest.mark.fault("F22")
@pytest.mark.parametrize(("number", "what", "code"), [("SIGINT", "--run", 130), ("SIGTERM", "--eval=9", 143)])
def test_a_signal_ends_playing_with_what_was_finished(folder, monkeypatch, capsys, number, what, code):
    monkeypatch.syspath_prepend(str(folder))
    (folder / f"signalled_{number}.py").write_text(SIGNALLED.format(number=number))
    env = f"base_config.env_name=signalled_{number}:Signalled-{number}-v0"
    longer = "base_config.max_step_each_iter=25"
    assert run(what, "--record=seen.npz", "-o", env, "-o", longer) == code
    assert evaluation(folder)["behaviours"]["default"]["lengths"] == [25]
    with np.load("seen.npz", allow_pickle=False) as file:
        assert file["length"].tolist() == [25]
    said = capsys.readouterr().out
    assert what == "--run" or f"{number}, before all episodes" in said


@pytest.mark.fault("F22")
def test_ctrl_c_at_the_terminal_leaves_a_film_that_can_be_watched(folder):
    """The terminal sends it to all processes in its foreground, ffmpeg among them if it were there."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    endless = ("base_config.max_step_each_iter=-1", "base_config.env_args={max_episode_steps: 1000000}")
    flags = ("--run", "--video", *(word for text in endless for word in ("-o", text)))
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, start_new_session=True
    )
    assert process.stdout is not None
    while b"playing" not in process.stdout.readline():
        pass
    draft = folder / "videos" / ".step_000000260_episode_1.mp4.part"
    while not draft.exists():
        assert process.poll() is None, process.stdout.read().decode()
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert frames_of(folder / "videos" / "step_000000260_episode_1.mp4") > 0 and not draft.exists()
