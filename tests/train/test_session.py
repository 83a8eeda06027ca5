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

from algorithm.agents.off_policy.learner import OffPolicyLearner
from algorithm.app.console.base import LineConsole
from algorithm.config import load_config_file
from algorithm.core.timing import Stopwatch
from algorithm.evaluation import evaluator
from algorithm.experience.collector import LocalCollector
from algorithm.runs.logs.metrics import read_metrics
from algorithm.train import state as training
from tests.run.sessions import result, run, trained, weights_hash

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
SHOWN = (
    *("Pendulum-v1, 1 in process", "200 steps", "seed", "evaluation", "--video", "tensorboard --logdir"),
    *("--ckpt=best", "--resume --max_step=520", "report.html"),
)


@pytest.mark.pages
def test_a_run_leaves_what_it_promises(task, capsys):
    """Summary, save and evaluation meet in step 200, and save and evaluation in the last."""
    assert run("--seed=1", "-n", "a") == 0
    folder = task / "a"
    assert [name for name in PROMISED if not (folder / name).is_file()] == []
    assert list(folder.glob("log/events.*"))
    found = result(folder)
    assert (found["steps"], found["updates"], found["seed"]) == (260, 40, 1)  # ¼ · (260 − 100)
    assert found["replay_ratio"] == 0.25
    assert sum(found["time"].values()) == pytest.approx(found["seconds"], abs=0.01)
    assert found["time"].pop("wait") == found["time"].pop("compile") == 0.0, "nobody else acts"
    assert min(found["time"].values()) > 0.0 and set(found["faults"].values()) == {0}
    assert found["last_eval"]["step"] == 260 and found["last_eval"]["episodes"] == 2
    why = "it has come to 260 steps (base_config.max_step is 260)"
    assert found["ended"] == {"by": "max_step", "why": why}
    assert load_config_file(folder / "config.yaml").config.base_config.max_step == 260
    metrics = read_metrics(folder / "metrics.jsonl")
    assert metrics["step"] == [100.0, 200.0, 260.0]
    assert metrics["eval/return_mean"][-1] == found["last_eval"]["mean"]
    assert found["last_eval"]["ci95"] == metrics["eval/return_ci95"][-1] > 0.0, "the half width"
    shares = [metrics[f"time/share_{part}"] for part in ("act", "step", "store", "sample", "update")]
    assert all(0.0 < sum(row) < 1.0 for row in list(zip(*shares, strict=True))[:2])  # of the summaries
    assert metrics["fault/env_restarts"][:2] == [0.0, 0.0]
    said = capsys.readouterr().out
    assert [part for part in SHOWN if part not in said] == []


SEEDS = (("a", 3), ("b", 3), ("c", 4))


def test_the_same_seed_gives_the_same_weights_and_another_does_not(task):
    hashes = [weights_hash(trained(name, f"--seed={seed}", "--max_step=120")) for name, seed in SEEDS]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(("flags", "code", "said", "begins"), [
    (["--run"], 6, "there is no run 'a' of task", False),
    (["--ckpt=200"], 2, "--ckpt chooses what to go on from", False),
    (["--device=cuda:7"], 2, "no such GPU", False),
    (["-c", "broken", "-o", "base_config.env_args={fails: step}"], 4, "the wheel came off", True),
    (["-c", "broken", "-o", "base_config.env_args={fails: reset}"], 4, "the door is locked", False),
    (["-o", "base_config.env_name=NoSuch-v0"], 4, "could not be made", False),
    (["-o", "nn_config.q={width: 3}"], 2, "nn_config.q has no key 'width'", False),
    (["--nn", "other"], 2, "there is no file of networks `other`", False),
    (["-o", "ma_config={robot: {}}"], 2, "ma_config names 'robot'", False),
])  # fmt: skip
def test_mistakes_end_with_their_code_and_say_what_to_do(task, capsys, flags, code, said, begins):
    """A start that fails leaves the name free."""
    assert run("-n", "a", *flags) == code
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert (task / "a").exists() == begins


@pytest.mark.fault("F10")
def test_divergence_ends_the_run_before_anything_is_saved(task, capsys):
    """The traceback is in the log, and with --debug on the screen."""
    assert run("-n", "a", "-c", "broken", "--debug") == 5
    for text in (capsys.readouterr().err, (task / "a" / "train.log").read_text()):
        assert "not finite" in text and "Traceback" in text
    assert not list((task / "a").glob("checkpoints/step_*"))


