"""``--check`` from the command line, and the process in which it looks; its texts: ``tests.messages``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from algorithm.app.check.commands import command
from algorithm.app.check.process import CheckRequest, check_in_process
from algorithm.app.cli.parsing import parse_args
from algorithm.env.checks.context import CheckConfig, CheckLimits
from algorithm.env.checks.finding import CheckResult
from algorithm.env.gym import GymRecipe
from main import main

LIMITS = CheckLimits(steps=60, compared=30, episodes=5, seconds=60.0, total=300.0)  # counts end it, no clock


def request(toy: str, *, timeout: float = 60.0, limits: CheckLimits = LIMITS) -> CheckRequest:
    recipe = GymRecipe(env_id=f"tests.toys_check:{toy}-v0", env_args={})
    return CheckRequest(recipe=recipe, config=CheckConfig(seed=3, timeout=timeout), limits=limits)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Writes a task with one of the toys and returns the command line for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("algorithm.app.check.check.CheckLimits", lambda: LIMITS)

    def written(toy: str) -> list[str]:
        folder = tmp_path / "task"
        folder.mkdir()
        base = f"{{env_type: GYM, env_name: 'tests.toys_check:{toy}-v0'}}"
        (folder / "config.yaml").write_text(f"default:\n  base_config: {base}\n")
        return ["./task", "--check"]

    return written


def test_a_sound_task_returns_0_and_writes_nothing(task, capfd, tmp_path):
    assert main(task("Sound")) == 0
    shown = capfd.readouterr().out
    assert "  ok       repeat         bit for bit over " in shown
    assert "  ok       processes      the same in another process, over 31 steps and resets" in shown
    assert "  found                  no errors, no warnings, " in shown
    assert "  what a training costs  python main.py ./task --dry_run" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["task"]


def test_an_error_returns_the_code_of_a_training_and_quiet_leaves_out_what_is_fine(task, capfd):
    assert main([*task("Unbounded"), "--quiet"]) == 4
    told = capfd.readouterr().out.splitlines()
    assert told[:2] == ["environment", "  error    made           the action has no finite bounds"]
    assert told[-2].startswith("  found  1 error, no warnings, no notes, in ")
    assert main(["./task", "--check", "--quiet", "-o", "base_config.wrappers=[nowhere:Wrapper]"]) == 2


@pytest.mark.slow
def test_what_is_configured_is_checked(task, capfd):
    command = task("Rich")
    main([*command, "-o", "sac_config.reward_scaling=false"])
    assert "set base_config.reward_scale" in capfd.readouterr().out
    main(command)
    assert "divided by the returns' spread" in capfd.readouterr().out


@pytest.mark.fault("F13")
def test_a_hang_is_a_finding_with_the_stack():
    *before, last = check_in_process(request("Hanging", timeout=1.0, limits=replace(LIMITS, seconds=0.5)))
    assert last.title == "keeps going" and replace(last, findings=()) in before
    (found,) = last.findings
    assert found.what == "the environment hangs" and "no answer for 1 s" in found.why
    first, *_, last_call = found.trace.splitlines()
    assert "toys_check.py" in first and first.endswith("in step")
    assert "gymnasium" in last_call or "env/gym.py" in last_call  # and none of the checks


@pytest.mark.fault("F12")
def test_a_crash_is_a_finding_with_the_stack():
    *_, last = check_in_process(request("Crashing"))
    (found,) = last.findings
    assert found.what == "the environment ended the process"
    assert "SIGSEGV" in found.why and "toys_check.py" in found.trace


def test_results_that_are_not_wanted_any_more_leave_no_process():
    def processes() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [child for child in children if "spawn_main" in str(child.cmdline())]

    messages = check_in_process(request("Sound"))
    assert next(messages) == CheckResult(group="environment", title="made")
    assert len(processes()) == 1
    messages.close()
    assert processes() == []


def test_the_next_commands_are_for_the_same_task_with_the_same_settings():
    given = ["a b", "-c", "rnn", "--env_args", "{size: 2}", "--agents", "3", "-o", "sac_config.tau=0.1"]
    options = parse_args([*given, "--check"])
    words = shlex.split(command(options, "--dry_run"))
    assert words[:2] == ["python", "main.py"]
    assert parse_args(words[2:]) == replace(options, check=False, dry_run=True)
