"""The loop of a run: act, learn, evaluate, save, until a limit or a signal ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from algorithm.agents.base import Agent
from algorithm.agents.schedules import Every
from algorithm.config.schema import Config
from algorithm.core.data import Episode
from algorithm.core.errors import EditorStoppedError, EnvError, UserError
from algorithm.keys.checkpoints import EARLY, USUAL
from algorithm.run.callbacks import CallbackError, Callbacks
from algorithm.run.checkpointer import Checkpointer
from algorithm.run.counters import Ends
from algorithm.run.evaluation.evaluate import Evaluator
from algorithm.run.reporter import Reporter
from algorithm.run.runtime import LocalRuntime, Runtime
from algorithm.run.signals import StopRequest
from algorithm.run.state import TrainState
from algorithm.store.logs.metrics import MetricsLogger


@dataclass(frozen=True)
class Outcome:
    """A training that has ended. ends: its causes, at least one; the first one is shown."""

    training: TrainState
    ends: Ends

    @property
    def complete(self) -> bool:
        """Whether it reached a limit or success; false after a signal, a callback or a pause."""
        return next(iter(self.ends)) not in ("signal", "callback", "evaluations")


@dataclass(frozen=True, kw_only=True)
class BuiltTraining:
    """The objects of a training that is about to begin.

    training:  agents, collector and counts, new or restored
    runtime:   begins with the first step, ends with the loop
    evaluator: None if there is no second environment
    saver:     writes the checkpoints
    callbacks: the user's code
    render_modes: of the evaluations' environment
    """

    training: TrainState
    runtime: Runtime
    evaluator: Evaluator | None
    saver: Checkpointer
    metrics: MetricsLogger
    callbacks: Callbacks
    render_modes: Sequence[str]


class Trainer:
    """The loop of a training: steps, updates, summaries, evaluations and checkpoints.

    config:      limits and intervals
    stop:        becomes true at the signal to end the run
    evaluations: number of evaluations of the whole run after which it ends; None for no limit
    """

    def __init__(
        self, built: BuiltTraining, config: Config, stop: StopRequest, evaluations: int | None = None
    ) -> None:
        assert config.base_config.stop_at_return != "auto", "it has not been decided"
        training, self._config = built.training, config
        self._training, self._runtime = training, built.runtime
        self._agents, self._counters, self._watch = training.agents, training.counters, training.watch
        self._console = training.faults.console
        self._evaluator, self._saver = built.evaluator, built.saver
        self._reporter = Reporter(training, config, self._console, built.metrics, built.callbacks.until)
        self._stop, self._callbacks, self._evaluations = stop, built.callbacks, evaluations
        self._saved_at, step, run = -1, training.counters.step, config.run
        timed = config.base_config.control_hz is not None and isinstance(built.runtime, LocalRuntime)
        self._timed, self._episode_ended = timed, True
        self._summary = Every(run.write_summary_per_step, step)
        self._early_summary = Every(run.write_summary_per_step, step, shortest=100)
        self._save = Every(run.save_model_per_step, step)
        per_step = config.eval_config.per_step
        self._evaluation = Every(per_step or USUAL, step, shortest=None if per_step else EARLY)
        for agent in self._agents.values():
            agent.stop = lambda: bool(stop) or training.collector.must_pause()

    def run(self, before_end: Callable[[EnvError], None]) -> Outcome:
        """Train to the end. If an environment or a callback fails, the training is saved first.

        before_end: called after saving, if an environment hangs in this process, which is about to end
        """

        def save_before_end(error: EnvError) -> None:
            self._save_cut_off(error)
            before_end(error)

        self._training.faults.attach(save_before_end)
        try:
            self._begin()
            while not (self._stop or self._ends()):
                try:
                    self._step()
                except EditorStoppedError as end:
                    self._stop.set(end.what, interrupted=True)
                if self._episode_ended or not self._timed:  # it would make the next timed action late
                    self._report()
                self._watch.lap("other")
            ends = self._ends()
            self._finish()
            if self._stop:
                ends = {"callback" if self._stop.signal is None else "signal": (self._stop.reason, ())}
            outcome = Outcome(self._training, ends)
            self._runtime.end(lambda: bool(self._stop) or not outcome.complete)
        except (EnvError, CallbackError) as error:
            self._save_cut_off(error)
            raise
        return outcome

    def _report(self) -> None:
        """Log, evaluate, save and show what is due after a step."""
        step = self._counters.step
        if self._early_summary.due(step):
            self._reporter.summary(whole=self._summary.due(step))
        if self._evaluation.due(step):
            self._evaluate()
        if self._save.due(step) and not self._ends() and self._saver.save():
            self._saved_at = step
            self._callbacks.call("on_checkpoint")
        if self._console.due():
            self._reporter.progress()

    def _begin(self) -> None:
        """Pretrain, evaluate and save as due before the first step, or on resume if a signal cut that off."""
        if self._evaluator is not None:
            self._evaluator.renew_parameters(self._training.curricula.lessons)
        self._callbacks.call("on_start")
        self._watch.skip()
        self._pretrain()
        self._runtime.begin()  # no agent may act by networks that are about to change
        for name, agent in self._agents.items():
            if agent.owes_updates:
                self._learn(name, agent)
        if self._counters.owes_evaluation:
            self._evaluate()
        elif self._counters.is_evaluated:
            self._save_if_best()  # a kill may have come between the checkpoint and best.json

    def _finish(self) -> None:
        """End the run: evaluate, unless it was stopped, save, and call the last callbacks.

        A resumed run has the evaluation, because it is made before the save.
        """
        if not self._stop and not self._counters.is_evaluated:
            self._evaluate(on_way=False)
        if self._stop:
            self._console.message(self._stop.text)
        self._saver.save_finally()
        if self._saved_at != self._counters.step:
            self._callbacks.call("on_checkpoint")
        self._watch.lap("other")
        self._callbacks.call("on_end")
        self._reporter.flush()
        self._reporter.progress()  # what stays on the screen is the end

    def _pretrain(self) -> None:
        """Make the updates that are due before the first step, and evaluate their result."""
        if self._counters.step:
            return
        results = {name: agent.pretrain(lambda: bool(self._stop)) for name, agent in self._agents.items()}
        for name, values in results.items():
            if values:
                self._reporter.pretrained(name, values)
        self._watch.lap("update")
        if any(results.values()):
            self._evaluate()

    def _save_cut_off(self, error: EnvError | CallbackError) -> None:
        """Save after a failure of an environment or a callback, in a step or an evaluation.

        Nothing is saved at step 0. Open episodes end as truncated.
        """
        if not self._counters.step:
            return
        what = "an environment" if isinstance(error, EnvError) else "a callback"
        try:
            self._saver.save_finally()
        except UserError as failed:
            self._console.warn(failed.line)
        else:
            self._console.message(
                f"{what} ended the run; it can be resumed from step {self._counters.step:,}"
            )

    def _ends(self) -> Ends:
        """Return the limits that the training has reached."""
        return self._counters.ends(self._config.base_config, self._evaluations)

    def _step(self) -> None:
        """Step all environments once, learn, and count what has ended."""
        collector = self._training.collector
        try:
            episodes = collector.step()
        finally:  # a reset that fails comes after its steps
            self._counters.step = collector.steps
        updates = self._training.updates
        for name, agent in self._agents.items():
            self._learn(name, agent)
        self._count(episodes)
        for episode in episodes:
            self._callbacks.call("on_episode", episode)
        if self._training.updates != updates:
            self._callbacks.call("on_rollout_end")
        self._callbacks.call("on_step")

    def _count(self, episodes: list[Episode]) -> None:
        """Count the episodes that a step has ended, and end the lessons and the iteration that end by it."""
        self._counters.add(episodes)
        self._episode_ended = bool(episodes)
        self._end_lessons(episodes)
        if self._training.iteration.ends(episodes):
            self._counters.iteration += 1
            if self._config.base_config.reset_on_iteration:
                self._training.collector.truncate()

    def _learn(self, name: str, agent: Agent) -> None:
        """Make the updates that an agent owes."""
        steps = self._training.collector.behaviour_steps[name]
        agent.learn(steps, self._watch, run_step=self._counters.step)

    def _end_lessons(self, episodes: Sequence[Episode]) -> None:
        """Begin the next lessons of parameters whose lesson these episodes, or the step, have ended."""
        training, step, most = self._training, self._counters.step, self._config.base_config.max_step
        curricula, collector = training.curricula, training.collector
        curricula.add(episodes)
        changes = curricula.advance(step / most if most > 0 else 0.0)
        if not changes:
            return
        for change in changes:
            self._console.message(
                f"lesson of {change.parameter}: {change.before} → {change.after} at step {step:,}"
            )
        reset = any(change.reset for change in changes)
        if self._evaluator is not None:
            self._evaluator.renew_parameters(curricula.lessons)
        if not collector.renew_parameters(curricula.lessons, reset=reset):
            curricula.pass_over(collector.agents)

    def _evaluate(self, *, on_way: bool = True) -> None:
        """Evaluate, unless there is no environment for that, and log the result. on_way: see Counters."""
        if self._evaluator is None:
            return
        self._watch.lap("other")
        self._counters.owes_evaluation = on_way  # also in a checkpoint that is written meanwhile
        with self._training.not_counted():
            performances = self._evaluator.evaluate(
                self._agents, self._counters.step, lambda: bool(self._stop)
            )
        self._watch.skip()
        if performances is None:
            return
        is_best = self._counters.record_evaluation(performances, on_way=on_way)
        for name, performance in performances.items():
            shown = self._reporter.evaluation(name, performance, is_best=is_best)
            self._callbacks.call("on_evaluation", shown)
        self._save_if_best()

    def _save_if_best(self) -> None:
        """Save the networks if the last evaluation is the best so far."""
        assert self._counters.last_eval is not None, "there was an evaluation"
        self._saver.save_best(self._counters.last_eval.mean)
