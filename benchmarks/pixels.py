"""Pong from pixels beside Stable-Baselines3: speed, memory of a transition, and whether memory grows.

    python benchmarks/pixels.py                       # everything
    python benchmarks/pixels.py --parts memory        # some of: speed, memory, long

speed:  environment steps per second in interleaved pairs of short runs, one update in ten steps. Their SAC
        has no discrete actions, so their side is DQN, which trains one network where ours trains three.
memory: bytes of a stored transition, computed and measured by filling a replay.
long:   one run of ours, and a line through its resident memory over the second half, when the replay is full.

Each part is written when it is done. A killed long run starts again; a finished one is not repeated.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import (
    RESULTS,
    ROOT,
    Answer,
    Worker,
    WorkerError,
    our_worker,
    peer_worker,
    warn_if_busy,
    write_result,
)
from jobs import Job, train_all
from pairs import pair_arguments, parse, run_pairs
from pixel_setting import BATCH_SIZE, STEPS_PER_UPDATE
from pixels_ours import PRESET, load_preset, overrides

from algorithm.config import ConfigError
from algorithm.run.logs.metrics import read_metrics

REPLAYS = {"ours": ("uniform", "prioritised"), "peer": ("default", "optimize_memory_usage")}


def main() -> None:
    """Measure the parts and write each."""
    arguments = parse_arguments()
    try:
        for name in arguments.parts:
            print(f"pixels: {name}", file=sys.stderr)
            write_part(arguments.json, name, PARTS[name](arguments))
    except (WorkerError, ConfigError) as error:
        sys.exit(f"benchmark stopped: {error}")


def parse_arguments() -> Namespace:
    """The command line."""
    parser = pair_arguments(__doc__, result=RESULTS / "pixels.json")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--steps", type=int, default=3000, help="speed: environment steps of a run (3000)")
    parser.add_argument("--start-step", type=int, default=500, help="random steps before learning (500)")
    parser.add_argument("--capacity", type=int, default=100_000, help="speed: size of the replays (100000)")
    parser.add_argument("--transitions", type=int, default=10_000, help="memory: how many are stored (10000)")
    parser.add_argument("--long-steps", type=int, default=30_000, help="long: environment steps (30000)")
    parser.add_argument("--long-capacity", type=int, default=10_000, help="long: rows of the replay (10000)")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "models" / "benchmarks" / "pixels", help="of the run"
    )
    arguments = parse(parser)
    if "long" in arguments.parts and arguments.long_capacity * 2 > arguments.long_steps:
        parser.error("--long-capacity must be at most half of --long-steps: a replay that fills is no leak")
    if arguments.transitions < 1000:
        parser.error("--transitions must be at least 1000, one episode")
    return arguments


def write_part(file: Path, name: str, figures: object) -> None:
    """Put a part into the result file; the other parts stay as they are."""
    earlier: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    parts = {part: earlier[part] for part in PARTS if part in earlier}
    write_result(file, {"env": environment(), **parts, name: figures})


def environment() -> dict[str, Any]:
    """The preset's environment, as the peer builds it too."""
    base = load_preset().config.base_config
    wrappers = [{name: dict(kwargs or {}) for name, kwargs in entry.items()} for entry in base.wrappers]
    return {"name": base.env_name, "args": dict(base.env_args or {}), "wrappers": wrappers}


def workers(arguments: Namespace) -> dict[str, Worker]:
    """Both sides."""
    peer = peer_worker("pixels_sb3.py", arguments.sb3_python)
    return {"ours": our_worker("pixels_ours.py"), "peer": peer}


def measure_speed(arguments: Namespace) -> dict[str, Any]:
    """Pairs of short trainings, and where a step's time goes on either side."""
    warn_if_busy()
    command = ["train", f"--env={json.dumps(environment())}", f"--steps={arguments.steps}"]
    command += [f"--start-step={arguments.start_step}", f"--capacity={arguments.capacity}"]
    sides = workers(arguments)
    figures = run_pairs(
        sides["ours"],
        sides["peer"],
        command,
        pairs=arguments.pairs,
        threads=arguments.threads,
        unit="steps",
        check=lambda answer: check(answer, arguments),
    )
    answers = {side: [pair[side] for pair in figures["answers"]] for side in sides}
    setting = {key: getattr(arguments, key) for key in ("steps", "start_step", "capacity", "threads")}
    return {
        "setting": {**setting, "batch_size": BATCH_SIZE, "steps_per_update": STEPS_PER_UPDATE},
        **figures,
        "shares": {side: median_shares(answers[side]) for side in sides},
        "peak_rss_mb": {side: median(one["peak_rss_mb"] for one in answers[side]) for side in sides},
    }