def test_the_networks_used_are_kept_with_the_run(task):
    body = (
        "from algorithm.nn import ModelPolicy as Default\n"
        "class ModelPolicy(Default):\n    def __init__(self, spec, state_size):\n"
        "        super().__init__(spec, state_size, dense_n=8)\n"
    )
    (Path("task") / "mine.py").write_text(body)
    short = ("--quiet", "--max_step=20")
    assert run("-n", "a", *short, "--nn", "mine", "-o", "nn_config.policy=null") == 0
    (Path("task") / "mine.py").write_text("raise RuntimeError('changed since')")
    assert run("-n", "a", "--run", "--max_iter=1", "--quiet") == 0
    assert run("-n", "a", "--run", "--max_iter=1", "--quiet", "--use_env_nn") == 2
    (Path("task") / "nn.py").write_text("raise RuntimeError('it is not asked for')")
    assert run("-n", "b", *short, "-o", "sac_config.nn=null") == 0
    assert not (task / "b" / "nn.py").exists()
    assert run("-n", "b", "--quiet", "--eval=1") == 0
    assert run("-n", "c", "--quiet") == 2, "the default name is that of a file"


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
    assert run("-c", "endless", "-n", "a", "--max_iter=2", "--quiet") == 0
    assert result(task / "a")["steps"] == 100
    assert result(task / "a")["last_eval"]["episodes"] == 2


def test_several_environments_count_every_step(task):
    assert run("-c", "counting", "-n", "a", "--quiet", "-o", "base_config.reset_on_iteration=true") == 0
    found = result(task / "a")
    assert (found["steps"], found["updates"]) == (261, 40), "three at a time"


def test_evaluation_is_not_training_time(task, monkeypatch):
    """By a clock that only evaluations move."""
    now, evaluate = [0.0], evaluator.evaluate

    def slow(*args, **options):
        now[0] += 1000.0
        return evaluate(*args, **options)

    monkeypatch.setattr(evaluator, "evaluate", slow)
    monkeypatch.setattr(training, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    assert run("-n", "a", "--quiet", "-o", "eval_config={per_step: 20, episodes: 1}", "--max_step=30") == 0
    assert now[0] == 2000.0 and result(task / "a")["seconds"] == 0.0


def test_compiling_is_no_update_and_is_not_expected_again(task, monkeypatch):
    """By a clock that the collector and the updates move; the first update is the one that compiles."""
    now, seen = [0.0], []
    step, update = LocalCollector.step, OffPolicyLearner.update

    def slow_step(collector):
        now[0] += 1.0
        return step(collector)

    def slow_update(sac, batch):
        now[0] += 1.0 if sac.updates else 5000.0
        return update(sac, batch)

    monkeypatch.setattr(LocalCollector, "step", slow_step)
    monkeypatch.setattr(OffPolicyLearner, "update", slow_update)
    monkeypatch.setattr(OffPolicyLearner, "compiled", property(lambda sac: sac.updates == 1))
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


def test_checkpoints_that_stay_and_how_to_choose_one(task, capsys):
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
    assert run("-n", "b", "-o", "checkpoint_config={keep: 1, best: false}", "--quiet", "--max_step=210") == 0
    folder = task / "b" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["latest.json", "step_000000210"]
    capsys.readouterr()
    assert run("--run", "--quiet", "--ckpt=best") == 6, "the newest run"
    error = capsys.readouterr().err
    assert "best.json" in error and "--ckpt 210" in error


def test_training_without_sampling_says_what_it_gives_up(task, capsys):
    assert run("-n", "a", "--disable_sample", "-o", "sac_config.n_step=2", "--max_step=20") == 0
    assert "no exploration" in capsys.readouterr().out
    assert not load_config_file(task / "a" / "config.yaml").config.sac_config.use_n_step_is


def test_a_repetition_trains_one_run_per_seed_as_they_were_loaded_and_summarises(task, monkeypatch, capsys):
    """Somebody edits the configuration while the first run trains."""
    from algorithm.app import training as app

    train = app.train

    def train_and_edit(*args, **options):
        found = train(*args, **options)
        config = Path("task/config.yaml")
        config.write_text(config.read_text().replace("max_step: 260", "max_step: 130"))
        return found

    monkeypatch.setattr(app, "train", train_and_edit)
    assert run("--seed=5", "-n", "a", "--repeat=2") == 0
    results = [result(task / name) for name in ("a", "a_2")]
    assert [(one["seed"], one["steps"]) for one in results] == [(5, 260), (6, 260)]
    summary = json.loads((task / "a" / "repeat.json").read_text())
    assert summary["seeds"] == [5, 6] and len(summary["last_eval"]["values"]) == 2
    assert (task / "a" / "plots" / "repeat.png").exists()
    assert "over 2 runs" in capsys.readouterr().out
    (task / "a").rename(task / "elsewhere")
    assert run("-n", "a", "--quiet", "--repeat=2") == 2, "names are checked before the first run"
    assert "a_2" in capsys.readouterr().err and not (task / "a").exists()


def start(*flags: str) -> subprocess.Popen:
    endless = ("--max_step=-1", "-o", "eval_config.per_step=-1")
    command = [sys.executable, str(ROOT / "main.py"), "./task", "--device=cpu", "-n", "a", *endless, *flags]
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
    process = start()
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
    process = start()
    assert process.stdout.readline().decode().startswith("task, config.yaml"), "said before torch is loaded"
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
    process = start("-o", "base_config.env_name=task.hanging:Hanging-v0")
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
