"""The process in which an environment is examined: it may die or hang there without harm to who asked."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from algorithm.env import checks
from algorithm.env.checker import CHECKS, Check, examine
from algorithm.env.checks.finding import Checked, Finding, error, warning
from algorithm.env.checks.lab import Lab, Limits, Setting
from algorithm.env.checks.recipe import RawRecipe
from algorithm.env.gym import has_vector_class
from algorithm.env.outside import end_group, lead_group, outside
from algorithm.env.quiet import redirected
from algorithm.env.worker import pass_over_signals
from algorithm.env.wrappers import Wrapper
from algorithm.run.seeding import episode_seeds

_HANGING = "Timeout ("  # how faulthandler begins
_OUTPUT_LINES = 25  # of the end of what it printed, told with its death
_CHECKS = Path(checks.__file__).parent


class Begun(NamedTuple):
    """A check has begun."""

    group: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be examined, as a training with this configuration would run it; sent to the process.

    timeout: seconds after which a call counts as hanging, -1 never
    """

    env_name: str
    env_args: Mapping[str, Any]
    wrappers: tuple[Wrapper, ...]
    options: Mapping[str, Any] | None
    seed: int
    n_envs: int
    workers: int
    length_limit: int
    normalised: bool
    rewards_scaled: bool
    reward_scale: float
    timeout: float
    limits: Limits


def examined(order: Order) -> Generator[Begun | Checked, None, None]:
    """What comes of it, as soon as it is known. The death of the process is a finding like others."""
    with tempfile.TemporaryDirectory(prefix="check_") as folder:
        output = Path(folder) / "output.txt"
        output.touch()
        context = multiprocessing.get_context("spawn")  # a fresh process: what it holds is the environment's
        connection, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_examine, args=(theirs, order, output), name="examination")
        process.start()
        assert process.pid is not None
        outside().end_group_after(process.pid)
        theirs.close()  # so that its death closes the pipe
        try:
            yield from _received(connection, process, order, output)
        finally:
            process.kill()
            process.join()
            end_group(process.pid)
            outside().forget_group(process.pid)
            connection.close()


def _received(
    connection: Connection, process: BaseProcess, order: Order, output: Path
) -> Iterator[Begun | Checked]:
    at = Begun("environment", "made")
    while True:
        try:
            message = connection.recv()
        except EOFError:
            process.join()
            finding = _death(order, process.exitcode, output.read_text(errors="replace"))
            yield Checked(group=at.group, title=at.title, findings=(finding,))
            return
        if message is None:
            return
        if isinstance(message, Begun):
            at = message
        yield message


def _death(order: Order, code: int | None, printed: str) -> Finding:
    _, hanging, stacks = printed.rpartition(_HANGING)
    if hanging:
        return error(
            "the environment hangs",
            where="the first line of the trace",
            why=f"no answer for {order.timeout:g} s (base_config.env_timeout); the rest was not looked at",
            fix="mend it, or raise env_timeout; with base_config.workers a copy that hangs is started anew",
            trace=_stack(f"{hanging}{stacks}"),
        )
    died = code is not None and code < 0
    why = f"killed by {signal.Signals(-code).name}" if died and code else f"exit code {code}"
    return error(
        "the environment ended the process",
        why=f"{why}; the rest was not looked at",
        fix="mend it; with base_config.workers a training survives env_restarts such ends",
        trace=_stack(printed),
    )


def _stack(printed: str) -> str:
    """The environment's part of the stack that faulthandler printed, innermost call first.

    The end of all that was printed, if there is no such stack.
    """
    for block in printed.split("\n\n"):
        lines = block.strip().splitlines()
        if any(line.endswith(f"in {_examine.__name__}") for line in lines):
            calls = [line.strip() for line in lines if line.lstrip().startswith("File ")]
            ours = next((i for i, call in enumerate(calls) if str(_CHECKS) in call), len(calls))
            return "\n".join(calls[:ours][:_OUTPUT_LINES])
    return "\n".join(printed.strip().splitlines()[-_OUTPUT_LINES:])


def _examine(connection: Connection, order: Order, output: Path) -> None:
    """Runs in the process of its own."""
    lead_group()
    pass_over_signals()  # they are for who asked: this process is killed then
    threading.Thread(target=_leave_with_parent, name="parent watch", daemon=True).start()
    with output.open("ab") as file, redirected(file):
        faulthandler.enable(file)

        def alarm() -> None:
            if order.timeout > 0:
                seconds = order.timeout + order.limits.seconds
                faulthandler.dump_traceback_later(seconds, exit=True, file=file)

        alarm()
        lab, all_checks = _prepared(order, alarm)
        if lab is None:
            connection.send(_only_a_vector_class(order))
        else:
            for checked in examine(
                lab, all_checks, begins=lambda c: connection.send(Begun(c.group, c.title))
            ):
                connection.send(checked)
        faulthandler.cancel_dump_traceback_later()
        connection.send(None)


def _prepared(order: Order, alarm: Callable[[], None]) -> tuple[Lab | None, tuple[Check, ...]]:
    recipe = RawRecipe(
        env_id=order.env_name, env_args=order.env_args, wrappers=order.wrappers, options=order.options
    )
    if has_vector_class(order.env_name, 1):
        return None, ()
    seed_of = episode_seeds(order.seed, "train")
    plain = not (order.workers or order.wrappers)
    setting = Setting(
        seed_of=lambda episode: seed_of(0, episode),
        options=order.options,
        n_envs=order.n_envs,
        workers=order.workers,
        length_limit=order.length_limit,
        normalised=order.normalised,
        rewards_scaled=order.rewards_scaled,
        reward_scale=order.reward_scale,
        vector_class=plain and has_vector_class(order.env_name, order.n_envs),
    )

    def same_data(lab: Lab) -> Iterator[Finding]:
        from algorithm.preflight.replay_consistency import (
            SameData,  # loads torch, which would hide what the others leave
        )

        compare = SameData(recipe=recipe, seed_of=seed_of, timeout=order.timeout)
        yield from compare(lab)

    return Lab(recipe.raw, setting, order.limits, alarm=alarm), (*CHECKS, Check("replay", "data", same_data))


def _only_a_vector_class(order: Order) -> Checked:
    finding = warning(
        f"{order.env_name} brings only a vector class",
        why="what is looked at here are single environments",
        fix="register an entry_point for single ones to have them checked",
    )
    return Checked(group="environment", title="made", findings=(finding,))


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
