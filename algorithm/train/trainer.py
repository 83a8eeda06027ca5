"""The loop of a run: act, learn, evaluate, save, until a limit or a signal ends it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import psutil

from algorithm.agents.divergence import diverged
from algorithm.agents.registry import family
from algorithm.agents.roles import Episode
from algorithm.agents.schedules import Every
from algorithm.config.schema import Config
from algorithm.core.console import Console, Evaluation, Progress
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import Part
from algorithm.env.unity.player import EditorStoppedError
from algorithm.evaluation.evaluate import Performance
from algorithm.evaluation.evaluator import Evaluator
from algorithm.runs.logs.metrics import MetricsLogger, Rate
from algorithm.train.callbacks import Callbacks
from algorithm.train.checkpointer import Checkpointer
from algorithm.train.counters import Ends, Evaluations, mean_return, overall
from algorithm.train.profile import NoProfile, shares
from algorithm.train.signals import StopRequest
from algorithm.train.state import TrainState

_BY_EVALUATIONS = ("stop_at_return", "evaluations")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a run. Evaluations by behaviour; empty if a signal came before the first one."""

    steps: int
    updates: int
    ends: Ends  # what ended it; not empty, and the first one is told
    time: Mapping[Part, float]  # seconds of training by what they went into, without evaluation
    faults: Mapping[str, int]  # failures survived, by kind
    replay_ratio: float
    last_eval: Evaluations
    best_eval: Evaluations
    behaviours: Mapping[str, Mapping[str, int]]  # steps, episodes and updates of each

    @property
    def complete(self) -> bool:
        """True if a limit of the training ended it, or success; false for a signal, a callback, a pause."""
        return next(iter(self.ends)) not in ("signal", "callback", "evaluations")

    @property
    def seconds(self) -> float:
        """Seconds of training, without evaluation."""
        return sum(self.time.values())


