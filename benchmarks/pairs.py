"""Two sides in turns: ours, theirs, ours, theirs.

Neighbouring runs see the same machine, so the ratio of a pair means more than the ratio of two averages.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import PEER_PYTHON, Answer, Worker


def pair_arguments(description: str | None, *, result: Path | None) -> ArgumentParser:
    """The command line that every comparison in pairs understands. result: where figures go by default."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs of runs (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of either side (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", default=result, help="where figures are written")
    add_peer(parser)
    return parser


def add_peer(parser: ArgumentParser) -> None:
    """The option that names the interpreter of the other side."""
    parser.add_argument(
        "--sb3-python",
        type=Path,
        metavar="PATH",
        default=PEER_PYTHON,
        help="the Python that Stable-Baselines3 is installed for",
    )


def parse(parser: ArgumentParser) -> Namespace:
    """Read the command line; at least one pair."""
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    return arguments


def run_pairs(
    ours: Worker,
    peer: Worker,
    command: Sequence[str],
    *,
    pairs: int,
    threads: int,
    unit: str,
    check: Callable[[Answer], None],
) -> dict[str, Any]:
    """Run the pairs, seed 0 first, and print a line for each.

    unit:  what is counted per second: the key of the answers that holds the count.
    check: raises WorkerError for an answer that cannot be compared.
    Returns ``rates`` (per second and their ratio, one a pair), their ``medians``, and the ``answers``.
    """
    print(f"{'':8}{ours.name:>8} {peer.name:>18} {'ratio':>7}")
    answers: list[dict[str, Answer]] = []
    rates: list[dict[str, float]] = []
    for seed in range(pairs):
        pair: dict[str, Answer] = {}
        for side, worker in (("ours", ours), ("peer", peer)):
            pair[side] = worker.run([*command, f"--threads={threads}", f"--seed={seed}"], threads=threads)
            check(pair[side])
        row = {side: float(answer[unit] / answer["seconds"]) for side, answer in pair.items()}
        row["ratio"] = row["ours"] / row["peer"]
        answers.append(pair)
        rates.append(row)
        print_row(f"pair {seed + 1}", row)
    medians = {column: median(row[column] for row in rates) for column in rates[0]}
    print_row("median", medians)
    return {"unit": f"{unit}/s", "medians": medians, "rates": rates, "answers": answers}


def print_row(name: str, row: dict[str, float]) -> None:
    """One line of the table."""
    print(f"{name:8}{row['ours']:8.1f} {row['peer']:18.1f} {row['ratio']:7.2f}", flush=True)
