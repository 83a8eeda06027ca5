"""The loop of a study: trials up to a limit, then the best one against the unchanged section."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from statistics import fmean
from threading import Lock

from algorithm.core.wording import short
from algorithm.extras.tune.optimiser import Optimiser
from algorithm.extras.tune.records import SIDES, TrialRecord, best_of, shown
from algorithm.extras.tune.trial import RunPlan, StudyRun, nominal, run_name
from algorithm.run.signals import StopRequest

_TICK_S = 0.2
_FRESH = 10_000  # added to the seed of the study for the first of the fresh seeds


class Study:
    """The loop of a study, in a thread for each of its jobs.

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
        self._lock = Lock()  # of the optimiser and the console
        self._failed = False  # a thread has raised

    def search(self, stop: StopRequest, ended: Callable[[], None]) -> None:
        """Run trials until there are enough, or ``stop`` is set. ended: called after each trial."""
        waiting = [trial for trial in self._optimiser.trials if trial.state == "running"]

        def work(_: int) -> None:
            while not self._must_stop(stop) and (record := self._next(waiting)):
                if self._try(record, stop):
                    with self._lock:
                        self._inform(self._line(self._optimiser.trials[record.number - 1]))
                        ended()

        self._side_by_side(work, range(self._plan.tune.jobs))

    def compare(self, stop: StopRequest, best: TrialRecord) -> dict[str, list[float | None]]:
        """Train the best trial's values and the unchanged section on fresh seeds.

        Returns the values of each side by seed, None for a run that has failed.
        """
        names = {"tuned": (f"tuned_{best.number:03d}", best.values), "default": ("default", {})}
        final: dict[str, list[float | None]] = {side: [None] * self._plan.tune.final_seeds for side in SIDES}

        def work(number: int) -> None:
            index, side = number // 2, SIDES[number % 2]
            name, values = names[side]
            seed = (self._seed + _FRESH) % 2**31 + index
            run = StudyRun(self._plan, run_name(name, index), values, seed)
            if self._must_stop(stop) or run.play(lambda: self._must_stop(stop), _never) == "stopped":
                return
            points = run.points()
            final[side][index] = None if run.why or not points else points[-1][1]
            value = run.why or (short(points[-1][1]) if points else "it has no value")
            with self._lock:
                self._inform(f"{side}, fresh seed {index + 1}: {value}")

        self._side_by_side(work, range(2 * self._plan.tune.final_seeds))
        return final

    def _side_by_side(self, work: Callable[[int], None], numbers: range) -> None:
        """Call a function with each number, in as many threads as there are jobs; raise the first error."""

        def guarded(number: int) -> None:
            try:
                work(number)
            except BaseException:
                self._failed = True  # the others save and end
                raise

        with ThreadPoolExecutor(self._plan.tune.jobs) as threads:
            calls = [threads.submit(guarded, number) for number in numbers]
            while wait(calls, _TICK_S).not_done:
                pass  # a wait without a time limit holds off Ctrl-C on Windows
            for call in calls:
                call.result()

    def _must_stop(self, stop: StopRequest) -> bool:
        return bool(stop) or self._failed

    def _next(self, waiting: list[TrialRecord]) -> TrialRecord | None:
        """Return the next trial, ``waiting`` ones first; None if there are enough."""
        with self._lock:
            if waiting:
                self._inform(f"trial {waiting[0].number} continues")
                return waiting.pop(0)
            return self._optimiser.ask() if len(self._optimiser.trials) < self._plan.tune.trials else None

    def _try(self, record: TrialRecord, stop: StopRequest) -> bool:
        """Run a trial's seeds one after the other, and store its end; return False after a stop."""
        why, scores = self._refused(record.values), list[float]()
        hopeless = self._judge(record.number) if self._plan.tune.prunes else _never
        for index in range(0 if why else self._plan.tune.seeds):
            name = run_name(f"trial_{record.number:03d}", index)
            run = StudyRun(self._plan, name, record.values, self._seed + index)
            end, points = run.play(lambda: self._must_stop(stop), hopeless), run.points()
            if end == "stopped":
                return False
            if end == "pruned":
                with self._lock:
                    self._optimiser.end(record.number, "pruned")
                return True
            why = run.why or ("" if points else f"no row of its metrics has {self._plan.tune.metric}")
            if why:
                break
            scores.append(points[-1][1])
        with self._lock:
            if why:
                self._optimiser.end(record.number, "failed", why=why)
            else:
                self._optimiser.end(record.number, "complete", score=fmean(scores))
        return True

    def _judge(self, number: int) -> Callable[[Sequence[tuple[int, float]]], bool]:
        """Return a function that reports new points of a trial, and returns whether the pruner would end it.

        Each point is judged by itself, however late it is read, so that a resumed study decides the same.
        """
        judged = 0

        def hopeless(points: Sequence[tuple[int, float]]) -> bool:
            nonlocal judged
            for step, value in points[judged:]:
                if step >= self._plan.length > 0:
                    return False
                judged += 1
                with self._lock:
                    self._optimiser.report(number, nominal(step, self._plan.every), value)
                    if self._optimiser.is_hopeless(number):
                        return True
            return False

        return hopeless

    def _line(self, record: TrialRecord) -> str:
        """Return the line about a trial that has ended."""
        tune = self._plan.tune
        best = best_of(self._optimiser.trials, tune.direction)
        how = {"complete": "", "pruned": "pruned at ", "failed": f"failed, {record.why}", "running": ""}
        value = short(record.score) if math.isfinite(record.score) else ""
        drawn = ", ".join(f"{path.rpartition('.')[2]} {shown(v)}" for path, v in record.values.items())
        so_far = f" (best {short(best.score)}, trial {best.number})" if best else ""
        return f"trial {record.number} of {tune.trials}: {how[record.state]}{value}{so_far} · {drawn}"


def _never(points: Sequence[tuple[int, float]]) -> bool:
    """Return False: a run goes on to its end."""
    return False
