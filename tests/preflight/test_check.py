"""``--check`` from the command line: what is shown and returned, and what becomes of a process that dies."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pytest

from algorithm.app.check.check_printer import CheckVerdict, LivePrinter, PlainPrinter
from algorithm.app.check.check_process import CheckRequest, CheckStarted, check_in_process
from algorithm.app.check.commands import command
from algorithm.app.check.replay_consistency import ReplayConsistency, first_difference, plain_rows
from algorithm.app.cli.parsing import parse_args
from algorithm.env.checks.checker import Check, run_checks
from algorithm.env.checks.context import CheckConfig, CheckContext, CheckLimits, EnvInstance
from algorithm.env.checks.finding import CheckResult, Level, error, note, ok, warning
from algorithm.env.gym import GymRecipe
from main import main
from tests import toys_check as toys

LIMITS = CheckLimits(steps=60, compared=30, episodes=5, seconds=60.0, total=300.0)  # counts end it, no clock


def request(toy: str, *, timeout: float = 60.0, limits: CheckLimits = LIMITS) -> CheckRequest:
    return CheckRequest(
        env_type="GYM",
        recipe=GymRecipe(env_id=f"tests.toys_check:{toy}-v0", env_args={}),
        seed=3,
        n_envs=1,
        workers=0,
        length_limit=-1,
        normalised=False,
        rewards_scaled=False,
        reward_scale=1.0,
        timeout=timeout,
        limits=limits,
    )


@pytest.fixture
def task(tmp_path, monkeypatch):
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


def test_a_sound_task_returns_0_and_is_compared_with_a_plain_loop(task, capfd, tmp_path):
    assert main(task("Sound")) == 0
    shown = capfd.readouterr().out
    assert "  ok       repeat         bit for bit over " in shown
    assert "episodes compared, all equal" in shown
    assert "found  no errors, no warnings" in shown
    assert "python main.py ./task --dry_run" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["task"]


def test_a_name_from_outside_steers_no_terminal(task, capfd, monkeypatch):
    nothing = (message for message in ())
    monkeypatch.setattr("algorithm.app.check.check.check_in_process", lambda request: nothing)
    assert main([*task("Sound"), "-o", 'base_config.env_name="\\e[31mX-v1"']) == 0
    assert r"check of \x1b[31mX-v1" in capfd.readouterr().out


@pytest.mark.slow
def test_large_rewards_are_sound_where_the_configuration_scales_them(task, capfd):
    command = task("Rich")
    main([*command, "-o", "sac_config.reward_scaling=false"])
    assert "set base_config.reward_scale" in capfd.readouterr().out
    main(command)
    assert "divided by the returns' spread" in capfd.readouterr().out


def test_an_error_returns_4(task, capfd):
    assert main([*task("Unbounded"), "--quiet"]) == 4
    told = capfd.readouterr().out.splitlines()
    assert told[0] == "environment"
    assert told[1] == "  error    made           the action has no finite bounds"
    assert told[-2].startswith("found  1 error, no warnings, no notes, in ")


@pytest.mark.fault("F13")
def test_a_hang_is_a_finding_with_the_stack():
    *before, last = check_in_process(request("Hanging", timeout=1.0, limits=replace(LIMITS, seconds=0.5)))
    assert isinstance(last, CheckResult) and (last.title, last.level) == ("keeps going", Level.ERROR)
    (found,) = last.findings
    assert found.what == "the environment hangs"
    assert "no answer for 1 s" in found.why
    first, *_, last_call = found.trace.splitlines()
    assert "toys_check.py" in first and first.endswith("in step")
    assert "gymnasium" in last_call  # and none of our own
    assert CheckStarted("environment", "keeps going") in before


@pytest.mark.fault("F12")
def test_a_crash_is_a_finding_with_the_stack():
    *_, last = check_in_process(request("Crashing"))
    (found,) = last.findings
    assert found.what == "the environment ended the process"
    assert "SIGSEGV" in found.why
    assert "toys_check.py" in found.trace


def examinations() -> list[int]:
    """Ids of child processes, without the one that watches over shared memory."""
    return [child.pid for child in psutil.Process().children() if "spawn_main" in str(child.cmdline())]


def test_whoever_stops_listening_leaves_no_process():
    messages = check_in_process(request("Sound"))
    assert next(messages) == CheckStarted("environment", "made")
    assert len(examinations()) == 1
    messages.close()
    assert examinations() == []


def compared(toy) -> CheckResult:
    """In this process only; the test of the command line compares a worker's as well."""
    context = CheckContext(toy, CheckConfig(seed_of=lambda episode: episode), LIMITS)
    recipe = GymRecipe(env_id=f"tests.toys_check:{toy.__name__}-v0", env_args={})
    seeds = lambda copy, episode: 100 * copy + episode  # noqa: E731
    (found,) = run_checks(
        context, [Check("replay", "data", ReplayConsistency(recipe=recipe, seed_of=seeds, timeout=60.0))]
    )
    return found


