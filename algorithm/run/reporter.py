"""Log and display of a training: rows of metrics, evaluations, the panel."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np
import psutil

from algorithm.agents.divergence import diverged
from algorithm.agents.metrics import READOUTS
from algorithm.agents.registry import family
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.console import Console, Evaluation, Progress
from algorithm.core.data import Episode
from algorithm.core.extras import extra
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.timing import Rate
from algorithm.core.wording import Rows, info_rows
from algorithm.run.counters import EvaluationOutcome
from algorithm.run.evaluation.evaluate import Performance
from algorithm.run.evaluation.statistics import mean_infos
from algorithm.run.state import Start, TrainState, misfit_errors
from algorithm.store.logs.metrics import MetricsLogger
from algorithm.store.logs.registry import CALLBACKS, EVAL_INFOS, LESSONS, ROLLOUT_INFOS
from algorithm.store.logs.upload import Upload
from algorithm.store.rundir import RunDir


class Reporter:
    """Log and panel of a training.

    until: last step that the panel shows, instead of the configuration's
    """

    def __init__(
        self,
        training: TrainState,
        config: Config,
        console: Console,
        metrics: MetricsLogger,
        until: int | None = None,
    ) -> None:
        self._until = until
        self._training = training
        self._base = config.base_config
        self._console = console
        self._metrics = metrics
        self._latest_metrics: dict[str, float] = {}
        self._logged: dict[str, float] = {}  # by callbacks, as the last row of each has it
        self._process = psutil.Process()
        self._compiling = -1.0  # seconds of it when the rates began
        self._started = time.monotonic()

    def flush(self) -> None:
        """Write the last row: callbacks' metrics and everything since the last summary."""
        if self._training.counters.step > self._training.counters.summarised:
            self.summary(whole=False)
        self._log_callbacks()
        self._metrics.flush()

    def _log_callbacks(self) -> None:
        """Write the values that callbacks have logged to the row of this step."""
        counters = self._training.counters
        if counters.logged and not self._metrics.is_closed(counters.step):
            logged = counters.take_logged()
            self._metrics.write(
                counters.step, {f"{CALLBACKS}{name}": value for name, value in logged.items()}
            )
            self._logged |= logged

    def pretrained(self, behaviour: str, values: Mapping[str, float]) -> None:
        """Log the metrics of updates before the first step."""
        self._metrics.write(0, values, behaviour=behaviour)

    def evaluation(self, behaviour: str, performance: Performance, *, is_best: bool) -> Evaluation:
        """Log and show the evaluation of a behaviour; return it in the form that the console shows."""
        interval, step = performance.interval, self._training.counters.step
        values = {
            "eval/return_mean": interval.mean,
            "eval/return_ci95": interval.half_width,
            "eval/length": float(np.mean(performance.lengths)),
            "time/cpu_seconds": self._training.cpu_seconds,
            **{f"{EVAL_INFOS}{key}": value for key, value in performance.infos.items()},
        }
        self._metrics.write(step, values, behaviour=behaviour)
        shown = _shown(step, performance, behaviour)
        self._console.evaluation(shown, best=is_best)
        return shown

    def summary(self, *, whole: bool) -> None:
        """Log a row of metrics for each behaviour; after a whole interval, warn of problems in them.

        whole: false before an interval of ``write_summary_per_step`` is over; its episodes then count for
               the next row as well, so that an early row changes no later one
        Raises NumericalError for a loss that is not finite.
        """
        training, watch = self._training, self._training.watch
        step, since_summary = training.counters.step, training.counters.since_summary
        self._log_callbacks()
        training.counters.summarised = step
        seconds = max(watch.total, 1e-9)
        shared = watch.shares()
        shared["time/env_steps_per_s"] = step / seconds
        shared["time/updates_per_s"] = training.updates / seconds
        shared |= training.faults.metrics | training.collector.metrics()
        shared |= {f"{LESSONS}{name}": float(number) for name, number in training.curricula.numbers.items()}
        with contextlib.suppress(OSError):  # no descriptor is left to ask with
            shared["sys/rss_mb"] = self._process.memory_info().rss / 2**20
        for name, agent in training.agents.items():
            values = agent.metrics(training.collector.behaviour_steps[name])
            _refuse_non_finite(values, step)
            values |= _episode_metrics(since_summary[name]) | shared
            self._metrics.write(step, values, behaviour=name)
            self._latest_metrics = self._latest_metrics | values
            if not whole:
                continue
            since_summary[name] = []
            for line in training.health[name].update(step, values):
                self._console.warn(line)

    def progress(self) -> None:
        """Show the state of the training."""
        training, base = self._training, self._base
        counters, updates, watch = training.counters, training.updates, training.watch
        max_step = self._until or (base.max_step if base.max_step > 0 else None)
        compiling = watch.seconds["compile"]
        if compiling != self._compiling:  # compiling takes long, and rates before it do not predict the rest
            self._compiling = compiling
            self._step_rate = Rate(clock=lambda: watch.total)
            self._update_rate = Rate(clock=lambda: watch.total)
        rate = self._step_rate.update(counters.step)
        left = (max_step - counters.step) / rate if max_step and rate > 0 else None
        progress = Progress(
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
            last_eval=_shown_overall(counters.last_eval),
            best_eval=_shown_overall(counters.best_eval),
            env_restarts=training.faults.env_restarts,
            lessons=training.curricula.lessons,
            metrics=self._latest_metrics,
            readouts=(*family(list(training.agents.values())[-1].config).readouts, *READOUTS),
            rows=(
                *self._infos(),
                *training.collector.rows(),
                *((name, f"{value:.6g}") for name, value in self._logged.items()),
            ),
        )
        self._console.progress(progress)

    def _infos(self) -> Rows:
        """Return a line on each number from the environment's infos, of evaluations and of training."""
        last, rollout = self._training.counters.last_eval, self._latest_metrics.items()
        infos = {k.removeprefix(ROLLOUT_INFOS): v for k, v in rollout if k.startswith(ROLLOUT_INFOS)}
        evaluated, trained = dict(info_rows(last.overall.infos if last else {})), dict(info_rows(infos))
        return [
            (
                name,
                ", ".join(
                    f"{texts[name]} in {where}"
                    for where, texts in (("evaluation", evaluated), ("training", trained))
                    if name in texts
                ),
            )
            for name in dict.fromkeys((*evaluated, *trained))
        ]


