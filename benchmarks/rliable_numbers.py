"""Figures of rliable 1.2 for some scores: ``benchmarks/.peers/sb3/bin/python -m benchmarks.rliable_numbers``.

``tests/benchmarks/test_aggregates.py`` holds ours against what this prints.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

OURS = np.array(
    [
        [1.001, 1.149, 0.863, 0.555],
        [0.773, 0.504, 1.03, 1.67],
        [0.754, 0.69, 1.245, 1.178],
        [1.053, 0.535, 0.985, 1.348],
        [0.328, 0.771, 0.049, 0.355],
        [0.079, 0.882, 0.366, 1.136],
        [1.078, 0.907, -0.258, 0.731],
    ]
)
"""Scores of seven runs of four tasks."""

THEIRS = np.array(
    [
        [1.001, 0.757, -0.065, 0.461],
        [0.211, 0.296, 1.23, 0.296],
        [0.684, 1.142, 0.408, 0.644],
        [0.755, 0.732, 0.087, 0.738],
        [1.379, -0.074, 1.13, 0.76],
        [0.379, 1.7, 1.081, 0.1],
        [0.737, 0.988, 0.606, 1.041],
    ]
)
LEVELS = np.array([0.5, 1.0, 1.5])


def main() -> None:
    """Print point values and 95 % intervals."""
    library, metrics = import_module("rliable.library"), import_module("rliable.metrics")
    iqm, pairs = {"iqm": OURS}, {"improvement": (OURS, THEIRS)}
    print(*library.get_interval_estimates(iqm, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=20_000))
    print(*library.get_interval_estimates(pairs, metrics.probability_of_improvement, reps=20_000))
    print(*library.create_performance_profile({"profile": OURS}, LEVELS, reps=20_000))


if __name__ == "__main__":
    main()