def median_shares(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians of the part of the seconds that each activity took."""
    return {
        part: median(answer["time"][part] / answer["seconds"] for answer in answers)
        for part in answers[0]["time"]
    }


def check(answer: Answer, arguments: Namespace) -> None:
    """Raise WorkerError unless steps, updates and threads are those asked for; networks differ."""
    for name in ("threads", "steps"):
        if answer[name] != getattr(arguments, name):
            raise WorkerError(
                f"{answer['library']} reports {name} {answer[name]}, not {getattr(arguments, name)}"
            )
    expected = (arguments.steps - arguments.start_step) / STEPS_PER_UPDATE
    if abs(answer["updates"] - expected) > 2:  # libraries differ in which step is the first to learn from
        raise WorkerError(f"{answer['library']} made {answer['updates']} updates, not {expected:.0f}")


def measure_memory(arguments: Namespace) -> list[dict[str, Any]]:
    """Every kind of replay of both sides, each filled in a process of its own."""
    command = ["memory", f"--env={json.dumps(environment())}", f"--capacity={arguments.transitions}"]
    rows = []
    for side, worker in workers(arguments).items():
        for kind in REPLAYS[side]:
            answer = worker.run([*command, f"--kind={kind}"])
            rows.append({"side": side, "kind": kind, **answer})
            print(
                f"{worker.name}, {kind}: {answer['computed_bytes']:.0f} bytes per transition, "
                f"measured {answer['measured_bytes']:.0f}"
            )
    return rows


def measure_long(arguments: Namespace) -> dict[str, Any]:
    """One run of ours, and what its resident memory does. Raises WorkerError if it fails."""
    size = {"steps": arguments.long_steps, "capacity": arguments.long_capacity}
    changes = overrides(**size, start_step=arguments.start_step)
    job = Job(task="pong", variant="long", seed=1, env=PRESET, overrides=changes)
    failed = train_all([job], arguments.folder, at_a_time=1, done=lambda _: None)
    if failed:
        raise WorkerError(failed[0])
    folder, run = job.run_folder(arguments.folder), job.read(arguments.folder)
    columns = read_metrics(folder / "metrics.csv")
    pairs = zip(columns["step"], columns["sys/rss_mb"], strict=True)
    found = memory_trend([(int(step), mb) for step, mb in pairs if np.isfinite(mb)])
    speed = arguments.long_steps / run.seconds
    print(f"{speed:.1f} steps/s, {found['mb_per_1000_steps']:+.3f} MB per 1000 steps in the second half")
    return {**size, "version": run.version, "seconds": run.seconds, "last_evaluation": run.final, **found}


def memory_trend(samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """A line through the second half of (step, MB): its slope, and the values it is seen in.

    Least squares; the half begins at half of the last step. Raises WorkerError where it has fewer than three
    values.
    """
    half = [(step, mb) for step, mb in samples if 2 * step >= samples[-1][0]]
    if len(half) < 3:
        raise WorkerError(f"{len(half)} values of memory in the second half are too few for a line")
    steps, mb = np.array(half, np.float64).T
    slope, _ = np.polyfit(steps - steps[0], mb, 1)
    return {
        "mb_per_1000_steps": 1000 * float(slope),
        "mb_at_half": float(mb[0]),
        "mb_at_end": float(mb[-1]),
        "mb_largest": max(value for _, value in samples),
        "rss_mb": list(samples),
    }


PARTS: dict[str, Callable[[Namespace], Any]] = {
    "speed": measure_speed,
    "memory": measure_memory,
    "long": measure_long,
}

if __name__ == "__main__":
    main()
