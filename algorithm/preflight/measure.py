"""Measures for a moment what a training does: steps, updates with real batches, steps of an evaluation."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from algorithm.config.schema import Config
from algorithm.data import Segment
from algorithm.env.base import VecEnv
from algorithm.evaluation.evaluate import Visitor
from algorithm.preflight.plan import Measured
from algorithm.run.agent import Agent
from algorithm.run.rollout import Rollout

_SHARES = {"warm-up": 0.1, "steps": 0.35, "updates": 0.35, "evaluation": 0.2}  # of the time
_FIRST = 3  # updates that are not counted: they set up what later ones find
_KEPT = 2000  # transitions that are stored again and again until there is a batch
_COPIES = 1_000_000  # streams from here on are no agents


class Measurement:
    """Uses everything up: agents have learned, environments stand anywhere.

    seconds: about how long; as much again where environments or updates are slow
    """

    def __init__(
        self, env: VecEnv, eval_env: VecEnv, agents: Mapping[str, Agent], config: Config, seconds: float
    ) -> None:
        self._env, self._eval_env, self._agents = env, eval_env, agents
        self._config, self._seconds = config, seconds
        self._kept = {name: _Kept(agent) for name, agent in agents.items()}
        self._lengths: list[int] = []

    def take(self) -> Measured:
        """Measure."""
        base = self._config.base_config
        rollout = Rollout(
            self._env,
            {name: agent.player for name, agent in self._agents.items()},
            self._kept,
            num_envs=base.n_envs,
            length_limit=base.max_step_each_iter,
        )
        warm_up = self._steps(rollout, "warm-up", policy=False)
        step = self._steps(rollout, "steps", policy=True)
        per_step = sum(self._updates_per_step(agent, rollout.steps) for agent in self._agents.values())
        update = self._updates()
        return Measured(
            warm_up_step=warm_up,
            step=step,
            update=update,
            evaluation_step=self._evaluation(),
            updates_per_step=per_step,
            length=sum(self._lengths) / len(self._lengths) if self._lengths else None,
        )

    def _steps(self, rollout: Rollout, part: str, *, policy: bool) -> float:
        """Seconds of an environment step."""
        for agent in self._agents.values():
            agent.player.warming_up = not policy

        def step() -> None:
            self._lengths += [episode.length for episode in rollout.step()]

        step()  # the first one is slower
        before = rollout.steps
        seconds = self._repeated(step, part)
        return seconds / max(1, rollout.steps - before)

    def _updates_per_step(self, agent: Agent, steps: int) -> float:
        sac = agent.config.sac_config
        if sac.use_replay_buffer:
            return sac.replay_ratio
        return agent.replay.ready / steps / sac.batch_size  # every window once

    def _updates(self) -> float:
        """Seconds of a gradient update, the mean over the agents."""
        turns = [_Learning(agent, self._kept[name]) for name, agent in self._agents.items()]

        def learn() -> None:
            for turn in turns:
                turn.learn()

        for _ in range(_FIRST):
            learn()
        before = self._num_updates()
        seconds = self._repeated(learn, "updates")
        done = self._num_updates() - before
        return seconds / done if done else math.nan

    def _num_updates(self) -> int:
        return sum(agent.sac.updates for agent in self._agents.values())

    def _evaluation(self) -> float:
        """Seconds of a step."""
        visitors = {
            name: Visitor(agent.new_actor("evaluation"), greedy=True) for name, agent in self._agents.items()
        }
        limit = self._config.base_config.max_step_each_iter
        rollout = Rollout(self._eval_env, visitors, length_limit=limit)
        rollout.step()
        before = rollout.steps
        seconds = self._repeated(rollout.step, "evaluation")
        return seconds / max(1, rollout.steps - before)

    def _repeated(self, do: Callable[[], object], part: str) -> float:
        """Do it for the part's share of the time, once at least; seconds that it took."""
        _wait()
        began = time.perf_counter()
        while True:
            do()
            if time.perf_counter() - began >= _SHARES[part] * self._seconds:
                _wait()
                return time.perf_counter() - began


class _Kept:
    """A recorder that keeps what it was told beside storing it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._segments: deque[Segment] = deque(maxlen=_KEPT)
        self._copies = 0

    def add(self, segment: Segment) -> None:
        """See :class:`~algorithm.run.rollout.Recorder`."""
        self._agent.add(segment)
        self._segments.append(segment)

    def close(self, stream: int) -> None:
        """See :class:`~algorithm.run.rollout.Recorder`."""
        self._agent.close(stream)

    def again(self) -> None:
        """Store all of it once more, as if other agents had seen the same."""
        self._copies += 1
        for segment in self._segments:
            self._agent.add(replace(segment, stream=segment.stream + self._copies * _COPIES))


class _Learning:
    """Lets an agent do an update after the other, whatever is owed."""

    def __init__(self, agent: Agent, kept: _Kept) -> None:
        self._agent, self._kept = agent, kept
        sac = agent.config.sac_config
        self._step = sac.start_step
        self._stride = max(1, math.ceil(1 / sac.replay_ratio))

    def learn(self) -> None:
        """At least one update."""
        replay = self._agent.replay
        while replay.ready < replay.batch_size:
            before = replay.ready
            self._kept.again()
            if replay.ready <= before:
                break  # it is full: learning says what is wrong
        self._step += self._stride
        self._agent.learn(self._step)


def _wait() -> None:
    """For what a GPU still does."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
