"""The comparison of two trees runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_tree_trains_what_its_own_commit_trains():
    command = [sys.executable, "scripts/golden.py", "HEAD", "--only", "continuous", "learner"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 of 2 cases are the same" in done.stdout, done.stdout + done.stderr
