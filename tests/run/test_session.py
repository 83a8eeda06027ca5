"""Runs as a user starts them: from the command line, in a folder of their own, on real environments."""

import json
import os
from pathlib import Path

import pytest

from algorithm.agents.off_policy.agent import OffPolicyAgent
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.core.timing import Stopwatch
from algorithm.run import state as training
from algorithm.run.evaluation import evaluate as evaluating
from algorithm.store.logs.metrics import read_metrics
from algorithm.store.rundir import RunDir
from tests.lib.callbacks import watch
from tests.lib.sessions import result, run

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
def test_a_run_leaves_what_it_promises(task, monkeypatch, capsys):
    """Summary, save and evaluation meet in step 200, and save and evaluation in the last.

    The result comes last: of a run that is killed behind it nothing is missing but the page.
    """
    then, folder = {}, task / "a"

    def keep(*_):
        for name in ("metrics.csv", "metrics.jsonl", "plots/return.png"):
            then[name] = (folder / name).read_bytes()

    watch(monkeypatch, RunDir, "write_result", keep)
    assert run("--seed=1", "-n", "a") == 0
    assert len(then) == 3 and then == {name: (folder / name).read_bytes() for name in then}
    assert [name for name in PROMISED if not (folder / name).is_file()] == []
    assert list(folder.glob("log/events.*"))
    found = result(folder)
    assert (found["steps"], found["updates"], found["seed"]) == (260, 40, 1)  # ¼ · (260 − 100)
    assert found["replay_ratio"] == 0.25
    assert sum(found["time"].values()) == pytest.approx(found["seconds"], abs=0.01)
    assert found["time"].pop("wait") == found["time"].pop("compile") == 0.0, "nobody else acts"
    assert min(found["time"].values()) > 0.0 and set(found["faults"].values()) == {0}
    assert found["last_eval"]["step"] == 260 and found["last_eval"]["episodes"] == 2
    assert found["ended"] == {"by": "max_step", "why": "it reached 260 steps (base_config.max_step is 260)"}
    metrics = read_metrics(folder / "metrics.jsonl")
    assert metrics["step"] == [100.0, 200.0, 260.0]
    assert metrics["eval/return_mean"][-1] == found["last_eval"]["mean"]
    assert found["last_eval"]["ci95"] == metrics["eval/return_ci95"][-1] > 0.0, "the half width"
    assert 0.0 < metrics["time/cpu_seconds"][-1] < sum(os.times()[:4])
    said = capsys.readouterr().out
    assert [part for part in SHOWN if part not in said] == []


TIGHT = ("-o", "replay_config.capacity=40", "-o", "sac_config.batch_size=38")
"""Episodes of 3 to 7 steps: 40 rows hold at most 35 transitions."""


@pytest.mark.parametrize(("flags", "code", "said", "begins"), [
    (["--run"], 6, "there is no run 'a' of task", False),
    (["--device=cuda:7"], 2, "no such GPU", False),
    (["-c", "broken", "-o", "base_config.env_args={fails: step}"], 4, "the wheel came off", True),
    (["-c", "broken", "-o", "base_config.env_args={fails: reset}"], 4, "the door is locked", False),
    (["-o", "base_config.env_name=NoSuch-v0"], 4, "could not be made", False),
    (["-o", "nn_config.q={width: 3}"], 2, "nn_config.q has no key 'width'", False),
    (["--nn", "other"], 2, "there is no file of networks `other`", False),
    (["-o", "ma_config={robot: {}}"], 2, "ma_config names 'robot'", False),
    (["-o", "base_config.env_name=gone.py:Gone-v0"], 4, "SystemExit(0) would end the program", False),
    (["-c", "counting", *TIGHT], 2, "fewer than a batch of 38", True),
])  # fmt: skip
def test_mistakes_end_with_their_code_and_say_what_to_do(task, capsys, flags, code, said, begins):
    """A start that fails leaves the name free."""
    (Path("task") / "gone.py").write_text("raise SystemExit(0)\n")
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
    own, short = Path("task") / "mine.py", ("-n", "a", "--quiet", "--max_step=20")
    own.write_text("from algorithm.nn import ModelPolicy\n")
    assert run(*short, "--nn", "mine") == 0
    own.write_text("raise RuntimeError('changed since')")
    assert run(*short[:3], "--eval=1") == 0
    assert run(*short[:3], "--eval=1", "--use_env_nn") == 2


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


