"""Cost of a training: its parts, timed for about a second each and multiplied by how often they run."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch

from algorithm.agents.roles import Agent
from algorithm.config.schema import Config
from algorithm.core.data import StepBatch
from algorithm.env.base import VecEnv
from algorithm.evaluation.evaluate import EvalPolicy
from algorithm.evaluation.evaluator import episode_limit
from algorithm.experience.collector import LocalCollector
from algorithm.runs.checkpoints.manager import Replays

_FIRST = 3  # calls that are not timed: they set up what later ones use
_KEPT = 2000  # steps that are stored repeatedly until there is a batch
_MOST_STEPS = 100_000  # of all environments until there is an update
_COPIES = 1_000_000  # streams from here on belong to no agent


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds per unit on this machine at present, and the episodes that were seen meanwhile.

    step:   an environment step with the policy, storing included
    update: a gradient update, sampling and priorities included; nan where there was none
    evaluation_step:  a step of an evaluation
    updates_per_step: gradient updates due for each step after the warm-up
    length: mean length of the episodes that ended; None if none did
    warm_up: steps before the first update
    """

    step: float
    update: float
    evaluation_step: float
    updates_per_step: float
    length: float | None
    warm_up: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes and rows of what was built; several replays count as one, since they fill in step.

    checkpoint: without its replay
    row:        of a replay, on disk
    row_each:   the part of a row that every checkpoint writes again, such as its priority
    replay:     in memory when full
    capacity, held: rows of the replay, when full and at present
    process:    resident memory of this process and its workers
    kept:       the checkpoints with their replay
    """

    checkpoint: int
    row: float
    row_each: float
    replay: int
    capacity: int
    held: int
    process: int
    kept: Replays


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Number of times each part of a run is done.

    evaluation_steps: of all evaluations, with episodes as long as seen and as long as the limit allows
    rows:             rows that the replay receives, the last ones of episodes included
    """

    steps: int
    updates: int
    evaluations: int
    evaluation_steps: tuple[int, int]
    checkpoints: int
    rows: int

    @classmethod
    def of(cls, config: Config, speed: Speed, time_limit: int | None) -> Plan | None:
        """Derive the plan of a whole run; None if no limit ends it."""
        base, sac, every = config.base_config, config.sac_config, config.eval_config
        limits = [limit for limit in (time_limit, base.max_step_each_iter) if limit and limit > 0]
        longest = min(limits, default=0)
        seen = speed.length or longest
        steps = _planned_steps(config, seen)
        if steps is None:
            return None
        evaluations = num_times(steps, every.per_step)
        episodes = evaluations * every.episodes
        low, high = seen, max(seen, longest)
        if (most := episode_limit(config, time_limit)) > 0:
            low, high = (min(length or most, most) for length in (low, high))
        return cls(
            steps=steps,
            updates=int(speed.updates_per_step * max(0, steps - speed.warm_up)),
            evaluations=evaluations,
            evaluation_steps=(round(episodes * low), round(episodes * high)),
            checkpoints=num_times(steps, sac.save_model_per_step),
            rows=steps + (round(steps / seen) if seen else 0) + base.n_envs,
        )

    def seconds(self, speed: Speed) -> tuple[float, float, tuple[float, float]]:
        """Return the time of acting, of updates and, from and to, of evaluations."""
        low, high = (steps * speed.evaluation_step for steps in self.evaluation_steps)
        return self.steps * speed.step, self.updates * speed.update if self.updates else 0.0, (low, high)

    def disk(self, config: Config, sizes: Sizes) -> tuple[int, int, int]:
        """Return the number of checkpoints at the end, their bytes and those of the replay, at most.

        Checkpoints share the rows of their replays. The newest need one replay and the rows since the oldest
        of them; the best one and the milestones may each need another replay.
        """
        kept = config.checkpoint_config
        apart = kept.best * (self.evaluations > 0) + len(kept.milestones)
        newest = min(kept.keep, self.checkpoints)
        number = min(newest + apart, self.checkpoints + self.evaluations * kept.best)
        with_replay = {"always": number, "last": min(1, number), "never": 0}[sizes.kept]
        if not with_replay:
            return number, number * sizes.checkpoint, 0
        replays = 1 + apart * (sizes.kept == "always")
        since_oldest = min(newest, with_replay) * config.sac_config.save_model_per_step
        rows = min(self.rows, replays * sizes.capacity + since_oldest)
        each = with_replay * min(self.rows, sizes.capacity) * sizes.row_each
        return number, number * sizes.checkpoint, round(rows * sizes.row + each)


