"""Checks in a process of their own, where an environment may hang or crash without harm to the command."""

from __future__ import annotations

import faulthandler
import multiprocessing
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from algorithm.core.system.output import redirected
from algorithm.core.system.processes import end_with_parent, ending, kill_group, refuse_unguarded, spawn
from algorithm.env.gym import GymRecipe
from algorithm.env.pool.worker import ignore_stop_signals
from algorithm.env.registered import has_vector_class
from algorithm.extras.check.checker import CHECKS, Check, run_checks
from algorithm.extras.check.context import CheckConfig, CheckContext, CheckLimits
from algorithm.extras.check.determinism import check_new_process
from algorithm.extras.check.finding import CheckResult, Finding, error, warning

_HANGING = "Timeout ("  # first words of faulthandler
_OUTPUT_LINES = 25  # last lines of the output that the finding of a death quotes
_CHECKS = str(Path(__file__).parent)


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """Environment to check, as a training would run it; sent to the process.

    has_vector_classes: it may be registered with a vector class
    """

    recipe: GymRecipe
    config: CheckConfig
    limits: CheckLimits
    has_vector_classes: bool = False


def check_in_process(request: CheckRequest) -> Generator[CheckResult, None, None]:
    """Yield each check as it begins, and again with its findings. The process's death is a finding too."""
    with tempfile.TemporaryDirectory(prefix="check_") as folder:
        output = Path(folder) / "output.txt"
        output.touch()
        connection, theirs = multiprocessing.Pipe(duplex=False)
        process = spawn(
            _run_checks_here, (theirs, request, output), name="check"
        )  # what the environment leaks ends with it
        assert process.pid is not None
        theirs.close()  # so that its death closes the pipe
        try:
            yield from _results(connection.recv, process, request.config.timeout, output)
        finally:
            process.kill()
            process.join()
            kill_group(process.pid)
            connection.close()


def _results(
    receive: Callable[[], CheckResult | None], process: BaseProcess, timeout: float, output: Path
) -> Iterator[CheckResult]:
    """Yield the results that arrive from the process; at its death the finding of that."""
    at = CheckResult(group="environment", title="made")
    while True:
        try:
            message = receive()
        except EOFError:
            process.join()
            refuse_unguarded(process.exitcode)
            finding = _death_finding(timeout, process.exitcode, output.read_text("utf-8", errors="replace"))
            yield replace(at, findings=(finding,))
            return
        if message is None:
            return
        at = message
        yield message


def _death_finding(timeout: float, code: int | None, printed: str) -> Finding:
    """Return the finding of a process that hung or died; code: its exit code, printed: its output."""
    if _HANGING in printed:
        return error(
            "the environment hangs",
            where="the first line of the trace",
            why=f"no answer for {timeout:g} s (base_config.env_timeout); the rest was not checked",
            fix="fix it, or raise env_timeout; with base_config.workers a copy that hangs is restarted",
            trace=_stack(printed.rpartition(_HANGING)[2]),
        )
    return error(
        "the environment ended the process",
        why=f"{ending(code)}; the rest was not checked",
        fix="fix it; with base_config.workers training tolerates env_restarts such failures",
        trace=_stack(printed),
    )


def _stack(printed: str) -> str:
    """Return the environment's part of faulthandler's stack, innermost call first.

    Without such a stack, return the end of the output.
    """
    for block in printed.split("\n\n"):
        calls = [line.strip() for line in block.splitlines() if line.lstrip().startswith("File ")]
        if any(call.endswith(f"in {_run_checks_here.__name__}") for call in calls):
            ours = next((i for i, call in enumerate(calls) if _CHECKS in call), len(calls))
            return "\n".join(calls[:ours][:_OUTPUT_LINES])
    return "\n".join(printed.strip().splitlines()[-_OUTPUT_LINES:])


def _run_checks_here(connection: Connection, request: CheckRequest, output: Path) -> None:
    """Run the checks; the main function of the process."""
    end_with_parent()
    ignore_stop_signals()  # the command handles them and kills this process
    with output.open("ab") as file, redirected(file):
        faulthandler.enable(file)

        def alarm() -> None:
            if request.config.timeout > 0:
                seconds = request.config.timeout + request.limits.seconds
                faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        def begin(check: Check) -> None:
            connection.send(CheckResult(group=check.group, title=check.title))

        alarm()
        context = CheckContext(request.recipe.make_gym_env, _config(request), request.limits, on_call=alarm)
        for checked in run_checks(context, _checks(request), on_start=begin):
            connection.send(checked)
        faulthandler.cancel_dump_traceback_later()
        connection.send(None)


def _config(request: CheckRequest) -> CheckConfig:
    """Return the configuration, which notes whether a training uses the vector class."""
    config, recipe = request.config, request.recipe
    plain = request.has_vector_classes and not (config.workers or recipe.wrappers)
    return replace(config, vector_class=plain and has_vector_class(recipe.env_id, config.n_envs))


def _checks(request: CheckRequest) -> tuple[Check, ...]:
    """Return the checks to run; for an environment with only a vector class, a warning alone."""
    if request.has_vector_classes and has_vector_class(request.recipe.env_id, 1):
        only = warning(
            f"{request.recipe.env_id} has only a vector class",
            why="only single environments are checked here",
            fix="register an entry_point for single ones to have them checked",
        )
        return (Check("environment", "made", lambda context: iter([only])),)
    last = [check.group for check in CHECKS].index("cost")
    return (*CHECKS[:last], Check("seeds", "processes", check_new_process), *CHECKS[last:])