@pytest.mark.parametrize(
    ("flags", "steps", "updates"),
    [
        pytest.param(("-c", "endless", "--max_iter=2"), 100, 0, id="iterations of an endless task"),
        pytest.param(
            ("-c", "counting", "-o", "base_config.reset_on_iteration=true"), 261, 40, id="three at once"
        ),
    ],
)
def test_every_step_of_every_environment_counts(task, flags, steps, updates):
    assert run(*flags, "-n", "a", "--quiet") == 0
    assert (result(task / "a")["steps"], result(task / "a")["updates"]) == (steps, updates)
    assert result(task / "a")["last_eval"]["episodes"] == 2


def test_evaluation_is_not_training_time(task, monkeypatch):
    """By a clock that only evaluations move."""
    now, evaluate = [0.0], evaluating.evaluate

    def slow(*args, **options):
        now[0] += 1000.0
        return evaluate(*args, **options)

    monkeypatch.setattr(evaluating, "evaluate", slow)
    monkeypatch.setattr(training, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    monkeypatch.setattr(training, "cpu_seconds", lambda: now[0])
    assert run("-n", "a", "--quiet", "-o", "eval_config={per_step: 20, episodes: 1}", "--max_step=30") == 0
    assert now[0] == 2000.0 and result(task / "a")["seconds"] == 0.0
    assert read_metrics(task / "a/metrics.jsonl")["time/cpu_seconds"] == [0.0, 0.0]


def test_compiling_is_no_update(task, monkeypatch):
    """By a clock that the updates move; the first one is the one that compiles."""
    now, update = [0.0], OffPolicyLearner.update

    def slow_update(sac, batch):
        now[0] += 1.0 if sac.updates else 5000.0
        return update(sac, batch)

    monkeypatch.setattr(OffPolicyLearner, "update", slow_update)
    monkeypatch.setattr(OffPolicyAgent, "_graphs", property(lambda agent: int(agent.updates > 0)))
    monkeypatch.setattr(training, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    assert run("-n", "a", "-o", "eval_config.per_step=-1") == 0
    found = result(task / "a")
    assert found["time"]["compile"] == 5000.0 and found["time"]["update"] == 39.0
    shares = read_metrics(task / "a" / "metrics.jsonl")
    assert shares["time/share_compile"][1] > 0.9 > 0.1 > shares["time/share_update"][1]


def test_checkpoints_that_stay_and_how_to_choose_one(task):
    """Evaluations at 50, 100, …: the best of them stays beside the one newest."""
    often = ("-o", "eval_config={per_step: 50, episodes: 1}")
    assert run("-n", "a", *often, "-o", "checkpoint_config.keep=1", "--quiet") == 0
    found, folder = result(task / "a"), task / "a" / "checkpoints"
    best = found["best_eval"]
    assert json.loads((folder / "best.json").read_text())["step"] == best["step"]
    assert {int(path.name[5:]) for path in folder.glob("step_*")} == {best["step"], 260}
    assert run("-n", "a", "--eval=1", "--quiet", "--ckpt=best") == 0
    assert json.loads((task / "a" / "evaluation.json").read_text())["step"] == best["step"]


def test_a_repetition_trains_one_run_per_seed_as_they_were_loaded_and_summarises(task, monkeypatch, capsys):
    """Somebody edits the configuration while the first run trains."""
    from algorithm.app import train as app

    config = Path("task/config.yaml")
    shorter_text = config.read_text().replace("max_step: 260", "max_step: 130")
    watch(monkeypatch, app, "run_training", lambda *_, **__: config.write_text(shorter_text))
    assert run("--seed=5", "-n", "a", "--repeat=2") == 0
    results = [result(task / name) for name in ("a", "a_2")]
    assert [(one["seed"], one["steps"]) for one in results] == [(5, 260), (6, 260)]
    assert "main.py ./task --report a a_2" in capsys.readouterr().out
    (task / "a").rename(task / "elsewhere")
    assert run("-n", "a", "--quiet", "--repeat=2") == 2, "names are checked before the first run"
    assert "a_2" in capsys.readouterr().err and not (task / "a").exists()
