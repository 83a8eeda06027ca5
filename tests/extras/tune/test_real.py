"""Studies of real runs: what they leave, and that kills change nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from main import main

MAIN = Path(__file__).resolve().parents[3] / "main.py"
SECTION = """\
base_config: {max_step: 200}
eval_config: {per_step: 100, episodes: 1}
nn_config: {q: {dense_n: 16}, policy: {dense_n: 16}}
sac_config: {threads: 1, start_step: 50, batch_size: 16, save_model_per_step: 50, write_summary_per_step: 50}
tune_config:
  params:
    sac_config.learning_rate: {truncated: [1.0e-5, 1.0e-1], log: true}
    sac_config.n_step: {in: [1, 3, 5]}
  startup: 2
  trials: 4
  final_seeds: 1
"""
BEGIN = ("-c", "t.yaml", "--seed", "1")
TIMES = ("time/", "sys/")


@pytest.fixture(autouse=True)
def _task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(SECTION)


def command(*words: str) -> list[str]:
    return [sys.executable, str(MAIN), "Pendulum-v1", *words]


def left(name: str) -> tuple[object, dict[str, object], object]:
    """Results of a study, without times: its trials, the metrics of its runs, the values on fresh seeds."""
    folder = Path("models/Pendulum-v1", name)
    trials = json.loads((folder / "trials.json").read_text())["trials"]
    rows = {
        file.parent.name: [
            {key: value for key, value in json.loads(line).items() if not key.startswith(TIMES)}
            for line in file.read_text().splitlines()
        ]
        for file in sorted(folder.glob("*/metrics.jsonl"))
    }
    final = json.loads((folder / "result.json").read_text())["final"]
    return trials, rows, final


def test_a_study_of_real_runs() -> None:
    flags = (*BEGIN, "--tune", "s", "-o", "tune_config.trials=2", "-o", "tune_config.final_seeds=0")
    done = subprocess.run(command(*flags), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = json.loads(Path("models/Pendulum-v1/s/trials.json").read_text())["trials"]
    assert [one["state"] for one in trials] == ["complete"] * 2
    run = Path("models/Pendulum-v1/s/trial_002")
    config = (run / "config.yaml").read_text()
    assert f"learning_rate: {trials[1]['values']['sac_config.learning_rate']}" in config
    assert (run / "report.html").exists() and (run / "checkpoints").is_dir()
    for words in (
        ("-n", "s/trial_002", "--export", "x.zip"),
        ("-n", "x.zip", "--eval", "1"),
        ("--report", "s"),
        ("-c", "t.yaml", "--init_from", "s/trial_001", "--max_step", "60"),
        ("-n", "s/trial_002", "--resume", "--max_step", "220"),
    ):
        assert main(["Pendulum-v1", *words]) == 0, words


@pytest.mark.slow
def test_kills_of_study_and_runs_change_nothing() -> None:
    subprocess.run(command(*BEGIN, "--tune", "whole"), check=True, capture_output=True)
    rng, words = random.Random(3), [*BEGIN, "--tune", "killed"]
    for _ in range(10):
        study = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(1.5, 10))
        if study.poll() is None:
            victims = [study] if rng.random() < 0.5 else psutil.Process(study.pid).children(recursive=True)
            for victim in victims:
                victim.kill()
            time.sleep(rng.uniform(0, 2))
            study.kill()
        study.wait()
        if Path("models/Pendulum-v1/killed/study.json").exists():
            words = ["--tune", "killed", "--resume"]
    subprocess.run(command(*words), check=True, capture_output=True)
    assert left("killed") == left("whole")


def test_a_second_study_of_the_same_folder_is_refused() -> None:
    study = subprocess.Popen(command(*BEGIN, "--tune", "s"), stdout=subprocess.PIPE, text=True)
    assert study.stdout is not None
    assert "4 trials" in study.stdout.readline()
    again = subprocess.run(command("--tune", "s", "--resume"), capture_output=True, text=True)
    assert again.returncode == 2 and f"process {study.pid}" in again.stderr
    study.terminate()
    rest = study.stdout.read()
    assert study.wait() == 143 and "--tune s --resume" in rest
