"""The core without the extras: a copy of the tree in which ``algorithm/extras`` is deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TASK = "toy/identity"


def test_it_trains_resumes_evaluates_and_reports(root: Path, tmp_path: Path) -> None:
    for name in ("algorithm", "asac", "envs"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "algorithm" / "extras")

    def asac(*words: str) -> str:
        command = [sys.executable, "-m", "asac", *words]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run = tmp_path / "models" / TASK / "run"
    asac(TASK, "-n", "run", "--max_step=300", "--device=cpu", "-o", "eval_config.per_step=100")
    assert (run / "report.html").is_file() and json.loads((run / "result.json").read_text())["steps"] == 300
    assert "resumed exactly" in asac(TASK, "-n", "run", "--resume", "--max_step=400")
    asac(TASK, "-n", "run", "--eval=3", "--record", "played.npz")
    assert (run / "evaluation.json").is_file() and (tmp_path / "played.npz").is_file()
    assert asac(TASK, "--report", "run") == f"models/{TASK}/run/report.html\n"
    assert "--from_mlagents" in asac("--help") and TASK in asac("--list")