def test_copies_that_share_what_they_should_not_are_noticed():
    found = compared(toys.Shared)
    assert found.level is Level.ERROR
    assert found.findings[0].where.startswith("2 copies in one process, copy 0, transition 1, step 0 of its")


def test_what_does_not_repeat_is_not_compared():
    assert compared(toys.Unseeded).findings[0].what == "not compared: episodes do not repeat"


def test_a_plain_loop_by_hand():
    """The drunkard of seed 5, cut off after three steps: then seed 6 begins."""
    copy = EnvInstance(toys.Sound(), None, 0.0)
    rows = plain_rows(copy, lambda episode: 5 + episode, 0, 5, limit=3)
    assert rows["step"].tolist() == [0, 1, 2, 0, 1]
    assert rows["goes on"].tolist() == [True, True, False, True, False]
    assert not rows["previous action"][[0, 3]].any()
    assert (rows["previous action"][1:3] == rows["action"][0:2]).all()
    assert (rows["observation obs"][1:3] == rows["next observation obs"][0:2]).all()
    assert (rows["reward"] == -np.abs(rows["next observation obs"][:, 1])).all()
    env = toys.Sound()
    assert (rows["observation obs"][3] == env.reset(seed=6)[0]).all()


def test_the_first_difference_is_the_earliest():
    plain = {"step": np.array([0, 1, 0]), "reward": np.zeros(3), "observation x": np.zeros((3, 2))}
    stored = {name: value.copy() for name, value in plain.items()}
    assert first_difference(stored, plain) == ""
    stored["reward"][2] = 7.0
    stored["observation x"][1, 1] = np.nan
    told = (
        "transition 2, step 1 of its episode: observation x[1] is nan in the replay and 0.0 in the plain loop"
    )
    assert first_difference(stored, plain) == told


FOUND = [
    CheckResult(group="observations", title="shape", findings=(ok("obs 3"),)),
    CheckResult(
        group="observations",
        title="scale",
        findings=(
            warning("obs[2] has mean 800", where="1 of 3 elements", why="a long reason " * 12, fix="this"),
            note("something", why="else"),
        ),
    ),
    CheckResult(
        group="rewards",
        title="finite",
        findings=(error("it is nan", why="so it is", fix="mend it", trace="one\n  two"),),
    ),
]
VERDICT = CheckVerdict(errors=1, warnings=1, notes=1, seconds=2.0, dry_run="", train="")


def drawn(printer) -> str:
    with printer:
        printer.begin("Task-v0, config.yaml")
        for checked in FOUND:
            printer.at_work(checked.group, checked.title)
            printer.show(checked)
        printer.end(VERDICT)
    return ""


def test_lines_for_a_file():
    stream = io.StringIO()
    drawn(PlainPrinter(stream))
    lines = stream.getvalue().splitlines()
    assert lines[:4] == [
        "check of Task-v0, config.yaml",
        "observations",
        "  ok       shape          obs 3",
        "  warning  scale          obs[2] has mean 800",
    ]
    assert lines[4:8] == [
        f"{'':26}where  1 of 3 elements",
        f"{'':26}why    {('a long reason ' * 12).rstrip()}",
        f"{'':26}to do  this",
        f"{'  note':26}something",
    ]
    assert f"{'':26}trace  one" in lines and f"{'':33}  two" in lines
    assert lines[-2:] == [
        "found  1 error, 1 warning, 1 note, in 2.0 s",
        "next   fix the errors and check again",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_any_width_shows_all_of_it(width):
    stream = io.StringIO()
    drawn(LivePrinter(stream, width=width))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    words = " ".join(" ".join(lines).split())
    for text in ("obs[2] has mean 800", "1 of 3 elements", "this", "else", "it is nan", "trace one", "two"):
        assert text in words
    assert words.count("a long reason") == 12
    assert any("result" in line for line in lines)


def test_quiet_leaves_out_what_is_fine():
    stream = io.StringIO()
    drawn(PlainPrinter(stream, least=Level.WARNING))
    assert "obs 3" not in stream.getvalue() and "something" not in stream.getvalue()
    assert "obs[2] has mean 800" in stream.getvalue()


@pytest.mark.parametrize(
    ("counts", "level"), [((0, 0, 0), Level.OK), ((0, 0, 2), Level.OK), ((0, 1, 0), Level.WARNING)]
)
def test_without_errors_the_next_commands_are_told(counts, level):
    verdict = partial(CheckVerdict, seconds=1.0, dry_run="see", train="go")(
        **dict(zip(("errors", "warnings", "notes"), counts, strict=True))
    )
    assert verdict.level is level
    assert verdict.commands == [("what a training costs", "see"), ("train", "go")]


def test_the_next_commands_are_for_what_was_looked_at():
    """Read again, they ask for the same task with the same settings."""
    given = ["a b", "-c", "rnn", "--env_args", "{size: 2}", "--agents", "3", "-o", "sac_config.tau=0.1"]
    options = parse_args([*given, "--check"])
    words = shlex.split(command(options, "--dry_run"))
    assert words[:2] == ["python", "main.py"]
    assert parse_args(words[2:]) == replace(options, check=False, dry_run=True)
