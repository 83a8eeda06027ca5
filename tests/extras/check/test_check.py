"""``--check`` from the command line, and the process in which it looks; its texts: ``tests.messages``."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from algorithm.env.gym import GymRecipe
from algorithm.extras.check.context import CheckConfig, CheckLimits
from algorithm.extras.check.finding import CheckResult
from algorithm.extras.check.process import CheckRequest, check_in_process
from main import main

LIMITS = CheckLimits(steps=60, compared=30, episodes=5, seconds=60.0, total=300.0)  # counts end it, no clock


def request(toy: str, *, timeout: float = 60.0, seconds: float = 60.0) -> CheckRequest:
    recipe = GymRecipe(env_id=f"tests.extras.check.toys:{toy}-v0", env_args={})
    config, limits = CheckConfig(seed=3, timeout=timeout), replace(LIMITS, seconds=seconds)
    return CheckRequest(recipe=recipe, config=config, limits=limits)


@pytest.fixture
def check(tmp_path, monkeypatch):
    """A check of a task with one of the toys; returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", lambda: LIMITS)
    (tmp_path / "task").mkdir()

    def run(toy: str, *words: str) -> int:
        base = f"{{env_type: GYM, env_name: 'tests.extras.check.toys:{toy}-v0'}}"
        (tmp_path / "task" / "config.yaml").write_text(f"default:\n  base_config: {base}\n")
        return main(["./task", "--check", *words])

    return run


def test_a_sound_task_returns_0_and_writes_nothing(check, capfd, tmp_path):
    assert check("Sound") == 0
    shown = capfd.readouterr().out
    assert "the same in another process, over 31 steps and resets" in shown
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
@pytest.mark.parametrize(
    ("toy", "what", "why"),
    [
        ("Hanging", "the environment hangs", "no answer for 0.5 s"),
        ("Crashing", "the environment ended the process", "SIGSEGV"),
    ],
)
def test_a_hang_and_a_crash_are_findings_with_the_stack(toy, what, why):
    timed = {"timeout": 0.5, "seconds": 0.5} if toy == "Hanging" else {}
    *before, last = check_in_process(request(toy, **timed))
    assert last.title == "keeps going" and replace(last, findings=()) in before
    (found,) = last.findings
    assert found.what == what and why in found.why
    assert "check/toys.py" in found.trace and "algorithm/extras" not in found.trace


def test_results_that_are_not_wanted_any_more_leave_no_process():
    messages = check_in_process(request("Sound"))
    assert next(messages) == CheckResult(group="environment", title="made")
    messages.close()
    assert not [one for one in psutil.Process().children() if "spawn_main" in str(one.cmdline())]
