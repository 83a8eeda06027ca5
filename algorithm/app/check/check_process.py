"""Process that checks an environment, which may hang or crash there without harm to the command."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from algorithm.core.seeding import episode_seeds
from algorithm.env import checks
from algorithm.env.checks.checker import CHECKS, Check, run_checks
from algorithm.env.checks.context import CheckConfig, CheckContext, CheckLimits
from algorithm.env.checks.finding import CheckResult, Finding, error, warning
from algorithm.env.gym import GymRecipe, has_vector_class
from algorithm.env.kinds import kind_of
from algorithm.env.pool.monitor_process import become_group_leader, kill_group, monitor_process
from algorithm.env.pool.worker import ignore_stop_signals
from algorithm.env.redirect_output import redirected

_HANGING = "Timeout ("  # first words of faulthandler
_OUTPUT_LINES = 25  # last lines of its output that the finding of its death holds
_CHECKS = Path(checks.__file__).parent


class CheckStarted(NamedTuple):
    """Message that a check has begun."""

    group: str
    title: str


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """Environment to check, as a training would run it; sent to the process.

    timeout: seconds after which a call counts as hanging, -1 never
    """

    env_type: str
    recipe: GymRecipe
    seed: int
    n_envs: int
    workers: int
    length_limit: int
    normalised: bool
    rewards_scaled: bool
    reward_scale: float
    timeout: float
    limits: CheckLimits


def check_in_process(request: CheckRequest) -> Generator[CheckStarted | CheckResult, None, None]:
    """Yield what the process finds, at once. The death of the process is a finding like others."""
    with tempfile.TemporaryDirectory(prefix="check_") as folder:
        output = Path(folder) / "output.txt"
        output.touch()
        context = multiprocessing.get_context("spawn")  # fresh: all that it leaks is the environment's
        connection, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_examine, args=(theirs, request, output), name="check")
        process.start()
        assert process.pid is not None
        monitor_process().kill_group_on_exit(process.pid)
        theirs.close()  # so that its death closes the pipe
        try:
            yield from _received(connection.recv, process, request, output)
        finally:
            process.kill()
            process.join()
            kill_group(process.pid)
            monitor_process().release_group(process.pid)
            connection.close()


def _received(
    receive: Callable[[], Any], process: BaseProcess, request: CheckRequest, output: Path
) -> Iterator[CheckStarted | CheckResult]:
    at = CheckStarted("environment", "made")
    while True:
        try:
            message = receive()
        except EOFError:
            process.join()
            finding = _death(request, process.exitcode, output.read_text("utf-8", errors="replace"))
            yield CheckResult(group=at.group, title=at.title, findings=(finding,))
            return
        if message is None:
            return
        if isinstance(message, CheckStarted):
            at = message
        yield message


def _death(request: CheckRequest, code: int | None, printed: str) -> Finding:
    _, hanging, stacks = printed.rpartition(_HANGING)
    if hanging:
        return error(
            "the environment hangs",
            where="the first line of the trace",
            why=f"no answer for {request.timeout:g} s (base_config.env_timeout); the rest was not looked at",
            fix="fix it, or raise env_timeout; with base_config.workers a copy that hangs is started anew",
            trace=_stack(f"{hanging}{stacks}"),
        )
    died = code is not None and code < 0
    why = f"killed by {signal.Signals(-code).name}" if died and code else f"exit code {code}"
    return error(
        "the environment ended the process",
        why=f"{why}; the rest was not looked at",
        fix="fix it; with base_config.workers a training survives env_restarts such ends",
        trace=_stack(printed),
    )


def _stack(printed: str) -> str:
    """Return the environment's part of faulthandler's stack, innermost call first.

    Without such a stack, return the end of the output.
    """
    for block in printed.split("\n\n"):
        lines = block.strip().splitlines()
        if any(line.endswith(f"in {_examine.__name__}") for line in lines):
            calls = [line.strip() for line in lines if line.lstrip().startswith("File ")]
            ours = next((i for i, call in enumerate(calls) if str(_CHECKS) in call), len(calls))
            return "\n".join(calls[:ours][:_OUTPUT_LINES])
    return "\n".join(printed.strip().splitlines()[-_OUTPUT_LINES:])


def _examine(connection: Connection, request: CheckRequest, output: Path) -> None:
    """Run the checks; the main function of the process."""
    become_group_leader()
    ignore_stop_signals()  # the command handles them and kills this process
    threading.Thread(target=_leave_with_parent, name="parent watch", daemon=True).start()
    with output.open("ab") as file, redirected(file):
        faulthandler.enable(file)

        def alarm() -> None:
            if request.timeout > 0:
                seconds = request.timeout + request.limits.seconds
                faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        alarm()
        context, all_checks = _prepared(request, alarm)
        if context is None:
            connection.send(_only_a_vector_class(request))
        else:
            for checked in run_checks(
                context, all_checks, on_start=lambda c: connection.send(CheckStarted(c.group, c.title))
            ):
                connection.send(checked)
        faulthandler.cancel_dump_traceback_later()
        connection.send(None)


def _prepared(
    request: CheckRequest, alarm: Callable[[], None]
) -> tuple[CheckContext | None, tuple[Check, ...]]:
    recipe = request.recipe
    gym = kind_of(request.env_type).registered
    if gym and has_vector_class(recipe.env_id, 1):
        return None, ()
    seed_of = episode_seeds(request.seed, "train")
    plain = gym and not (request.workers or recipe.wrappers)
    setting = CheckConfig(
        seed_of=lambda episode: seed_of(0, episode),
        options=recipe.options,
        n_envs=request.n_envs,
        workers=request.workers,
        length_limit=request.length_limit,
        normalised=request.normalised,
        rewards_scaled=request.rewards_scaled,
        reward_scale=request.reward_scale,
        vector_class=plain and has_vector_class(recipe.env_id, request.n_envs),
    )

    def compare_replay(context: CheckContext) -> Iterator[Finding]:
        # Not before the other checks: torch's threads and files would hide those that an environment leaves.
        from algorithm.app.check.replay_consistency import ReplayConsistency

        compare = ReplayConsistency(recipe=recipe, seed_of=seed_of, timeout=request.timeout)
        yield from compare(context)

    context = CheckContext(recipe.make_gym_env, setting, request.limits, on_call=alarm)
    return context, (*CHECKS, Check("replay", "data", compare_replay))


def _only_a_vector_class(request: CheckRequest) -> CheckResult:
    finding = warning(
        f"{request.recipe.env_id} brings only a vector class",
        why="what is looked at here are single environments",
        fix="register an entry_point for single ones to have them checked",
    )
    return CheckResult(group="environment", title="made", findings=(finding,))


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
