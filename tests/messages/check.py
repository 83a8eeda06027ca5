"""``--check``: all findings about each faulty environment of ``extras.check.toys``, and nothing else."""

from __future__ import annotations

import gc
import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from algorithm.extras.check.checker import CHECKS, Check, run_checks
from algorithm.extras.check.context import CheckConfig, CheckContext, CheckLimits
from algorithm.extras.check.finding import CheckResult, Level, error, note, ok, warning
from algorithm.extras.check.printer import CheckPrinter
from tests.extras.check import toys

LIMITS = CheckLimits(steps=240, compared=60, seconds=60.0, total=300.0)
"""Counts end the checks, never the clock."""

_NUMBER = re.compile(r"(?<![\w.])-?\d(?:[\d,.]*\d(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w)")  # of two digits or more
_SOUND = (toys.Sound, toys.Picture, toys.Choosy, toys.Strict)
_APART = (*_SOUND, toys.Hanging, toys.Crashing)


def messages() -> Iterator[tuple[str, str]]:
    """Numbers of two digits or more, which may depend on the machine, are left out."""
    gc.freeze()  # the checks collect garbage, which takes long among all that the tests before have made
    try:
        yield from _all()
    finally:
        gc.unfreeze()


def _all() -> Iterator[tuple[str, str]]:
    yield "a sound environment", _text(checked(toys.Sound), Level.OK)
    for toy in toys.TOYS:
        if toy not in _APART:
            yield toy.__name__, _text(checked(toy))
    wrapped: dict[str, Callable[[], Any]] = {
        "NormalizeObservation": lambda: NormalizeObservation(toys.Sound()),
        "NormalizeReward": lambda: NormalizeReward(toys.Sound()),
    }
    for name, make in wrapped.items():
        yield f"the wrapper {name}", _text(checked(make))
    yield "rewards that are scaled", _text(checked(toys.Sound, reward_scale=1e6))
    for width in (None, 60):
        yield f"printed, {'in lines' if width is None else f'{width} wide'}", printed(width)
    yield "printed, quiet", printed(None, quiet=True)


def checked(make: Callable[[], Any], *, checks: Iterable[Check] = CHECKS, **config: Any) -> list[CheckResult]:
    """All results."""
    return [*run_checks(CheckContext(make, CheckConfig(seed=3, **config), LIMITS), [*checks])]


def _text(results: Iterable[CheckResult], least: Level = Level.NOTE) -> str:
    lines = []
    for result in results:
        for finding in result.findings:
            if finding.level >= least and not finding.what.startswith("not checked"):
                parts = (finding.what, finding.where, finding.why, finding.fix)
                text = "\n".join(filter(None, parts)).replace("\n", "\n    ")
                lines.append(f"{finding.level.word}, {result.group} {result.title}: {_NUMBER.sub('#', text)}")
    return "\n".join(lines)


def printed(width: int | None, *, quiet: bool = False) -> str:
    """Some findings as they are shown in a terminal of this width, or in a file."""
    stream = io.StringIO()
    if width:
        stream.isatty = lambda: True  # type: ignore[method-assign]
    long = "a long reason, " * 8
    results = [
        CheckResult(group="observations", title="shape", findings=(ok("obs 3"),)),
        CheckResult(
            group="observations",
            title="scale",
            findings=(
                warning("obs[2] is large", where="here", why=long, fix="this\nthat"),
                note("some", why="so"),
            ),
        ),
        CheckResult(
            group="rewards",
            title="finite",
            findings=(error("it is \x1b[31mnan", why="it is", fix="fix it", trace="one\n  two"),),
        ),
    ]
    printer = CheckPrinter(quiet=quiet, output=stream, width=width)
    printer.begin("Task-v0, config.yaml")
    for result in results:
        printer.show(result)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
