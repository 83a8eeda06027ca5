"""Runs as a user starts them: from the command line, in a folder of their own, on real environments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from algorithm.agents.sac.learner import Sac
from algorithm.app.console.base import LineConsole
from algorithm.config import load_config_file
from algorithm.core.timing import Stopwatch
from algorithm.evaluation import evaluator
from algorithm.experience.collector import LocalCollector
from algorithm.runs.logs.metrics import read_metrics
from algorithm.train import state as training
from tests.run.sessions import result, run, weights_hash

ROOT = Path(__file__).resolve().parents[2]

PROMISED = (
    "config.yaml",
    "overrides.txt",
    "manifest.json",
    "metrics.csv",
    "metrics.jsonl",
    "train.log",
    "result.json",
    "plots/return.png",
    "report.html",
    "checkpoints/latest.json",
    "checkpoints/best.json",
    "checkpoints/step_000000200/manifest.json",
    "checkpoints/step_000000260/model.safetensors",
)


@pytest.mark.pages
def test_a_run_leaves_what_it_promises(task, capsys):
    assert run("--seed=1", "-n", "a") == 0
    folder = task / "a"
    for name in PROMISED:
        assert (folder / name).is_file(), name
    assert list(folder.glob("log/events.*"))
    found = result(folder)
    assert (found["steps"], found["updates"], found["seed"]) == (260, 40, 1)  # ¼ · (260 − 100)
    assert found["replay_ratio"] == 0.25
    assert sum(found["time"].values()) == pytest.approx(found["seconds"], abs=0.01)
    assert found["time"].pop("wait") == found["time"].pop("compile") == 0.0, "nobody else acts"
    assert min(found["time"].values()) > 0.0 and set(found["faults"].values()) == {0}
    assert found["last_eval"]["step"] == 260 and found["last_eval"]["episodes"] == 2
    assert load_config_file(folder / "config.yaml").config.base_config.max_step == 260
    metrics = read_metrics(folder / "metrics.jsonl")
    assert metrics["step"] == [100.0, 200.0, 260.0]
    assert found["last_eval"]["ci95"] == metrics["eval/return_ci95"][-1] > 0.0, "the half width"
    shares = [metrics[f"time/share_{part}"] for part in ("act", "step", "store", "sample", "update")]
    assert all(0.0 < sum(row) < 1.0 for row in list(zip(*shares, strict=True))[:2])  # of the summaries
    assert metrics["fault/env_restarts"][:2] == [0.0, 0.0]
    said = capsys.readouterr().out
    shown = (
        "Pendulum-v1, 1 in process",
        "200 steps",
        "seed",
        "evaluation",
        "--video",
        "tensorboard --logdir",
    )
    assert "--ckpt=best" in said and "--resume --max_step=520" in said and "report.html" in said
    why = "it has come to 260 steps (base_config.max_step is 260)"
    assert found["ended"] == {"by": "max_step", "why": why}
    for part in shown:
        assert part in said


def test_the_same_seed_gives_the_same_weights_and_another_does_not(task):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(f"--seed={seed}", "-n", name, "--quiet")
    hashes = [weights_hash(task / name) for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]
    assert result(task / "a")["last_eval"] == result(task / "b")["last_eval"]


def test_inference_reproduces_the_logged_evaluation(task, capsys):
    run("--seed=1", "-n", "a", "--quiet")
    before = sorted(p for p in task.rglob("*"))
    assert run("-n", "a", "--run", "--disable_sample", "--max_iter=2") == 0
    played = json.loads((task / "a" / "evaluation.json").read_text())
    assert played["behaviours"]["default"]["mean"] == result(task / "a")["last_eval"]["mean"]
    assert played["step"] == 260
    assert set(task.rglob("*")) - set(before) == {task / "a" / "evaluation.json"}
    assert "mean return" in capsys.readouterr().out


def test_inference_takes_the_newest_run_and_the_checkpoint_asked_for(task):
    for name in "ab":
        run("--seed=1", "-n", name, "--quiet")
    assert run("--run", "--max_iter=1", "--ckpt=200", "--quiet") == 0
    assert json.loads((task / "b" / "evaluation.json").read_text())["step"] == 200
    assert run("--run", "--quiet", "-o", "base_config.max_step=30") == 0  # no episode ends in so few


@pytest.mark.parametrize(("flags", "code", "said"), [
    (["--run"], 6, "there is no run 'a' of task"),
    (["--ckpt=200"], 2, "--ckpt chooses what to go on from"),
    (["--device=cuda:7"], 2, "no such GPU"),
    (["-c", "broken", "-o", "base_config.env_args={fails: step}"], 4, "the wheel came off"),
    (["-c", "broken", "-o", "base_config.env_args={fails: reset}"], 4, "the door is locked"),
    (["-o", "base_config.env_name=NoSuch-v0"], 4, "could not be made"),
    (["-o", "nn_config.q={width: 3}"], 2, "nn_config.q has no key 'width'"),
    (["--nn", "other"], 2, "there is no file of networks `other`"),
    (["-o", "ma_config={robot: {}}"], 2, "ma_config names 'robot'"),
])  # fmt: skip
def test_mistakes_end_with_their_code_and_say_what_to_do(task, capsys, flags, code, said):
    assert run("-n", "a", *flags) == code
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_a_failed_start_leaves_the_name_free(task):
    assert run("-n", "a", "-o", "base_config.env_name=NoSuch-v0") == 4
    assert not (task / "a").exists()
    assert run("-n", "a", "--quiet") == 0


def test_a_taken_name_is_refused_with_the_commands_that_use_it(task, capsys):
    run("-n", "a", "--quiet")
    assert run("-n", "a", "--quiet") == 2
    error = capsys.readouterr().err
    assert "-n a --run" in error and "-n a --resume" in error and "-n a_2" in error


def test_checkpoints_of_other_networks_are_refused(task, capsys):
    run("-n", "a", "--quiet")
    assert run("-n", "a", "--run", "-o", "nn_config.policy={dense_n: 9}") == 6
    assert "does not fit this agent" in capsys.readouterr().err


@pytest.mark.fault("F10")
def test_divergence_ends_the_run_before_anything_is_saved(task, capsys):
    assert run("-n", "a", "-c", "broken") == 5
    assert "not finite" in capsys.readouterr().err
    assert not list((task / "a").glob("checkpoints/step_*"))


def test_the_traceback_is_in_the_log_and_with_debug_on_the_screen(task, capsys):
    run("-n", "a", "-c", "broken", "-o", "base_config.env_args={fails: step}", "--debug")
    assert "Traceback" in capsys.readouterr().err
    assert "the wheel came off" in (task / "a" / "train.log").read_text()


def test_repeat_trains_one_run_per_seed_and_summarises(task, capsys):
    assert run("--seed=5", "-n", "a", "--repeat=2") == 0
    assert [result(task / name)["seed"] for name in ("a", "a_2")] == [5, 6]
    summary = json.loads((task / "a" / "repeat.json").read_text())
    assert summary["seeds"] == [5, 6] and len(summary["last_eval"]["values"]) == 2
    assert (task / "a" / "plots" / "repeat.png").exists()
    assert "over 2 runs" in capsys.readouterr().out


def test_the_networks_used_are_kept_with_the_run(task):
    body = (
        "from algorithm.nn import ModelPolicy as Default\n"
        "class ModelPolicy(Default):\n    def __init__(self, spec, state_size):\n"
        "        super().__init__(spec, state_size, dense_n=8)\n"
    )
    (Path("task") / "mine.py").write_text(body)
    assert run("-n", "a", "--quiet", "--nn", "mine", "-o", "nn_config.policy=null") == 0
    (Path("task") / "mine.py").write_text("raise RuntimeError('changed since')")
    assert run("-n", "a", "--run", "--max_iter=1", "--quiet") == 0
    assert run("-n", "a", "--run", "--max_iter=1", "--quiet", "--use_env_nn") == 2


def test_null_is_no_file(task):
    (Path("task") / "nn.py").write_text("raise RuntimeError('it is not asked for')")
    assert run("-n", "a", "--quiet", "-o", "sac_config.nn=null", "--max_step=20") == 0
    assert not (task / "a" / "nn.py").exists()
    assert run("-n", "a", "--quiet", "--eval=1") == 0
    assert run("-n", "b", "--quiet") == 2, "the default name is that of a file"


@pytest.mark.fault("F40")
def test_networks_from_elsewhere_are_never_executed(task, tmp_path, capsys):
    (tmp_path / "evil.py").write_text("open('executed', 'w').close()")
    (tmp_path / "task/link.py").symlink_to(tmp_path / "evil.py")
    (tmp_path / "task/circle.py").symlink_to(tmp_path / "task/circle.py")
    for name in ("../evil", f"{tmp_path}/evil", "link", "circle", '"a\\0b"', "../task/../evil"):
        assert run("-n", "a", "--quiet", "-o", f"sac_config.nn={name}") == 2, name
        assert not task.exists(), "the name stays free"
    (tmp_path / "task/sub").mkdir()
    (tmp_path / "task/sub/mine.py").write_text("")
    assert run("-n", "a", "--quiet", "-o", "sac_config.nn=sub/mine", "--max_step=20") == 0
    assert run("-n", "a", "--quiet", "--eval=1") == 0, "found in the run's folder again"
    config = task / "a/config.yaml"
    config.write_text(config.read_text().replace("nn: sub/mine", "nn: ../../../evil"))
    for flags in (("--eval=1",), ("--resume", "--max_step=30"), ("--run", "--max_iter=1")):
        assert run("-n", "a", "--quiet", *flags) == 2
        assert "outside of" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_an_endless_task_is_cut_into_iterations(task):
    assert run("-c", "endless", "-n", "a", "--max_iter=4", "--quiet") == 0
    assert result(task / "a")["steps"] == 200
    assert result(task / "a")["last_eval"]["episodes"] == 2


def test_summary_save_and_final_evaluation_may_meet_in_the_last_step(task):
    """All three write to the row of step 200, whatever their order."""
    assert run("-n", "a", "--quiet", "-o", "base_config.max_step=200", "-o", "eval_config.per_step=-1") == 0
    metrics = read_metrics(task / "a" / "metrics.jsonl")
    assert metrics["step"] == [100.0, 200.0]
    assert metrics["eval/return_mean"][-1] == result(task / "a")["last_eval"]["mean"]


def test_evaluation_is_not_training_time(task, monkeypatch):
    """By a clock that only evaluations move."""
    now, evaluate = [0.0], evaluator.evaluate

    def slow(*args, **options):
        now[0] += 1000.0
        return evaluate(*args, **options)

    monkeypatch.setattr(evaluator, "evaluate", slow)
    monkeypatch.setattr(training, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    assert run("-n", "a", "--quiet") == 0
    assert now[0] == 2000.0 and result(task / "a")["seconds"] == 0.0


def test_compiling_is_no_update_and_is_not_expected_again(task, monkeypatch):
    """By a clock that the collector and the updates move; the first update is the one that compiles."""
    now, seen = [0.0], []
    step, update = LocalCollector.step, Sac.update

    def slow_step(collector):
        now[0] += 1.0
        return step(collector)

    def slow_update(sac, batch):
        sac._take.compiled = not sac.updates
        now[0] += 1.0 if sac.updates else 5000.0
        return update(sac, batch)

    monkeypatch.setattr(LocalCollector, "step", slow_step)
    monkeypatch.setattr(Sac, "update", slow_update)
    monkeypatch.setattr(LineConsole, "progress", lambda console, progress: seen.append(progress))
    monkeypatch.setattr(LineConsole, "due", lambda console: True)
    monkeypatch.setattr(training, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    assert run("-n", "a", "-o", "eval_config.per_step=-1") == 0
    found = result(task / "a")
    assert found["time"]["compile"] == 5000.0 and found["time"]["update"] == 39.0
    shares = read_metrics(task / "a" / "metrics.jsonl")
    assert shares["time/share_compile"][1] > 0.9 > 0.1 > shares["time/share_update"][1]
    assert max(one.eta_s for one in seen if one.eta_s is not None) < 600.0
    assert next(one for one in seen if one.updates).eta_s is None, "steps without updates say nothing"


def test_checkpoints_that_stay_and_how_to_choose_one(task):
    """Evaluations at 50, 100, …: the best of them stays beside the one newest."""
    assert run("-n", "a", "-o", "eval_config.per_step=50", "-o", "checkpoint_config.keep=1", "--quiet") == 0
    folder = task / "a" / "checkpoints"
    best, found = result(task / "a")["best_eval"], json.loads((folder / "best.json").read_text())
    assert (found["step"], found["mean"]) == (best["step"], best["mean"])
    assert {int(path.name[5:]) for path in folder.glob("step_*")} == {best["step"], 260}
    for which, evaluation in (("best", best), ("latest", result(task / "a")["last_eval"])):
        assert run("-n", "a", "--run", "--disable_sample", "--max_iter=2", "--quiet", f"--ckpt={which}") == 0
        played = json.loads((task / "a" / "evaluation.json").read_text())
        assert played["step"] == evaluation["step"]
        assert played["behaviours"]["default"]["mean"] == evaluation["mean"], "the policy that was evaluated"


def test_without_a_best_one_only_the_newest_stay(task, capsys):
    assert run("-n", "a", "-o", "checkpoint_config={keep: 1, best: false}", "--quiet") == 0
    folder = task / "a" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["latest.json", "step_000000260"]
    assert run("-n", "a", "--run", "--quiet", "--ckpt=best") == 6
    error = capsys.readouterr().err
    assert "best.json" in error and "--ckpt 260" in error


def test_several_environments_count_every_step(task):
    assert run("-c", "counting", "-n", "a", "--quiet", "-o", "base_config.reset_on_iteration=true") == 0
    found = result(task / "a")
    assert found["steps"] == 261  # three at a time
    assert found["updates"] == 40


def test_training_without_sampling_says_what_it_gives_up(task, capsys):
    assert run("-n", "a", "--disable_sample", "-o", "sac_config.n_step=2") == 0
    assert "no exploration" in capsys.readouterr().out
    assert not load_config_file(task / "a" / "config.yaml").config.sac_config.use_n_step_is


def start(*flags: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


@pytest.mark.fault("F22")
@pytest.mark.fault("F38")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_ends(task, number, code):
    process = start("-n", "a", "-o", "base_config.max_step=-1", "-o", "eval_config.per_step=-1")
    wait_for(lambda: list(task.glob("a/checkpoints/step_000000200/manifest.json")), process)
    process.send_signal(number)
    output = process.communicate(timeout=30)[0].decode()
    assert process.returncode == code, output
    steps = result(task / "a")["steps"]
    assert (task / "a" / "checkpoints" / f"step_{steps:09d}" / "manifest.json").exists()
    assert result(task / "a")["last_eval"] is None
    assert "saving and ending" in output


@pytest.mark.fault("F22")
def test_a_signal_during_start_up_ends_without_a_trace(task):
    process = start("-n", "a")
    process.stdout.readline()  # torch is being loaded now
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 130
    assert "interrupted" in output and "Traceback" not in output
    assert not (task / "a").exists()


@pytest.mark.fault("F22")
def test_an_import_that_swallows_the_interrupt_does_not_keep_the_process():
    code = (
        "import os, signal\n"
        "from algorithm.app.command import interruptible_imports\n"
        "with interruptible_imports():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException: pass\n"
        "    print('went on')"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (process.returncode, process.stdout) == (130, "")
    assert "interrupted" in process.stderr


@pytest.mark.fault("F22")
def test_a_second_signal_ends_at_once(task):
    """The first one comes in a step that hangs, so that only the second can end the run."""
    (Path("task") / "hanging.py").write_text(
        "import time, gymnasium as gym\nfrom tests.toys import Endless\n"
        "class Hanging(Endless):\n    def step(self, action):\n"
        "        open('hangs', 'w').close()\n        [time.sleep(1) for _ in range(60)]\n"
        "gym.register('Hanging-v0', entry_point=Hanging)\n"
    )
    process = start("-n", "a", "-o", "base_config.env_name=task.hanging:Hanging-v0")
    wait_for(lambda: Path("hangs").exists(), process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == 130


def wait_for(condition, process: subprocess.Popen) -> None:
    for _ in range(600):
        if condition():
            return
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.1)
    process.kill()
    raise AssertionError("it did not happen within a minute")


def test_something_is_said_within_three_seconds(task):
    began = time.monotonic()
    process = start("-n", "a")
    assert process.stdout.readline().decode().startswith("task, config.yaml")
    waited = time.monotonic() - began
    process.kill()
    process.communicate()
    assert waited < 20, "an order of magnitude above what it takes: a test must not measure the machine"
