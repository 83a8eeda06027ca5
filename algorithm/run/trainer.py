"""The loop of a run: act, learn, evaluate, save, until a limit or a signal ends it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from algorithm.config.schema import Config
from algorithm.env.base import VecEnv
from algorithm.run.agent import Agent, diverged
from algorithm.run.console import Console, Evaluation, Progress
from algorithm.run.evaluate import Performance, Visitor, evaluate
from algorithm.run.faults import Faults
from algorithm.run.keeper import Keeper
from algorithm.run.metrics import MetricsLogger, Rate
from algorithm.run.names import behaviour_level
from algorithm.run.pace import Every
from algorithm.run.rollout import Episode, Iteration, Rollout
from algorithm.run.signals import StopRequest
from algorithm.run.timing import Stopwatch

_SHOWN_RETURNS = 20


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to. Evaluations by behaviour; empty if a signal came before the first one."""

    steps: int
    updates: int
    time: Mapping[str, float]  # seconds of training by what they went into, without evaluation
    faults: Mapping[str, int]  # failures survived, by kind
    replay_ratio: float
    last_eval: Mapping[str, tuple[int, Performance]]  # (step, performance)
    best_eval: Mapping[str, tuple[int, Performance]]

    @property
    def seconds(self) -> float:
        """Of training, without evaluation."""
        return sum(self.time.values())