class Trainer:
    """Owner of the loop and the clock.

    training:    agents, collector and counts, new or restored
    config:      limits and intervals
    evaluator:   None where there is no second environment
    saver:       writes the checkpoints
    stop:        becomes true at the signal to end the run
    callbacks:   a user's own code
    evaluations: number of them, of the run in all, after which it ends; None for no such end
    profile:     measures where the time goes
    """

    def __init__(
        self,
        training: TrainState,
        config: Config,
        *,
        evaluator: Evaluator | None,
        saver: Checkpointer,
        console: Console,
        metrics: MetricsLogger,
        stop: StopRequest,
        callbacks: Callbacks,
        evaluations: int | None = None,
        profile: NoProfile | None = None,
    ) -> None:
        assert config.base_config.stop_at_return != "auto", "it has not been decided"
        self._training = training
        self._agents = training.agents
        self._counters = training.counters
        self._watch = training.watch
        self._config = config
        self._evaluator = evaluator
        self._saver = saver
        self._console = console
        self._metrics = metrics
        self._stop = stop
        self._callbacks = callbacks
        self._evaluations = evaluations
        self._profile = profile or NoProfile()
        self._saved_at = -1
        self._latest_metrics: dict[str, float] = {}
        self._process = psutil.Process()
        self._compiling = -1.0  # seconds of it when the rates began
        self._started = time.monotonic()

    def train(self) -> Outcome:
        """Run until a limit, success or a signal; save, and evaluate unless a signal ended it."""
        counters, run = self._counters, self._config.run
        summary = Every(run.write_summary_per_step, counters.step)
        save = Every(run.save_model_per_step, counters.step)
        evaluation = Every(self._config.eval_config.per_step, counters.step)
        self._started = time.monotonic()
        self._callbacks.call("on_start")
        self._watch.skip()
        self._pretrain()
        owed = counters.owes_evaluation
        if owed:
            self._evaluate()
        elif counters.is_evaluated:
            self._save_if_best()  # a kill may have come between the checkpoint and best.json
        while not (self._stop or self._ends()):
            self._advance()
            if summary.due(counters.step):
                self._write_summary()
            if evaluation.due(counters.step):
                self._evaluate()
            if save.due(counters.step) and self._saver.save(self._metrics.state()):
                self._saved_at = counters.step
                self._callbacks.call("on_checkpoint")
            if self._console.due():
                self._console.progress(self._progress())
            self._watch.lap("other")
            self._profile.step(self._training.updates)
        # The checkpoint of this step lacks an evaluation that was owed, and that has ended the run.
        ends = self._ends()
        self._finish(lacks=owed and counters.is_evaluated and not ends.keys().isdisjoint(_BY_EVALUATIONS))
        if self._stop:
            ends = {"callback" if self._stop.signal is None else "signal": (self._stop.reason, ())}
        return self._outcome(ends)

    def _finish(self, *, lacks: bool) -> None:
        """Save, and evaluate unless a signal ended the run. lacks: this step's checkpoint is not whole."""
        if self._stop:
            self._console.message(self._stop.text)
        self._saver.save_finally(self._metrics.state(), anew=lacks)
        if self._saved_at != self._counters.step:
            self._callbacks.call("on_checkpoint")
        self._watch.lap("other")
        if not self._stop and not self._counters.is_evaluated:
            self._evaluate()
        self._metrics.flush()
        self._profile.finish(shares(self._watch.seconds))
        self._console.progress(self._progress())  # what stays on the screen is the end
        self._callbacks.call("on_end")

    def _pretrain(self) -> None:
        """Make the updates that are due before the first step, and see what has come of them."""
        if self._counters.step:
            return
        found = {name: agent.pretrain(lambda: bool(self._stop)) for name, agent in self._agents.items()}
        for name, values in found.items():
            if values:
                self._metrics.write(0, values, behaviour=name)
        self._watch.lap("update")
        if any(found.values()):
            self._evaluate()

    def save_cut_off(self) -> int:
        """Save where an environment has ended the run, in a step or an evaluation.

        Returns the step; nothing is saved at 0. Open episodes end where they are. Raises StorageError and
        NumericalError as every save.
        """
        if self._counters.step:
            self._saver.save_finally(self._metrics.state())
        return self._counters.step

    def _ends(self) -> Ends:
        return self._counters.ends(self._config.base_config, self._evaluations)

    def _advance(self) -> None:
        try:
            self._step()
        except EditorStoppedError as end:
            self._stop.set(end.what, interrupted=True)

    def _step(self) -> None:
        counters, collector = self._counters, self._training.collector
        try:
            episodes = collector.step()
        finally:  # a reset that fails comes after its steps
            counters.step = collector.steps
        for name, agent in self._agents.items():
            agent.learn(collector.behaviour_steps[name], self._watch, run_step=counters.step)
        counters.add(episodes)
        if self._training.iteration.ends(episodes):
            counters.iteration += 1
            if self._config.base_config.reset_on_iteration:
                collector.truncate()
        for episode in episodes:
            self._callbacks.call("on_episode", episode)
        self._callbacks.call("on_step")

    def _evaluate(self) -> None:
        if self._evaluator is None:
            return
        self._watch.lap("other")
        self._profile.interrupt()
        self._counters.owes_evaluation = True  # also for who saves while it goes on
        found = self._evaluator.evaluate(self._agents, self._counters.step, lambda: bool(self._stop))
        self._watch.skip()
        if found is None:
            return
        is_best = self._counters.evaluated(found)
        for name, performance in found.items():
            self._report(name, performance, is_best=is_best)
        self._save_if_best()

    def _save_if_best(self) -> None:
        self._saver.save_best(mean_return(self._counters.last_eval), self._metrics.state())

    def _report(self, behaviour: str, performance: Performance, *, is_best: bool) -> None:
        interval, step = performance.interval, self._counters.step
        values = {
            "eval/return_mean": interval.mean,
            "eval/return_ci95": interval.half_width,
            "eval/length": float(np.mean(performance.lengths)),
        }
        self._metrics.write(step, values, behaviour=behaviour)
        shown = _shown(step, performance, behaviour)
        self._console.evaluation(shown, best=is_best)
        self._callbacks.call("on_evaluation", shown)

    def _write_summary(self) -> None:
        shared = self._watch.shares() | self._rates() | self._training.faults.metrics
        shared |= self._training.collector.metrics()
        with contextlib.suppress(OSError):  # no descriptor is left to ask with
            shared["sys/rss_mb"] = self._process.memory_info().rss / 2**20
        step, since_summary = self._counters.step, self._counters.since_summary
        for name, agent in self._agents.items():
            values = agent.metrics(self._training.collector.behaviour_steps[name])
            _refuse_non_finite(values, step)
            episodes, since_summary[name] = since_summary[name], []
            values |= _episode_metrics(episodes) | shared
            self._metrics.write(step, values, behaviour=name)
            self._metrics.show(step, agent.pictures(), behaviour=name)
            self._latest_metrics = values
            for line in self._training.health[name].update(step, values):
                self._console.warn(line)

    def _rates(self) -> dict[str, float]:
        seconds = max(self._watch.total, 1e-9)
        return {
            "time/env_steps_per_s": self._counters.step / seconds,
            "time/updates_per_s": self._training.updates / seconds,
        }

    def _progress(self) -> Progress:
        counters, updates, base = self._counters, self._training.updates, self._config.base_config
        max_step = base.max_step if base.max_step > 0 else None
        compiling = self._watch.seconds["compile"]
        if compiling != self._compiling:  # it takes long, and what was before says nothing of the rest
            self._compiling = compiling
            self._step_rate, self._update_rate = (Rate(clock=lambda: self._watch.total) for _ in range(2))
        rate = self._step_rate.update(counters.step)
        left = (max_step - counters.step) / rate if max_step and rate > 0 else None
        return Progress(
            step=counters.step,
            max_step=max_step,
            iteration=counters.iteration,
            max_iter=base.max_iter if base.max_iter > 0 else None,
            updates=updates,
            episodes=counters.episodes,
            seconds=time.monotonic() - self._started,
            eta_s=left if left is not None and math.isfinite(left) else None,
            env_steps_per_s=rate,
            updates_per_s=self._update_rate.update(updates),
            returns=tuple(counters.returns),
            last_eval=_shown(*overall(counters.last_eval)) if counters.last_eval else None,
            best_eval=_shown(*overall(counters.best_eval)) if counters.best_eval else None,
            env_restarts=self._training.faults.env_restarts,
            metrics=self._latest_metrics,
            readouts=family(list(self._agents.values())[-1].config).readouts,
            rows=self._training.collector.rows(),
        )

    def _outcome(self, ends: Ends) -> Outcome:
        step = self._counters.step
        taken = self._training.collector.behaviour_steps
        ratios = [agent.update_ratio(taken[name]) for name, agent in self._agents.items()]
        return Outcome(
            steps=step,
            updates=self._training.updates,
            ends=ends,
            time=self._watch.seconds,
            faults=self._training.faults.counts,
            replay_ratio=float(np.mean(ratios)),
            last_eval=self._counters.last_eval,
            best_eval=self._counters.best_eval,
            behaviours={
                name: {
                    "steps": taken[name],
                    "episodes": self._counters.finished[name],
                    "updates": agent.updates,
                }
                for name, agent in self._agents.items()
            },
        )


def _shown(step: int, performance: Performance, behaviour: str = DEFAULT_BEHAVIOUR) -> Evaluation:
    interval = performance.interval
    return Evaluation(step, interval.mean, interval.half_width, len(performance.returns), behaviour)


def _episode_metrics(episodes: list[Episode]) -> dict[str, float]:
    if not episodes:
        return {}
    totals = np.array([episode.total for episode in episodes])
    return {
        "rollout/return_mean": float(totals.mean()),
        "rollout/return_min": float(totals.min()),
        "rollout/return_max": float(totals.max()),
        "rollout/return_std": float(totals.std()),
        "rollout/length": float(np.mean([episode.length for episode in episodes])),
    }


def _refuse_non_finite(values: Mapping[str, float], step: int) -> None:
    bad = [f"{k} = {v}" for k, v in values.items() if k.startswith("loss/") and not math.isfinite(v)]
    if bad:
        raise diverged(", ".join(bad), step)
