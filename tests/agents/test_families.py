"""A family of another package is a name in the configuration: a bandit without critic and replay."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import asac
from algorithm.agents.registry import FAMILIES
from algorithm.config.validation import schema_of
from algorithm.store.logs.metrics import read_metrics
from main import main

ROOT = Path(__file__).resolve().parents[2]
TASK = """\
default:
  algorithm: "tests.agents.bandit.family:BANDIT"
  base_config: {env_type: GYM, env_name: "tests.agents.bandit.env:FourArms", max_step: 600, n_envs: 2}
  net_config: {heartbeat: 0.5}
  sac_config: {write_summary_per_step: 50, save_model_per_step: 100}
  eval_config: {per_step: 200, episodes: 5}
slow:
  base_config: {env_args: {pause: 0.01}}
"""


@pytest.fixture
def folder(cwd):
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(TASK)
    (cwd / "task" / "nn.py").write_text("1 / 0  # a bandit has no networks")
    return cwd


def begin(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / program), *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=pipe, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


def content(run: Path) -> tuple[str, list[dict]]:
    """Hash of all tensors at the end, and the rows of metrics that no clock decides."""
    files = sorted(max((run / "checkpoints").glob("step_*")).glob("*.safetensors"))
    found = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return found, [{k: v for k, v in row.items() if not k.startswith(("time/", "sys/"))} for row in rows]


def wait_for(process: subprocess.Popen[str], found) -> None:
    """Wait until something is found."""
    until = time.monotonic() + 90
    while not found():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.02)


def test_python_s_own_interface_describes_each_family():
    for interface in asac.train, asac.Agent:
        assert [name for name in FAMILIES if f'"{name}"' not in interface.__doc__] == []


def test_a_family_trains(folder):
    assert main(["./task", "--seed=1", "-n", "straight", "--max_step=400"]) == 0
    run = folder / "models" / "task" / "straight"
    assert read_metrics(run / "metrics.jsonl")["eval/return_mean"][-1] > 7, "the best arm pays 9"
    assert not (run / "nn.py").exists()


@pytest.mark.slow
def test_a_family_is_killed_resumes_bit_for_bit_evaluates_reports_and_is_checked(folder):
    finish(begin(folder, "main.py", "./task", "--seed=1", "-n", "straight"))
    killed = begin(folder, "main.py", "./task", "-c", "slow", "--seed=1", "-n", "killed")
    models = folder / "models" / "task"
    checkpoints = models / "killed" / "checkpoints"
    wait_for(killed, lambda: list(checkpoints.glob("step_000000[23]00")))
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    said = finish(begin(folder, "main.py", "./task", "-c", "slow", "-n", "killed", "--resume"))
    assert "resumed exactly" in said
    assert content(models / "killed") == content(models / "straight")
    assert "mean return" in finish(begin(folder, "main.py", "./task", "-n", "killed", "--eval=3"))
    finish(begin(folder, "main.py", "./task", "--report", "killed"))
    assert "BANDIT" in (models / "killed" / "report.html").read_text()
    assert "no errors" in finish(begin(folder, "main.py", "./task", "--check"))
    assert "steps/s" in finish(begin(folder, "main.py", "./task", "--dry_run"))


@pytest.mark.slow
def test_a_family_trains_as_learner_with_an_actor(folder):
    learner = begin(folder, "main_ds.py", "./task", "learner", "--seed=1", "-n", "a", "--learner_port=0")
    endpoint = folder / "models" / "task" / "a" / "endpoint.json"
    wait_for(learner, endpoint.exists)
    port = json.loads(endpoint.read_text())["port"]
    actor = begin(folder, "main_ds.py", "./task", "actor", f"--learner_port={port}")
    assert "the training is complete" in finish(actor)
    finish(learner)
    last = max((folder / "models" / "task" / "a" / "checkpoints").glob("step_*"))
    model = load_file(last / "model.safetensors")
    assert model["pulls"].sum() == 600 and np.argmax(model["reward"] / model["pulls"]) == 2


def test_the_configuration_knows_the_registry():
    assert set(schema_of(("algorithm",))["anyOf"][0]["enum"]) == set(FAMILIES)


WITH_CRITICS = """
from dataclasses import dataclass, replace

from algorithm.agents import off_policy_family
from algorithm.agents.sac.family import SAC
from algorithm.agents.sac.config import sac_keys
from algorithm.agents.sac.sac import SacObjective


@dataclass(frozen=True)
class Keys:
    share: float = 1.0


class Scaled(SacObjective):
    def __init__(self, action, config, share):
        super().__init__(action, config)
        self.share = share

    def entropy_bonus(self, logp, choice):
        return self.share * super().entropy_bonus(logp, choice)


def make(action, config):
    return Scaled(action, sac_keys(config), SCALED.keys_of(config).share)


SCALED = off_policy_family("SCALED", replace(SAC, make_objective=make), keys=Keys)
"""
SHORT = (
    "--preset",
    "plain",
    "--max_step",
    "120",
    "--quiet",
    "-o",
    "sac_config.start_step=50",
    "-o",
    "sac_config.batch_size=16",
)


def test_one_with_critics_brings_an_objective_and_keys_of_its_own(cwd, monkeypatch):
    """With its whole bonus it is SAC, with none another algorithm."""
    (cwd / "scaled.py").write_text(WITH_CRITICS)
    monkeypatch.syspath_prepend(str(cwd))
    trained = []
    for algorithm, *more in (("SAC",), ("scaled:SCALED",), ("scaled:SCALED", "-o", "algorithm_args.share=0")):
        name = f"run{len(trained)}"
        assert main(["Pendulum-v1", "--algorithm", algorithm, *more, *SHORT, "-n", name, "--seed=1"]) == 0
        (run,) = cwd.rglob(f"{name}/checkpoints")
        trained.append(content(run.parent)[0])
    sac, whole, none = trained
    assert sac == whole != none
