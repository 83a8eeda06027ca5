"""Evaluations that a run has logged, to compare another one with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.evaluation.evaluate import Performance
from algorithm.runs.logs.metrics import read_metrics
from algorithm.runs.rundir import RunDir


@dataclass(frozen=True, kw_only=True)
class Logged:
    """Evaluation that a run logged while training, at the step of a checkpoint.

    episodes: of each evaluation while training
    num_envs: environments of the evaluation to compare
    repeats:  episodes follow from their seeds
    """

    run: RunDir
    step: int
    episodes: int
    num_envs: int
    repeats: bool = True

    def mean(self, behaviour: str) -> float | None:
        """Return the logged ``eval/return_mean``, or None. Raises StorageError for a damaged file."""
        if not self.run.metrics_jsonl.exists():
            return None
        metrics = read_metrics(self.run.metrics_jsonl)
        level = "" if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}/"
        found = dict(zip(metrics["step"], metrics.get(f"{level}eval/return_mean", []), strict=False))
        mean = found.get(float(self.step), math.nan)
        return None if math.isnan(mean) else mean

    def verdict(self, behaviour: str, performance: Performance) -> str | None:
        """Compare a performance with the logged one; None where there is none of as many episodes."""
        logged = self.mean(behaviour)
        if logged is None or len(performance.returns) != self.episodes:
            return None
        if self.num_envs > 1:
            return f"{logged:.1f}, of other episodes: each of {self.num_envs} environments has its own seeds"
        if not self.repeats:
            return f"{logged:.1f}, of other episodes: a Unity player never plays the same ones again"
        mean = performance.interval.mean
        if mean == logged:
            return "the same, to the last bit"
        return (
            f"{logged:.6g}, which differs by {mean - logged:+.3g}: "
            "another seed, configuration, device or version plays differently"
        )
