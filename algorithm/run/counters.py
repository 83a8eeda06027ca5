"""Counts of a training and its limits: steps, iterations, episodes, evaluations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from algorithm.config.schema import BaseConfig
from algorithm.core.data import Episode, State
from algorithm.core.wording import counted
from algorithm.run.evaluation.evaluate import Performance
from algorithm.run.evaluation.statistics import mean_infos
from algorithm.store.follow_up_commands import PAST_PATIENCE, PAST_SUCCESS

SHOWN_RETURNS = 20

MAX_EPISODES = 2**14
"""Maximum number of episodes of a summary; the oldest are dropped beyond twice as many."""

EndedBy = Literal[
    "signal",
    "callback",
    "stop_at_return",
    "stop_without_improvement",
    "max_step",
    "max_iter",
    "evaluations",
]

Ends = Mapping[EndedBy, tuple[str, Sequence[str]]]
"""Cause of the end of a run -> its description, and the flags with which the run can be resumed."""


@dataclass(frozen=True)
class EvaluationOutcome:
    """Performance of each behaviour in an evaluation at a step."""

    step: int
    performances: Mapping[str, Performance]

    @property
    def overall(self) -> Performance:
        """Performance of all behaviours: episode k, and each info, is the mean over those of behaviours."""
        done = self.performances.values()
        returns = map(fmean, zip(*(each.returns for each in done), strict=True))
        lengths = map(fmean, zip(*(each.lengths for each in done), strict=True))
        infos = mean_infos(each.infos for each in done)
        return Performance(tuple(returns), tuple(lengths), infos)

    @property
    def mean(self) -> float:
        """Mean return over episodes and behaviours."""
        return self.overall.interval.mean

    @classmethod
    def of(cls, written: Mapping[str, Any] | None) -> EvaluationOutcome | None:
        """Parse a result of ``asdict``; None for None."""
        if written is None:
            return None
        performances = {
            name: Performance(tuple(each["returns"]), tuple(each["lengths"]), each.get("infos", {}))
            for name, each in written["performances"].items()
        }
        return cls(written["step"], performances)


class Counters:
    """Counts of one training; ``behaviours`` are its agents' names."""

    def __init__(self, behaviours: Iterable[str]) -> None:
        self.step = self.iteration = self.evaluations = 0
        self.summarised = 0  # step of the last row of metrics
        self.finished: dict[str, int] = dict.fromkeys(behaviours, 0)  # episodes
        self.since_summary: dict[str, list[Episode]] = {name: [] for name in self.finished}
        self.returns: deque[float] = deque(maxlen=SHOWN_RETURNS)
        self.last_eval: EvaluationOutcome | None = None
        self.best_eval: EvaluationOutcome | None = None
        self.logged: dict[str, list[float]] = {}  # by callbacks since the last row: sum and count
        self.no_better = 0  # evaluations since the best one
        self.judged = -1  # step of the last evaluation that may end the run
        self.owes_evaluation = False  # an evaluation was due at this step, and a signal came before its end

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count episodes that have ended."""
        for episode in episodes:
            kept = self.since_summary[episode.behaviour]
            kept.append(episode)
            if len(kept) > 2 * MAX_EPISODES:
                del kept[:-MAX_EPISODES]
            self.returns.append(episode.total)
            self.finished[episode.behaviour] += 1

    def log(self, name: str, value: float) -> None:
        """Add a value of a callback's metric; the next row has the mean. NaN and infinity are left out."""
        if not math.isfinite(value):
            return
        total, count = self.logged.get(name, (0.0, 0.0))
        self.logged[name] = [total + value, count + 1]

    def take_logged(self) -> dict[str, float]:
        """Return the means of the values that callbacks have logged since the last call."""
        logged, self.logged = self.logged, {}
        return {name: total / count for name, (total, count) in logged.items()}

    @property
    def episodes(self) -> int:
        """Finished episodes of all behaviours."""
        return sum(self.finished.values())

    def record_evaluation(self, performances: Mapping[str, Performance], *, on_way: bool = True) -> bool:
        """Record an evaluation at this step; return whether it is the best so far, over all behaviours.

        on_way: false for the evaluation after the end, which a longer run would not have: it ends nothing
        """
        self.owes_evaluation = False
        self.last_eval = EvaluationOutcome(self.step, performances)
        is_best = self.best_eval is None or self.last_eval.mean > self.best_eval.mean
        if on_way:
            self.evaluations += 1
            self.judged = self.step
        self.no_better = 0 if is_best else self.no_better + on_way
        if is_best:
            self.best_eval = self.last_eval
        return is_best

    @property
    def is_evaluated(self) -> bool:
        """Whether there was an evaluation at the current step."""
        return self.last_eval is not None and self.last_eval.step == self.step

    def has_reached(self, limit: float | None) -> bool:
        """Return whether an evaluation at this step has a mean return ≥ ``limit`` for every behaviour."""
        if limit is None or self.last_eval is None or self.judged != self.step:
            return False
        return all(done.interval.mean >= limit for done in self.last_eval.performances.values())

    def ends(self, base: BaseConfig, evaluations: int | None) -> Ends:
        """Return why the training ends here, with flags to resume it; empty if it goes on.

        base: keys with the limits of the configuration
        evaluations: number of evaluations of the whole run after which it pauses; None for no limit
        """
        reached: dict[EndedBy, tuple[str, Sequence[str]]] = {}
        goal = base.stop_at_return
        if isinstance(goal, float) and self.has_reached(goal):
            text = f"an evaluation reached {goal:,g} (base_config.stop_at_return)"
            reached["stop_at_return"] = text, PAST_SUCCESS
        if 0 < base.stop_without_improvement <= self.no_better:
            text = f"{counted(self.no_better, 'evaluation')} in a row without improvement"
            reached["stop_without_improvement"] = (
                f"{text} (base_config.stop_without_improvement)",
                PAST_PATIENCE,
            )
        counts: Mapping[EndedBy, tuple[int, str, int, str]] = {
            "max_step": (self.step, "step", base.max_step, "base_config.max_step"),
            "max_iter": (self.iteration, "iteration", base.max_iter, "base_config.max_iter"),
            "evaluations": (self.evaluations, "evaluation", evaluations or -1, "--evaluations"),
        }
        for by, (done, what, limit, key) in counts.items():
            if 0 < limit <= done:
                text = f"it reached {counted(done, what)} ({key} is {limit:,})"
                reached[by] = text, [f"--{by}={2 * done}"]
        return reached

    def state(self) -> State:
        """Return all counts, as JSON."""
        return State(
            meta={
                "step": self.step,
                "iteration": self.iteration,
                "finished": self.finished,
                "evaluations": self.evaluations,
                "summarised": self.summarised,
                "since_summary": {
                    name: [[e.agent, e.total, e.length, dict(e.infos)] for e in episodes]
                    for name, episodes in self.since_summary.items()
                },
                "returns": list(self.returns),
                "last_eval": self.last_eval and asdict(self.last_eval),
                "best_eval": self.best_eval and asdict(self.best_eval),
                "judged": self.judged,
                "owes_evaluation": self.owes_evaluation,
                "no_better": self.no_better,
                "logged": self.logged,
            }
        )

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`."""
        meta = state.meta
        self.step, self.iteration = int(meta["step"]), int(meta["iteration"])
        self.evaluations, self.summarised = int(meta["evaluations"]), int(meta["summarised"])
        self.finished |= meta["finished"]
        for name, episodes in meta["since_summary"].items():
            self.since_summary[name] = [Episode(name, *each) for each in episodes]
        self.returns.clear()
        self.returns.extend(meta["returns"])
        self.last_eval = EvaluationOutcome.of(meta["last_eval"])
        self.best_eval = EvaluationOutcome.of(meta["best_eval"])
        self.judged, self.owes_evaluation = int(meta["judged"]), meta["owes_evaluation"]
        self.no_better = meta.get("no_better", 0)
        self.logged = dict(meta.get("logged", {}))
