"""Runs of games: their policies in Python, and what a game that hangs leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asac
from tests.extras.toys_games import Crowd

SMALL: dict[str, Any] = {
    "max_step": 30,
    "start_step": 10,
    "batch_size": 8,
    "name": "a",
    "quiet": True,
    "critic_observations": ["all"],
}


def make() -> Crowd:
    return Crowd(alike=True)


@pytest.mark.parametrize("game", [make(), make, Crowd])
def test_a_policy_needs_only_what_its_agent_observes(game: Crowd | Callable[[], Crowd], cwd: Path) -> None:
    keys = {"env_args": {"alike": True}} if game is Crowd else {}
    run = asac.train(game, **SMALL, **keys)
    policy = run.policy(behavior="red")
    action, _ = policy.act(np.zeros(4))
    actions, _ = policy.act(np.zeros((5, 4)))
    assert int(action) in range(3) and np.shape(actions) == (5,)
    assert len(run.evaluate(2, behavior="blue").returns) == 2


HANGING = """
default:
  base_config:
    {env_type: PETTINGZOO, env_name: "tests.extras.toys_games:Crowd", env_args: {hang_at: 40}, env_timeout: 1}
  sac_config: {start_step: 100}
"""


def test_a_game_that_hangs_ends_the_run_which_is_saved(tmp_path: Path, root: Path) -> None:
    (tmp_path / "config.yaml").write_text(HANGING)
    words = [sys.executable, str(root / "main.py"), ".", "-n", "a", "--quiet"]
    path = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(words, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4
    assert "hangs in step or reset" in done.stderr and "environment 0" in done.stderr
    assert "workers" not in done.stderr and "raise base_config.env_timeout" in done.stderr
    assert len([*tmp_path.glob("models/*/a/checkpoints/step_*/manifest.json")]) == 1
