"""The core without the extras: a copy of the tree in which ``algorithm/extras`` is deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[..., "subprocess.CompletedProcess[str]"]
TASK = "toy/identity"

EXTRAS = {
    f"{TASK} --tune": ("tune", "tune"),
    "--from_mlagents trainer.yaml": ("mlagents", ""),
    f"{TASK} --export run.zip": ("sharing", ""),
    f"{TASK} -n run.zip --eval=1": ("sharing", ""),
    f"{TASK} --export policy.onnx": ("onnx", "export"),
    f"{TASK} --report run*": ("standings", ""),
    f"{TASK} --max_step=60 -o demonstrations.path=minari:own/run-v0": ("minari", "offline"),
    f"{TASK} --max_step=60 -o wandb_config.project=own": ("wandb", "wandb"),
    f"{TASK} --max_step=60 -o algorithm=A3C": ("a3c", ""),
    "envpool.CartPole-v1 --max_step=60": ("simulators", "envpool"),
    "unity/3dball --max_step=60": ("unity", "unity"),
    "dm_control/cartpole --max_step=60": ("dmc", ""),  # its packages depend on the version of Python
    f"{TASK} --check": ("check", ""),
    "unity/3dball --check": ("check", ""),
}
"""Command -> the extra that it asks for, and the pip extra with what that needs."""

ONE_BY_ONE = """
import contextlib, io, json, sys
from main import main

for command in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
        code = main(command.split())
    print(json.dumps([code, told.getvalue()]))
"""


def _program(tree: Path, folder: Path) -> Program:
    """Return what runs Python in a folder, with the source of a tree."""

    def python(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(tree)},
            input=text,
            capture_output=True,
            text=True,
        )

    return python


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy, in which there are no extras, and a run that was trained there."""
    tree = tmp_path_factory.mktemp("core")
    for name in ("algorithm", "asac", "envs"):
        shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "main.py", tree)
    shutil.rmtree(tree / "algorithm" / "extras")
    words = ("main.py", TASK, "-n", "run", "--max_step=300", "--device=cpu", "-o", "eval_config.per_step=100")
    trained = _program(tree, tree)(*words)
    assert trained.returncode == 0, trained.stderr
    return tree


def test_it_resumes_evaluates_and_reports(alone: Path) -> None:
    python, run = _program(alone, alone), alone / "models" / TASK / "run"
    assert (run / "report.html").is_file() and json.loads((run / "result.json").read_text())["steps"] == 300
    resumed = python("main.py", TASK, "-n", "run", "--resume", "--max_step=400")
    assert "resumed exactly" in resumed.stdout and resumed.returncode == 0, resumed.stderr
    evaluated = python("main.py", TASK, "-n", "run", "--eval=3", "--record", "played.npz")
    assert (run / "evaluation.json").is_file() and (alone / "played.npz").is_file(), evaluated.stderr
    (run / "report.html").unlink()
    assert python("main.py", TASK, "--report", "run").stdout == f"models/{TASK}/run/report.html\n"
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("word", ["--help", "--list"])
def test_it_shows_all_that_there_is(alone: Path, root: Path, tmp_path: Path, word: str) -> None:
    ours, whole = (_program(tree, tmp_path)("-m", "asac", word) for tree in (alone, root))
    assert ours.stdout == whole.stdout and len(ours.stdout) > 1000, ours.stderr
