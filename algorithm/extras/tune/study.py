"""The loop of a study: trials up to a limit, then the best one against the unchanged section."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from algorithm.core.errors import UsageError
from algorithm.core.wording import short
from algorithm.extras.tune.optimiser import Optimiser
from algorithm.extras.tune.records import SIDES, TrialRecord, best_of, shown
from algorithm.extras.tune.trial import OUTPUT, RunPlan, StudyRun, Trial, run_name, score
from algorithm.run.signals import StopRequest

_TICK_S = 0.2
_ALIKE = 3  # equal failures in a row that end a study
_OF_VALUES = ("refused", "exit code 5")
"""Beginnings of the reasons of failures that are due to a trial's values, such as divergence."""

_FRESH = 10_000  # added to the seed of the study for the first of the fresh seeds


def _stop(running: Collection[Trial | StudyRun]) -> None:
    """Stop all at the same time, and wait until they have saved."""
    for each in running:
        each.request_stop()
    for each in running:
        each.stop()


class Study:
    """The loop of a study.

    seed:    of the study; a trial's runs have this seed and the following ones
    refused: (values) -> why their configuration is invalid; empty if it is valid
    inform:  called with lines for the console
    """

    def __init__(
        self,
        plan: RunPlan,
        optimiser: Optimiser,
        seed: int,
        *,
        refused: Callable[[Mapping[str, object]], str],
        inform: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._optimiser = optimiser
        self._seed = seed
        self._refused = refused
        self._inform = inform
        self._active: list[Trial] = []

    def search(self, stop: StopRequest, ended: Callable[[], None]) -> None:
        """Run trials until there are enough, or ``stop`` is set.

        ended: called after each trial
        Raises UsageError if trials fail one after the other.
        """
        waiting = [trial for trial in self._optimiser.trials if trial.state == "running"]
        try:
            while not stop and (self._fill(waiting) or self._active):
                over = [trial for trial in self._active if trial.advance()]
                for trial in over:
                    self._active.remove(trial)
                    self._inform(self._line(self._optimiser.trials[trial.number - 1]))
                    ended()
                    self._check()
                if not over:
                    time.sleep(_TICK_S)
        finally:
            _stop(self._active)

    def compare(self, stop: StopRequest, best: TrialRecord) -> dict[str, list[float | None]]:
        """Train the best trial's values and the unchanged section on fresh seeds.

        Returns the values of each side by seed, None for a run that has failed.
        """
        sides = {"tuned": (f"tuned_{best.number:03d}", best.values), "default": ("default", {})}
        first = (self._seed + _FRESH) % 2**31
        seeds, ended = range(self._plan.tune.final_seeds), dict[tuple[int, str], float | None]()
        runs = {
            (index, side): StudyRun(self._plan, run_name(name, index), values, first + index)
            for index in seeds
            for side, (name, values) in sides.items()
        }
        try:
            while not stop and len(ended) < len(runs):
                due = [key for key in runs if key not in ended][: self._plan.tune.jobs]
                over = [key for key in due if runs[key].advance() != "running"]
                ended |= {key: self._final(*key, runs[key]) for key in over}
                if not over:
                    time.sleep(_TICK_S)
        finally:
            _stop(runs.values())
        return {side: [ended.get((index, side)) for index in seeds] for side in SIDES}

    def _final(self, index: int, side: str, run: StudyRun) -> float | None:
        """Return the score of a finished run on a fresh seed, and print it; None for a failed run."""
        points = run.points()
        value = None if run.why or not points else score(points, self._plan.tune)
        text = run.why or "it has no value" if value is None else short(value)
        self._inform(f"{side}, fresh seed {index + 1}: {text}")
        return value

    def _fill(self, waiting: list[TrialRecord]) -> bool:
        """Start trials up to the number of jobs, ``waiting`` ones first; return whether any was started."""
        tune, begun = self._plan.tune, False
        while len(self._active) < tune.jobs and (waiting or len(self._optimiser.trials) < tune.trials):
            if waiting:
                self._inform(f"trial {waiting[0].number} continues")
            record = waiting.pop(0) if waiting else self._optimiser.ask()
            if record is None:
                break
            begun = True
            why = self._refused(record.values)
            if not why:
                self._active.append(Trial(record, self._plan, self._optimiser, self._seed))
                continue
            self._optimiser.end(record.number, "failed", why=why)
            self._inform(self._line(self._optimiser.trials[record.number - 1]))
            self._check()
        return begun

    def _check(self) -> None:
        """Raise UsageError if the last trials have failed for the same reason, not due to their values."""
        ended = [trial for trial in self._optimiser.trials if trial.state != "running"]
        last = [trial.why for trial in ended[-_ALIKE:]]
        if len(last) == _ALIKE and len(set(last)) == 1 and last[0] and not last[0].startswith(_OF_VALUES):
            raise UsageError(
                f"{_ALIKE} trials in a row have failed in the same way",
                where=self._plan.study.shown(self._plan.study.path / OUTPUT),
                why=last[0],
                fix="fix that and resume the study, or start another one",
            )

    def _line(self, record: TrialRecord) -> str:
        """Return the line about a trial that has ended."""
        tune = self._plan.tune
        best = best_of(self._optimiser.trials, tune.direction)
        how = {"complete": "", "pruned": "pruned at ", "failed": f"failed, {record.why}", "running": ""}
        value = short(record.score) if math.isfinite(record.score) else ""
        drawn = ", ".join(f"{path.rpartition('.')[2]} {shown(v)}" for path, v in record.values.items())
        so_far = f" (best {short(best.score)}, trial {best.number})" if best else ""
        return f"trial {record.number} of {tune.trials}: {how[record.state]}{value}{so_far} · {drawn}"