def num_times(steps: int, interval: int) -> int:
    """Return how often an action is due that runs every ``interval`` steps and at the end; −1: only then."""
    return 1 if interval < 0 else -(-steps // interval)


def _planned_steps(config: Config, length: float) -> int | None:
    base = config.base_config
    limits = [base.max_step] if base.max_step > 0 else []
    if base.max_iter > 0 and length:
        limits.append(round(base.max_iter * base.n_envs * length))
    return min(limits, default=None)


def measure(
    env: VecEnv, eval_env: VecEnv, agents: Mapping[str, Agent], config: Config, seconds: float
) -> Speed:
    """Time environment steps, updates and evaluation steps for about ``seconds`` each.

    Agents learn from this and environments stop anywhere: neither can be used for a training afterwards.
    """
    base, lengths = config.base_config, list[int]()
    recorders = {name: _Repeater(agent) for name, agent in agents.items()}
    rollout = LocalCollector(
        env,
        {name: agent.policy for name, agent in agents.items()},
        recorders,
        num_envs=base.n_envs,
        length_limit=base.max_step_each_iter,
    )
    for agent in agents.values():
        agent.policy.warming_up = False

    def act() -> None:
        lengths.extend(episode.length for episode in rollout.step())

    def learn() -> None:
        for recorder in recorders.values():
            recorder.learn()

    step = _timed(act, lambda: rollout.steps, seconds)
    shares = {name: taken / max(1, rollout.steps) for name, taken in rollout.behaviour_steps.items()}
    updates_per_step = sum(agent.updates_per_step * shares[name] for name, agent in agents.items())
    update = _timed(learn, lambda: sum(agent.updates for agent in agents.values()), seconds)
    policies = {
        name: EvalPolicy(agent.new_policy("evaluation"), greedy=True) for name, agent in agents.items()
    }
    evaluation = LocalCollector(eval_env, policies, length_limit=base.max_step_each_iter)
    return Speed(
        step=step,
        update=update,
        evaluation_step=_timed(evaluation.step, lambda: evaluation.steps, seconds),
        updates_per_step=updates_per_step,
        length=sum(lengths) / len(lengths) if lengths else None,
        warm_up=max(agent.warm_up_steps for agent in agents.values()),
    )


def _timed(do: Callable[[], object], count: Callable[[], int], seconds: float) -> float:
    """Call ``do`` for about ``seconds``, at least once; return the seconds per unit of ``count``."""
    began = time.perf_counter()
    for _ in range(_FIRST):
        do()
        if time.perf_counter() - began > seconds:
            break
    _synchronise()
    before, began = count(), time.perf_counter()
    do()
    while time.perf_counter() - began < seconds:
        do()
    _synchronise()
    done = count() - before
    return (time.perf_counter() - began) / done if done else math.nan


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class _Repeater:
    """Recorder of an agent that can store its transitions again, so that there is always a batch to learn."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._steps: deque[StepBatch] = deque(maxlen=_KEPT)
        self._copies = 0
        self._step, self._stride = agent.warm_up_steps, math.ceil(1 / agent.updates_per_step)

    def add_steps(self, steps: StepBatch) -> None:
        self._agent.add_steps(steps)
        self._steps.append(steps.rows(np.arange(len(steps))))

    def close(self, stream: int) -> None:
        self._agent.close(stream)

    def learn(self) -> None:
        """Run at least one update."""
        stores = self._agent.stores().values()
        for store in stores:
            while (ready := store.ready) < store.batch_size:
                self._store_again()
                if store.ready <= ready:
                    break  # it is full: learning raises an error that says why
        if not stores:
            self._store_again()
        self._step += self._stride
        before = self._agent.updates
        self._agent.learn(self._step)
        for steps in islice(self._again(), _MOST_STEPS):  # a family that learns only from what is new
            if self._agent.updates > before:
                break
            for segment in steps.segments():
                self._agent.add(replace(segment, lag=1))  # older networks have acted
            self._agent.learn(self._step)

    def _store_again(self) -> None:
        """Store all transitions as if other agents had seen the same."""
        for steps in islice(self._again(), len(self._steps)):
            self._agent.add_steps(steps)

    def _again(self) -> Iterator[StepBatch]:
        """Yield the kept steps again and again, each time of other agents."""
        while True:
            self._copies += 1
            for steps in self._steps:
                yield replace(steps, streams=steps.streams + self._copies * _COPIES)
