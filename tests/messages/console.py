"""Consoles: lines, the panel and the end of a run, and numbers in words."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from algorithm.agents.on_policy import metrics as on_policy
from algorithm.agents.sac import metrics as sac
from algorithm.app.console.base import LineConsole, progress_line
from algorithm.app.console.glyphs import number
from algorithm.app.console.live import LiveConsole
from algorithm.app.preview import dry_run
from algorithm.app.preview.cost import Sizes, Speed
from algorithm.config.schema import Config
from algorithm.core.console import Console, Evaluation, Progress
from algorithm.core.wording import clock_time, counted, format_bytes, plus_minus, short, steps_text

LAST, BEST = Evaluation(12_000, -150.5, 12.0, 10), Evaluation(10_000, -140.25, 12.0, 10)
SUMMARY = [("evaluation", "-1 [red]"), ("steps", "20,000")]
COMMANDS = [
    ("resume", "python main.py gym/pendulum -n a --resume"),
    ("use it", "python main.py x " + "y" * 70),
]
LESSONS = {"wall_height": "low", "gravity": "[red]"}
NUMBERS = (0.0, 0.01234, 1.5, -150.25, 999.99, 12345.6, 0.5e-4, -2.5e7, math.inf, math.nan)


def progress(**changes: Any) -> Progress:
    """The state of a run on its way."""
    fields = {
        "step": 12_000,
        "max_step": 20_000,
        "iteration": 60,
        "max_iter": None,
        "updates": 11_000,
        "episodes": 60,
        "seconds": 23.44,
        "eta_s": 15.6,
        "env_steps_per_s": 512.25,
        "updates_per_s": 498.0,
        "returns": (-200.0, -100.0),
        "last_eval": LAST,
        "best_eval": BEST,
        "metrics": {"loss/q": 0.123456789, "loss/policy": math.nan},
        "readouts": sac.READOUTS,
    }
    return Progress(**(fields | changes))


BEGUN = progress(
    **dict.fromkeys(("max_step", "eta_s", "last_eval", "best_eval")),
    **{"returns": (), "metrics": {}, "updates_per_s": math.nan},
)
HYBRID = {
    **{"policy/entropy_c": -0.5, "policy/target_entropy_c": -1.0, "policy/alpha_c": 0.02, "loss/q": 0.25},
    **{"policy/entropy_d": 0.75, "policy/target_entropy_d": 0.6},
}


def run(console: Console) -> None:
    """Everything that a run shows, on a clock that moves on."""
    console.start([("run", [("name", "x"), ("seed", "1")]), ("env", [("observations", "obs (3,) [bold]")])])
    console.warn("take care")
    console.message("hello [bold]")
    console.evaluation(BEST, best=True)
    console.evaluation(Evaluation(12_000, -150.5, math.nan, 1, "Ball", {"is_success": 0.9}), best=False)
    console.progress(progress())
    console.warn("take care")
    console.command("an actor", "python main_ds.py x")
    console.progress(BEGUN)
    console.finish(SUMMARY, COMMANDS)


def messages() -> Iterator[tuple[str, str]]:
    yield "a run in lines", _lines(quiet=False)
    yield "a run in lines, quiet", _lines(quiet=True)
    yield "a run in a terminal", drawn(run)
    panels = {
        "on its way": progress(metrics=HYBRID),
        "just begun": BEGUN,
        "at its best": progress(last_eval=BEST),
        "restarted": progress(env_restarts=12, rows=[("actors", "3 of 4")]),
        "in lessons": progress(lessons=LESSONS),
        "of PPO, begun": progress(metrics={}, readouts=on_policy.READOUTS),
        "of PPO": progress(metrics={"loss/value": 0.5}, readouts=on_policy.READOUTS),
    }
    for name, state in panels.items():
        yield f"a panel {name}", _panel(state)
    yield "a line in lessons", progress_line(progress(lessons=LESSONS))
    for width in (60, 200):
        yield f"a panel {width} wide", _panel(progress(metrics=HYBRID), width=width)
    yield "an end in a narrow terminal", drawn(lambda console: console.finish(SUMMARY, COMMANDS), width=60)
    for form in (short, number, steps_text):
        yield form.__name__, " | ".join(map(form, NUMBERS if form is not steps_text else NUMBERS[:8]))
    seconds = (0, 2.34, 48, 59.6, 725, 11_220, 36_061)
    yield "clock_time", " | ".join(map(clock_time, seconds))
    sizes = (0, 3 * 2**10, 1.5 * 2**20, 10 * 2**20, 2**30 - 1, 2**30, 1500 * 2**30)
    yield "format_bytes", " | ".join(format_bytes(int(size)) for size in sizes)
    yield "counted", " | ".join(counted(n, "run") for n in (0, 1, 1200))
    means = ((-177.3, 69.31), (0.72, 0.05), (2.0, math.nan), (1234.5, 1.0), (3.456, 0.1))
    yield "plus_minus", " | ".join(itertools.starmap(plus_minus, means))
    yield "--dry_run", "\n".join(_costs())


def _lines(*, quiet: bool) -> str:
    lines: list[str] = []
    alert = lambda text: lines.append(f"warning: {text}")  # noqa: E731
    run(LineConsole(lines.append, alert, quiet=quiet, clock=_moving()))
    return "\n".join(lines)


def _costs() -> Iterator[str]:
    speed = Speed(step=0.02, update=0.096, updates_per_step=0.5, length=40.0, warm_up=500)
    sizes = Sizes(
        **{"checkpoint": 1000, "row": 30, "row_each": 8, "replay": 40_000, "capacity": 1000, "held": 100},
        process=5_000_000,
        kept="always",
    )
    huge = Sizes(**{**vars(sizes), "checkpoint": 2**60})
    yield dry_run.speed_text(speed, compiled=False)
    yield dry_run.speed_text(speed, compiled=True)
    yield dry_run.time_text(speed, 3000, 2)
    yield dry_run.time_text(speed, None, 1)
    for each in (sizes, huge):
        warned: list[str] = []
        texts = [
            dry_run.memory_text(each, 3000, warned.append),
            dry_run.disk_text(Config(), each, 3000, dry_run.Path(), warned.append),
        ]
        yield from (re.sub(r"[\d.,]+ GB", "# GB", text) for text in (*texts, *warned))


def _panel(state: Progress, **options: Any) -> str:
    def show(console: Console) -> None:
        console.start([("run", [("name", "x")])])
        for step in range(3):
            console.evaluation(Evaluation(step, step % 2, 3.0, 4), best=False)
        console.progress(state)

    return drawn(show, **options).rpartition("\n\n")[2]


def drawn(show: Callable[[Console], None], *, width: int = 80) -> str:
    """The text in a terminal, without colours; a panel that was drawn anew follows the former one."""
    terminal = Terminal()
    with LiveConsole(terminal, width=width, clock=_moving()) as console:
        show(console)
    frames = re.split(r"(?:\r|\x1b\[2K|\x1b\[1A)+", terminal.getvalue())
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).strip("\n") for frame in frames]
    return "\n\n".join(frame for frame, _ in itertools.groupby(plain))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _moving() -> Callable[[], float]:
    """A clock that moves on by a minute with each look."""
    return map(float, itertools.count(0, 60)).__next__