def _shown(step: int, performance: Performance, behaviour: str = DEFAULT_BEHAVIOUR) -> Evaluation:
    """Return a performance in the form that the console shows."""
    interval = performance.interval
    n = len(performance.returns)
    return Evaluation(step, interval.mean, interval.half_width, n, behaviour, performance.infos)


def _shown_overall(outcome: EvaluationOutcome | None) -> Evaluation | None:
    """Return the performance of all behaviours in the form that the console shows; None for None."""
    return _shown(outcome.step, outcome.overall) if outcome else None


def _episode_metrics(episodes: list[Episode]) -> dict[str, float]:
    """Return the metrics of finished training episodes; none without episodes."""
    if not episodes:
        return {}
    totals = np.array([episode.total for episode in episodes])
    return {
        "rollout/return_mean": float(totals.mean()),
        "rollout/return_min": float(totals.min()),
        "rollout/return_max": float(totals.max()),
        "rollout/return_std": float(totals.std()),
        "rollout/length": float(np.mean([episode.length for episode in episodes])),
        **{
            f"{ROLLOUT_INFOS}{key}": value
            for key, value in mean_infos(episode.infos for episode in episodes).items()
        },
    }


def _refuse_non_finite(values: Mapping[str, float], step: int) -> None:
    """Raise NumericalError if a loss is not finite."""
    bad = [f"{k} = {v}" for k, v in values.items() if k.startswith("loss/") and not math.isfinite(v)]
    if bad:
        raise diverged(", ".join(bad), step)


def open_metrics(
    loaded: LoadedConfig, run: RunDir, start: Start | None, console: Console, stack: ExitStack
) -> MetricsLogger:
    """Open the log of the run's metrics, with an upload to W&B if the configuration names a project.

    start: checkpoint to continue from; stack: closes the log
    Raises StorageError as :class:`~algorithm.store.logs.metrics.MetricsLogger`.
    """
    upload: Upload | None = None
    if loaded.config.wandb_config.project is not None:
        upload = extra("open_wandb")(loaded, run, console)
    with misfit_errors(start.saved.path if start else run.path):
        state = start.saved.state["metrics"] if start else None
        metrics = MetricsLogger(
            run.log, run.metrics_csv, run.metrics_jsonl, warn=console.warn, state=state, upload=upload
        )
    stack.callback(metrics.close)
    return metrics
