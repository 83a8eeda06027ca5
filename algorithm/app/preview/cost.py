"""Cost of a training: 200 steps and 20 updates, timed and multiplied by how often they run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from algorithm.agents.base import Agent
from algorithm.config.schema import Config
from algorithm.core.data import StepBatch
from algorithm.env.base import VecEnv
from algorithm.run.experience.collector import LocalCollector
from algorithm.store.checkpoints.manager import Replays

_STEPS, _UPDATES = 200, 20
_ROUNDS = 1000  # of the same steps until there are so many updates
_SECONDS = 10.0  # after which a slow environment or network is measured well enough


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Measured seconds per step and update on this machine, and lengths of episodes.

    step:   an environment step with the policy, storing included
    update: a gradient update, sampling and priorities included; nan where there was none
    updates_per_step: gradient updates due for each step after the warm-up
    length: mean length of the episodes that ended; None if none did
    warm_up: steps before the first update
    """

    step: float
    update: float
    updates_per_step: float
    length: float | None
    warm_up: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the built agents; several replays count as one, since they fill at the same rate.

    checkpoint: without its replay
    row:        of a replay, on disk
    row_each:   bytes of a row that every checkpoint writes again, such as its priority
    replay:     in memory when full
    capacity, held: rows of the replay, when full and at present
    process:    resident memory of this process and its workers
    kept:       which checkpoints keep their replay
    """

    checkpoint: int
    row: float
    row_each: float
    replay: int
    capacity: int
    held: int
    process: int
    kept: Replays


def planned_steps(config: Config, length: float | None) -> int | None:
    """Return the steps of a whole run whose episodes have this length; None if no limit ends it."""
    base = config.base_config
    limits = [base.max_step] if base.max_step > 0 else []
    if base.max_iter > 0 and length:
        limits.append(round(base.max_iter * base.n_envs * length))
    return min(limits, default=None)


def disk(config: Config, sizes: Sizes, steps: int) -> tuple[int, int, int]:
    """Return the number of checkpoints at the end, and the most bytes of these and of the replay.

    Checkpoints share the rows of their replays. The newest need one replay and the rows since the oldest of
    them; the best one and the milestones may each need another replay.
    """
    kept, every = config.checkpoint_config, config.run.save_model_per_step
    saved = 1 if every < 0 else -(-steps // every)
    newest, apart = min(kept.keep, saved), kept.best + len(kept.milestones)
    number = newest + apart
    with_replay = {"always": number, "last": 1, "never": 0}[sizes.kept]
    replays = 1 + apart * (sizes.kept == "always") if with_replay else 0
    since_oldest = min(newest, with_replay) * max(every, 0)
    rows = min(steps, replays * sizes.capacity + since_oldest)
    each = with_replay * min(steps, sizes.capacity) * sizes.row_each
    return number, number * sizes.checkpoint, round(rows * sizes.row + each)


def measure(env: VecEnv, agents: Mapping[str, Agent], config: Config) -> Speed:
    """Time environment steps, then updates.

    Agents learn from this and environments stop anywhere: neither can be used for a training afterwards.
    """
    recorders = {name: _Repeater(agent) for name, agent in agents.items()}
    rollout = LocalCollector(
        env,
        {name: agent.policy for name, agent in agents.items()},
        recorders,
        num_envs=config.base_config.n_envs,
        length_limit=config.base_config.max_step_each_iter,
    )
    for agent in agents.values():
        agent.policy.warming_up = False
    lengths = [episode.length for episode in rollout.step()]  # the first one sets up what later ones use
    before, began = rollout.steps, time.perf_counter()
    while rollout.steps - before < _STEPS and time.perf_counter() - began < _SECONDS:
        lengths += [episode.length for episode in rollout.step()]
    step = (time.perf_counter() - began) / (rollout.steps - before)
    learned = [recorder.learn() for recorder in recorders.values()]
    updates = sum(count for count, _ in learned)
    shares = {name: taken / rollout.steps for name, taken in rollout.behaviour_steps.items()}
    return Speed(
        step=step,
        update=sum(seconds for _, seconds in learned) / updates if updates else math.nan,
        updates_per_step=sum(agent.updates_per_step * shares[name] for name, agent in agents.items()),
        length=sum(lengths) / len(lengths) if lengths else None,
        warm_up=max(agent.warm_up_steps for agent in agents.values()),
    )


class _Repeater:
    """Recorder of an agent that can store its steps repeatedly, to fill the replay quickly."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._steps: list[StepBatch] = []

    def add_steps(self, steps: StepBatch) -> None:
        self._agent.add_steps(steps)
        self._steps.append(steps.rows(np.arange(len(steps))))

    def close(self, stream: int) -> None:
        self._agent.close(stream)

    def learn(self) -> tuple[int, float]:
        """Make updates; return number and seconds of all but the first ones."""
        agent, total, seconds = self._agent, 0, 0.0
        step, stride = agent.warm_up_steps, math.ceil(1 / agent.updates_per_step)
        for _ in range(_ROUNDS):
            self._store_again()
            step += stride
            first, before = not agent.updates, agent.updates
            began = time.perf_counter()
            agent.learn(step)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if agent.updates > before and not (first and agent.updates < _UPDATES):
                seconds += time.perf_counter() - began
                total += agent.updates - before
            if total >= _UPDATES or seconds > _SECONDS:
                break
        return total, seconds

    def _store_again(self) -> None:
        """Store all steps once more, as other episodes by older networks."""
        for stream in {stream for steps in self._steps for stream in steps.streams.tolist()}:
            self._agent.close(stream)
        for steps in self._steps:
            self._agent.add_steps(replace(steps, lag=1))