class Trainer:
    """Owner of the loop, the clock and the step counter.

    env:      the training environments, reset by the trainer
    eval_env: the one environment that evaluations run on
    agents:   one per behaviour of ``env``
    config:   limits and intervals
    keeper:   saves the checkpoints
    faults:   what both environments have been told to report to
    stop:     becomes true when a signal asks the run to end
    """

    def __init__(
        self,
        *,
        env: VecEnv,
        eval_env: VecEnv,
        agents: Mapping[str, Agent],
        config: Config,
        keeper: Keeper,
        faults: Faults,
        console: Console,
        metrics: MetricsLogger,
        stop: StopRequest,
    ) -> None:
        self._eval_env = eval_env
        self._agents, self._config = agents, config
        self._keeper, self._faults = keeper, faults
        self._console, self._metrics, self._stop = console, metrics, stop
        base = config.base_config
        self._watch = Stopwatch()
        self._rollout = Rollout(
            env,
            agents,
            agents,
            num_envs=base.n_envs,
            length_limit=base.max_step_each_iter,
            watch=self._watch,
        )
        self._max_step, self._max_iter = base.max_step, base.max_iter
        self._step = self._iteration = self._episodes = 0
        self._current_iteration = Iteration(self._rollout)
        self._since_summary: dict[str, list[Episode]] = {name: [] for name in agents}
        self._returns: deque[float] = deque(maxlen=_SHOWN_RETURNS)
        self._visitors = {
            name: Visitor(agent.new_actor("evaluation"), greedy=True) for name, agent in agents.items()
        }
        self._last_eval: dict[str, tuple[int, Performance]] = {}
        self._best_eval: dict[str, tuple[int, Performance]] = {}
        self._latest_metrics: dict[str, float] = {}
        self._process = psutil.Process()
        self._step_rate, self._update_rate = Rate(), Rate()
        self._started = time.monotonic()

    def train(self) -> Outcome:
        """Run until ``max_step``, ``max_iter`` or a signal; save, and evaluate unless a signal ended it."""
        sac = self._config.sac_config
        summary, save = Every(sac.write_summary_per_step), Every(sac.save_model_per_step)
        evaluation = Every(self._config.eval_config.per_step)
        self._started = time.monotonic()
        self._watch.skip()
        while not self._finished():
            self._advance()
            if summary.due(self._step):
                self._write_summary()
            if evaluation.due(self._step):
                self._evaluate()
            if save.due(self._step):
                self._save()
            if self._console.due():
                self._console.progress(self._progress())
            self._watch.lap("other")
        if self._stop:
            self._console.message(self._stop.text)
        self._save()
        self._watch.lap("other")
        if not self._stop and not self._is_evaluated():
            self._evaluate()
        self._metrics.flush()
        return self._outcome()

    def _finished(self) -> bool:
        steps_done = 0 < self._max_step <= self._step
        return bool(self._stop) or steps_done or 0 < self._max_iter <= self._iteration

    def _advance(self) -> None:
        episodes = self._rollout.step()
        self._step = self._rollout.steps
        for agent in self._agents.values():
            agent.learn(self._step, self._watch)
        for episode in episodes:
            self._since_summary[episode.behaviour].append(episode)
            self._returns.append(episode.total)
        self._episodes += len(episodes)
        if self._current_iteration.ends(episodes):
            self._iteration += 1
            if self._config.base_config.reset_on_iteration:
                self._rollout.truncate()

    def _evaluate(self) -> None:
        self._watch.lap("other")
        limit = self._config.base_config.max_step_each_iter
        found = evaluate(
            self._eval_env,
            self._visitors,
            self._config.eval_config.episodes,
            length_limit=limit,
            stop=lambda: bool(self._stop),
        )
        self._watch.skip()
        self._step_rate, self._update_rate = Rate(), Rate()  # evaluation is not training time
        if found is None:
            return
        for name, performance in found.items():
            self._report(name, performance)
        score = float(np.mean([performance.interval.mean for performance in found.values()]))
        if self._keeper.is_best(score):
            self._save()
            self._keeper.mark_best(score)

    def _report(self, behaviour: str, performance: Performance) -> None:
        interval = performance.interval
        self._last_eval[behaviour] = (self._step, performance)
        best = self._best_eval.get(behaviour)
        is_best = best is None or interval.mean > best[1].interval.mean
        if is_best:
            self._best_eval[behaviour] = (self._step, performance)
        values = {
            "eval/return_mean": interval.mean,
            "eval/return_ci95": interval.half_width,
            "eval/length": float(np.mean(performance.lengths)),
        }
        self._metrics.write(self._step, values, behaviour=behaviour)
        self._console.evaluation(_shown(self._step, performance), best=is_best)

    def _is_evaluated(self) -> bool:
        return bool(self._last_eval) and all(step == self._step for step, _ in self._last_eval.values())

    def _write_summary(self) -> None:
        shared = self._watch.shares() | self._rates() | self._faults.metrics
        shared["sys/rss_mb"] = self._process.memory_info().rss / 2**20
        for name, agent in self._agents.items():
            values = agent.metrics(self._step)
            _refuse_non_finite(values, self._step)
            episodes, self._since_summary[name] = self._since_summary[name], []
            values |= _episode_metrics(episodes) | shared
            self._metrics.write(self._step, values, behaviour=name)
            self._latest_metrics = values

    def _rates(self) -> dict[str, float]:
        seconds = max(self._watch.total, 1e-9)
        return {"time/env_steps_per_s": self._step / seconds, "time/updates_per_s": self._updates() / seconds}

    def _save(self) -> None:
        if self._keeper.has(self._step):
            return
        tensors, updates = {}, {}
        for name, agent in self._agents.items():
            level = behaviour_level(name)
            for file, named in agent.sac.tensors().items():
                _refuse_non_finite_tensors(named, self._step)
                tensors[f"{level}/{file}" if level else file] = named
            updates[name] = agent.sac.updates
        state = {
            "step": self._step,
            "iteration": self._iteration,
            "episodes": self._episodes,
            "updates": updates,
            "seed": self._config.sac_config.seed,
        }
        self._keeper.save(self._step, tensors, state)

    def _updates(self) -> int:
        return sum(agent.sac.updates for agent in self._agents.values())

    def _progress(self) -> Progress:
        rate = self._step_rate.update(self._step)
        left = (self._max_step - self._step) / rate if self._max_step > 0 and rate > 0 else None
        first = next(iter(self._agents))
        return Progress(
            step=self._step,
            max_step=self._max_step if self._max_step > 0 else None,
            iteration=self._iteration,
            max_iter=self._max_iter if self._max_iter > 0 else None,
            updates=self._updates(),
            episodes=self._episodes,
            seconds=time.monotonic() - self._started,
            eta_s=left if left is not None and math.isfinite(left) else None,
            env_steps_per_s=rate,
            updates_per_s=self._update_rate.update(self._updates()),
            returns=tuple(self._returns),
            last_eval=_shown(*self._last_eval[first]) if self._last_eval else None,
            best_eval=_shown(*self._best_eval[first]) if self._best_eval else None,
            env_restarts=self._faults.env_restarts,
            metrics=self._latest_metrics,
        )

    def _outcome(self) -> Outcome:
        ratios = [agent.pace.achieved(self._step, agent.sac.updates) for agent in self._agents.values()]
        return Outcome(
            steps=self._step,
            updates=self._updates(),
            time=self._watch.seconds,
            faults=self._faults.counts,
            replay_ratio=float(np.mean(ratios)),
            last_eval=self._last_eval,
            best_eval=self._best_eval,
        )


def _shown(step: int, performance: Performance) -> Evaluation:
    interval = performance.interval
    return Evaluation(
        step=step, mean=interval.mean, ci95=interval.half_width, episodes=len(performance.returns)
    )


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


def _refuse_non_finite_tensors(named: Mapping[str, torch.Tensor], step: int) -> None:
    for name, tensor in named.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise diverged(f"{name} holds NaN or infinity", step)
