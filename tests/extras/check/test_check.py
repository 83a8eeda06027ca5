"""``--check`` from the command line; its texts: ``tests.messages``."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from algorithm.extras.check.context import CheckLimits
from main import main

LIMITS = CheckLimits(steps=60, compared=30, seconds=60.0, total=300.0)  # counts end it, no clock


@pytest.fixture
def check(cwd, monkeypatch):
    """A check of a task with one of the toys; returns the exit code."""
    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", lambda: LIMITS)
    (cwd / "task").mkdir()

    def run(toy: str, *words: str) -> int:
        base = f"{{env_type: GYM, env_name: 'tests.extras.check.toys:{toy}-v0'}}"
        (cwd / "task" / "config.yaml").write_text(f"default:\n  base_config: {base}\n")
        return main(["./task", "--check", *words])

    return run


def test_a_sound_task_returns_0_and_writes_nothing(check, capfd, tmp_path):
    assert check("Sound") == 0
    shown = capfd.readouterr().out
    assert "two instances do not affect each other, over 31 steps and resets" in shown
    assert "no errors, no warnings" in shown and "python main.py ./task --dry_run" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["task"]


def test_an_error_returns_the_code_of_a_training_and_quiet_leaves_out_what_is_fine(check, capfd):
    assert check("Unbounded", "--quiet") == 4
    told = capfd.readouterr().out.splitlines()
    assert told[:2] == ["environment", "  error    made           the action has no finite bounds"]
    assert check("Sound", "--quiet", "-o", "base_config.wrappers=[nowhere:Wrapper]") == 2


@pytest.mark.slow
def test_what_is_configured_is_checked(check, capfd):
    check("Rich", "-o", "sac_config.reward_scaling=false")
    assert "set base_config.reward_scale" in capfd.readouterr().out
    check("Rich", "-o", "sac_config.reward_scaling=true")
    assert "divided by the returns' spread" in capfd.readouterr().out
    check("Rich")  # as a training would: by the section continuous
    assert "in a unit by the returns of random actions" in capfd.readouterr().out


@pytest.mark.fault("F12")
@pytest.mark.fault("F13")
@pytest.mark.parametrize(("toy", "printed"), [("Hanging", "Timeout ("), ("Crashing", "Segmentation fault")])
def test_a_hang_and_a_crash_end_the_check_with_the_stack(root, toy, printed):
    env_name = f"tests.extras.check.toys:{toy}-v0"
    words = [sys.executable, "main.py", env_name, "--check", "-o", "base_config.env_timeout=1"]
    ended = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode not in (0, 2) and printed in ended.stderr
    assert re.search("check/toys.py.* in step", ended.stderr)
    assert "made" in ended.stdout, "what was found before"
