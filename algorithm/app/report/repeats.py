"""Results of the runs of ``--repeat``, which differ only in their seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from algorithm.run.evaluation.statistics import mean_interval


def repeat_summary(results: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Summarise several runs with different seeds, ready for JSON.

    results: the contents of their ``result.json``. For the last and the best evaluation: ``values`` one per
    run (None where a run has none), and of those there are ``mean`` and ``ci95``, half the width of its
    interval over runs.
    Raises ValueError without results.
    """
    if not results:
        raise ValueError("repeat_summary: no results")
    return {
        "runs": len(results),
        "seeds": [result.get("seed") for result in results],
        "last_eval": _over_runs([_evaluation_mean(result, "last_eval") for result in results]),
        "best_eval": _over_runs([_evaluation_mean(result, "best_eval") for result in results]),
    }


def repeat_rows(results: Sequence[Mapping[str, object]]) -> list[tuple[str, str]]:
    """Return rows for the console: one per seed, then the means with their intervals."""
    rows = []
    for result in results:
        last, best = _evaluation_mean(result, "last_eval"), _evaluation_mean(result, "best_eval")
        rows.append((f"seed {result.get('seed')}", f"{_shown(last)}   best {_shown(best)}"))
    for title, key in (("mean, last", "last_eval"), ("mean, best", "best_eval")):
        values = [mean for mean in (_evaluation_mean(result, key) for result in results) if mean is not None]
        if values:
            interval = mean_interval(values)
            rows.append((title, f"{interval.text} over {len(values)} runs"))
    return rows


def _evaluation_mean(result: Mapping[str, object], key: str) -> float | None:
    """Return the mean return of an evaluation in a result; None without one."""
    evaluation = result.get(key)
    mean = evaluation.get("mean") if isinstance(evaluation, Mapping) else None
    return float(mean) if isinstance(mean, (int, float)) and math.isfinite(mean) else None


def _over_runs(values: Sequence[float | None]) -> dict[str, object]:
    """Return the values of all runs, and mean and half width of their interval, as JSON."""
    known = [value for value in values if value is not None]
    if not known:
        return {"values": list(values), "mean": None, "ci95": None}
    interval = mean_interval(known)
    return {
        "values": list(values),
        "mean": interval.mean,
        "ci95": interval.half_width if len(known) > 1 else None,
    }


def _shown(mean: float | None) -> str:
    return "not evaluated" if mean is None else f"{mean:.1f}"
