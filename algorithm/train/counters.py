"""Counts of a training: steps, iterations, episodes, evaluations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from algorithm.data import State
from algorithm.evaluation.evaluate import Performance
from algorithm.roles import Episode

SHOWN_RETURNS = 20

MAX_EPISODES = 2**14
"""Maximum number of episodes of a summary; of more than twice as many the last ones are kept."""

Evaluations = dict[str, tuple[int, Performance]]
"""Behaviour -> step and outcome of an evaluation."""


class Counters:
    """Counts of one training; ``behaviours`` are its agents' names."""

    def __init__(self, behaviours: Iterable[str]) -> None:
        self.step = self.iteration = self.episodes = self.evaluations = 0
        self.since_summary: dict[str, list[Episode]] = {name: [] for name in behaviours}
        self.returns: deque[float] = deque(maxlen=SHOWN_RETURNS)
        self.last_eval: Evaluations = {}
        self.best_eval: Evaluations = {}
        self.owes_evaluation = False  # one was due at this step, and a signal came before its end

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count episodes that have ended."""
        for episode in episodes:
            kept = self.since_summary[episode.behaviour]
            kept.append(episode)
            if len(kept) > 2 * MAX_EPISODES:
                del kept[:-MAX_EPISODES]
            self.returns.append(episode.total)
            self.episodes += 1

    def evaluated(self, behaviour: str, performance: Performance) -> bool:
        """Record an evaluation at this step; return whether it is the best so far."""
        self.last_eval[behaviour] = (self.step, performance)
        best = self.best_eval.get(behaviour)
        is_best = best is None or performance.interval.mean > best[1].interval.mean
        if is_best:
            self.best_eval[behaviour] = (self.step, performance)
        return is_best

    @property
    def is_evaluated(self) -> bool:
        """True if every behaviour was evaluated at this very step."""
        return bool(self.last_eval) and all(step == self.step for step, _ in self.last_eval.values())

    def reach(self, limit: float | None) -> bool:
        """Return whether every behaviour's mean return at this very step comes to ``limit``."""
        if limit is None or not self.is_evaluated:
            return False
        return all(done.interval.mean >= limit for _, done in self.last_eval.values())

    def state(self) -> State:
        """Return everything, as JSON."""
        return State(
            meta={
                "step": self.step,
                "iteration": self.iteration,
                "episodes": self.episodes,
                "evaluations": self.evaluations,
                "since_summary": {
                    name: [[e.agent, e.total, e.length] for e in episodes]
                    for name, episodes in self.since_summary.items()
                },
                "returns": list(self.returns),
                "last_eval": _written(self.last_eval),
                "best_eval": _written(self.best_eval),
                "owes_evaluation": self.owes_evaluation,
            }
        )

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        meta = state.meta
        self.step, self.iteration = int(meta["step"]), int(meta["iteration"])
        self.episodes, self.evaluations = int(meta["episodes"]), int(meta["evaluations"])
        for name, episodes in meta["since_summary"].items():
            self.since_summary[name] = [Episode(name, *each) for each in episodes]
        self.returns.clear()
        self.returns.extend(meta["returns"])
        self.last_eval, self.best_eval = _read(meta["last_eval"]), _read(meta["best_eval"])
        self.owes_evaluation = meta["owes_evaluation"]


def _written(evaluations: Evaluations) -> dict[str, object]:
    return {
        name: {"step": step, "returns": list(done.returns), "lengths": list(done.lengths)}
        for name, (step, done) in evaluations.items()
    }


def _read(written: Mapping[str, Any]) -> Evaluations:
    return {
        name: (each["step"], Performance(tuple(each["returns"]), tuple(each["lengths"])))
        for name, each in written.items()
    }
