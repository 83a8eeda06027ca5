"""What an evaluation by hand came to, beside what was logged while training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from algorithm.console.base import Rows
from algorithm.roles import Episode
from algorithm.run.files import finite_or_null
from algorithm.run.logs.metrics import read_metrics
from algorithm.run.playing.evaluate import Performance
from algorithm.run.rundir import RunDir
from algorithm.spec import DEFAULT_BEHAVIOUR

Scores = dict[str, Performance]
"""By behaviour, in the order in which they first finished an episode."""


def scores_of(episodes: Sequence[Episode]) -> Scores:
    """Episodes by behaviour; a behaviour that finished none is not there."""
    scores = {}
    for behaviour in dict.fromkeys(episode.behaviour for episode in episodes):
        own = [episode for episode in episodes if episode.behaviour == behaviour]
        scores[behaviour] = Performance(tuple(e.total for e in own), tuple(e.length for e in own))
    return scores


def scores_json(scores: Scores) -> object:
    """As ``evaluation.json`` holds them."""
    return finite_or_null(
        {
            behaviour: {
                "mean": performance.interval.mean,
                "ci95": [performance.interval.low, performance.interval.high],
                "returns": performance.returns,
                "lengths": performance.lengths,
            }
            for behaviour, performance in scores.items()
        }
    )


def table(scores: Scores, logged: Logged | None) -> Rows:
    """Rows for the console, several per behaviour; ``logged``: what to compare with, if anything is."""
    rows = []
    for behaviour, performance in scores.items():
        own = [
            ("episodes", f"{len(performance.returns)}"),
            ("mean return", performance.interval.text),
            ("min and max", f"{min(performance.returns):.1f} and {max(performance.returns):.1f}"),
            ("length", f"{float(np.mean(performance.lengths)):.1f} steps"),
        ]
        if logged is not None and (verdict := logged.verdict(behaviour, performance)):
            own.append(("logged", verdict))
        who = "" if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}: "
        rows += [(f"{who}{name}", value) for name, value in own]
    return rows


@dataclass(frozen=True, kw_only=True)
class Logged:
    """The evaluation that a run logged while training, at the step of a checkpoint.

    episodes: of each evaluation while training
    num_envs: environments that are played on now
    """

    run: RunDir
    step: int
    episodes: int
    num_envs: int

    def mean(self, behaviour: str) -> float | None:
        """The logged ``eval/return_mean``; None if there is none. Raises StorageError for a damaged file."""
        if not self.run.metrics_csv.exists():
            return None
        metrics = read_metrics(self.run.metrics_csv)
        level = "" if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}/"
        found = dict(zip(metrics["step"], metrics.get(f"{level}eval/return_mean", []), strict=False))
        mean = found.get(float(self.step), math.nan)
        return None if math.isnan(mean) else mean

    def verdict(self, behaviour: str, performance: Performance) -> str | None:
        """Whether it was reproduced; None where nothing of the kind was logged."""
        logged = self.mean(behaviour)
        if logged is None or len(performance.returns) != self.episodes:
            return None
        if self.num_envs > 1:
            return f"{logged:.1f}, of other episodes: each of {self.num_envs} environments has its own seeds"
        mean = performance.interval.mean
        if mean == logged:
            return "the same, to the last bit"
        return (
            f"{logged:.6g}, which differs by {mean - logged:+.3g}: "
            "another seed, configuration, device or version plays differently"
        )
