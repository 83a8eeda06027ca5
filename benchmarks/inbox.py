"""How much can a learner receive, how fast do weights reach its actors, and how much does that disturb it?

    python benchmarks/inbox.py
    python benchmarks/inbox.py --seconds 0.5 --actors 1 4 --rounds 1 --json trial.json

Actors are synthetic, in processes of their own, and talk gRPC over 127.0.0.1; one torch thread. They take
their share of the cores: what a learner alone could receive is told by its CPU time, which is written down
by thread. The load of the machine is written down too.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Answer, Worker, WorkerError, our_worker, warn_if_busy, write_result

CASES = ("vectors", "images", "short")
SIZES = ("0.3 MB", "20 MB")
"""See ``inbox_ours.py``."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = parse_arguments(arguments)
    warn_if_busy()
    loads = [os.getloadavg()[0]]
    worker = our_worker("inbox_ours.py")
    try:
        found = {
            "receive": receive(worker, options),
            "weights": weights(worker, options),
            "learn": learn(worker, options),
        }
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    loads.append(os.getloadavg()[0])
    setting = {name: getattr(options, name) for name in ("rounds", "seconds", "block")} | {"load": loads}
    write_result(options.json, {"setting": setting, **found})


def parse_arguments(arguments: Sequence[str] | None) -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of the learner beside traffic (default 5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="time of each figure (default 1.5)")
    parser.add_argument("--block", type=float, default=0.7, help="of each of a round's (default 0.7)")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before it that do not count")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--actors", nargs="+", type=int, default=[1, 2, 4, 16], metavar="N")
    parser.add_argument("--prefetchers", nargs="+", type=int, default=[0, 1], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "inbox.json")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or min(options.seconds, options.block) <= 0:
        parser.error("--rounds must be at least 1, --seconds and --block more than 0")
    if options.actors != sorted(set(options.actors)) or options.actors[0] < 1:
        parser.error("--actors are numbers from 1 up, the smallest first")
    return options


def receive(worker: Worker, options: Namespace) -> list[dict[str, Any]]:
    """Every case in plain text and with token and TLS, for every number of actors. Raises WorkerError."""
    found = []
    for case in options.cases:
        for secure in (False, True):
            command = [*_times(options), "receive", f"--case={case}", *["--secure"] * secure]
            answer = worker.run([*command, "--actors", *map(str, options.actors)])
            found.append({"case": case, "secure": secure, **received(answer)})
            for row in found[-1]["rows"]:
                speed = f"{row['parcels_per_second']:.0f} segments/s, {row['mb_per_second']:.1f} MB/s"
                print(f"{case}{' TLS' * secure}, {row['actors']} actors: {speed}", flush=True)
    return found


def received(answer: Answer) -> dict[str, Any]:
    """Speeds, and where the CPU time of a segment goes, in microseconds: the median over all rows.

    gRPC: the server's thread without what is measured by itself · threads: gRPC's own · feed: the main
    thread without storing
    """
    rows = []
    for row in answer["rows"]:
        rate = row["parcels"] / row["seconds"]
        rows.append(
            {
                "actors": row["actors"],
                "parcels_per_second": rate,
                "mb_per_second": rate * answer["bytes"] / 1e6,
                "server_share": row["server"] / row["seconds"],
                "cpu_us": {name: row[name] / row["parcels"] * 1e6 for name in ("server", "other", "main")},
            }
        )
    own = answer["microseconds"]
    by_thread = {name: median(row["cpu_us"][name] for row in rows) for name in ("server", "other", "main")}
    costs = {
        "decode": own["decode"],
        "check": own["check"],
        "grpc": max(0.0, by_thread["server"] - own["decode"] - own["check"]),
        "threads": by_thread["other"],
        "store": own["store"],
        "feed": max(0.0, by_thread["main"] - own["store"]),
    }
    return {"bytes": answer["bytes"], "cpu_us": {**costs, "all": sum(by_thread.values())}, "rows": rows}


def weights(worker: Worker, options: Namespace) -> dict[str, Any]:
    """Every size of weights. Raises WorkerError."""
    found = {}
    for size in SIZES:
        answer = worker.run([*_times(options), "weights", f"--size={size}"])
        seconds = median(answer["fetch_seconds"])
        speeds = {name: answer[name]["updates"] / answer[name]["seconds"] for name in ("alone", "meanwhile")}
        found[size] = {
            **answer,
            "seconds": seconds,
            "mb_per_second": answer["actors"] * answer["bytes"] / seconds / 1e6,
            "updates_per_second": speeds,
            "waiting_ms": waiting_ms(answer["meanwhile"]),
        }
        print(f"weights of {size}: {seconds:.3f} s to {answer['actors']} actors", flush=True)
    return found


def learn(worker: Worker, options: Namespace) -> list[dict[str, Any]]:
    """Every number of threads that draw batches. Raises WorkerError."""
    found = []
    for number in options.prefetchers:
        command = [f"--seconds={options.block}", f"--warm-up={options.warm_up / 3}", "learn"]
        command += [f"--prefetchers={number}", f"--rounds={options.rounds}"]
        found.append({"prefetchers": number, **beside(worker.run(command))})
        for row in found[-1]["rows"]:
            print(
                f"{number} prefetchers, traffic {row['share']:.0%}, interval {row['interval']}: "
                f"{row['updates_per_second']:.1f} updates/s",
                flush=True,
            )
    return found


def beside(answer: Answer) -> dict[str, Any]:
    """Medians over the rounds of each traffic and switch interval.

    ratio: to no traffic at the same interval and in the same round · interval_ratio: to the first interval
    with the same traffic in the same round
    """
    series: dict[tuple[float, float], list[Answer]] = {}
    for row in answer["rows"]:
        series.setdefault((row["share"], row["interval"]), []).append(row)
    first = max(interval for _, interval in series)
    speeds = {key: [row["updates"] / row["seconds"] for row in rows] for key, rows in series.items()}
    rows = []
    for (share, interval), made in sorted(series.items(), key=lambda item: (item[0][0], -item[0][1])):
        own = speeds[share, interval]
        rows.append(
            {
                "share": share,
                "interval": interval,
                "updates_per_second": median(own),
                "parcels_per_second": median(row["parcels"] / row["seconds"] for row in made),
                "main_cpu_ms": median(1000 * row["main"] / row["updates"] for row in made),
                "waiting_ms": median(map(waiting_ms, made)),
                "ratio": _ratio(own, speeds[0.0, interval]),
                "interval_ratio": _ratio(own, speeds[share, first]),
                "speeds": own,
            }
        )
    return {"most": answer["most"], "rows": rows}


def waiting_ms(row: Answer) -> float:
    """Of an update: when the main thread neither ran nor waited for a core, but for the interpreter's lock.

    With batches drawn ahead also for a batch and for the replay's lock.
    """
    return float(1000 * (row["seconds"] - row["main"] - row["queued"]) / row["updates"])


def _ratio(own: Sequence[float], base: Sequence[float]) -> float:
    return median(mine / theirs for mine, theirs in zip(own, base, strict=True))


def _times(options: Namespace) -> list[str]:
    return [f"--seconds={options.seconds}", f"--warm-up={options.warm_up}"]


if __name__ == "__main__":
    main()
