"""Policies, seed, noise, messages and lessons of an actor, and the line on its state."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import torch

from algorithm.agents.registry import family
from algorithm.agents.roles import Acting, ActingInputs
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.core.seeding import stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import short
from algorithm.env.parameters.config import EnvParameters
from algorithm.env.parameters.curricula import first_lessons
from algorithm.nn.process import set_matmul_precision
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.inputs import nn_file
from ds.checking import Shape, most_rows
from ds.net.link import Link
from ds.net.protocol import Welcome

LINE_S = 10.0


def actor_seed(run_seed: int, number: int) -> int:
    """Return the seed of all draws of actor ``number``; the first actor draws as a single process would."""
    return run_seed if number == 0 else stream_seed(run_seed, "actor", number) >> 32


def with_noise(config: Config, slot: int) -> Config:
    """Return the configuration for ``slot``, with noise min(noise_increasing_rate · slot, noise_max)."""
    base = config.base_config
    if base.noise_increasing_rate == 0:
        return config
    noise = min(base.noise_increasing_rate * slot, base.noise_max)
    noises = (noise, noise) if noise > 0 else None
    return config.model_copy(
        update={"sac_config": config.sac_config.model_copy(update={"action_noise": noises})}
    )


def rows_of_messages(
    loaded: LoadedConfig, specs: Mapping[str, AgentSpec], carries: Mapping[str, Shape], *, synchronous: bool
) -> dict[str, int]:
    """Return the transitions of each behaviour in a message; a synchronous one is a step of all agents."""
    most = {}
    for name, spec in specs.items():
        config = loaded.for_behaviour(name)
        limit = None if synchronous else family(config).remote_limits(config).max_length
        most[name] = most_rows(spec, carries[name], loaded.config.base_config.max_episode_length, limit)
    return most


def make_policies(
    loaded: LoadedConfig, specs: Mapping[str, AgentSpec], welcome: Welcome, seed: int, device: torch.device
) -> dict[str, Acting]:
    """Return the policy of each behaviour; ``seed``: of this actor's own draws."""
    made = {}
    for name, spec in specs.items():
        config = loaded.for_behaviour(name)
        make_acting = family(config).make_acting
        assert make_acting is not None, "its learner has refused to start"
        made[name] = make_acting(
            ActingInputs(
                spec,
                with_noise(config, welcome.slot),
                nn_file=nn_file(config, loaded.env_dir),
                behaviour=name,
                seed=welcome.seed,
                own_seed=seed,
                device=device,
            )
        )
    modules = [part for acting in made.values() for part in acting.parts.values()]
    set_matmul_precision(loaded.config.run.matmul_precision, modules, device)
    return made


class Lessons:
    """Lessons of an actor's environments, which the learner's answers name."""

    def __init__(self, parameters: EnvParameters, link: Link, console: Console) -> None:
        self._parameters, self._link, self._console = parameters, link, console
        self.now = {**first_lessons(parameters), **link.lessons}

    def follow(self, rollout: LocalCollector) -> None:
        """Go on to the learner's lessons, with a reset if any lesson that has ended since requires one."""
        before, self.now = self.now, {**self.now, **self._link.lessons}
        changed = {name: lesson for name, lesson in self.now.items() if lesson != before[name]}
        for name, lesson in changed.items():
            self._console.message(f"lesson of {name}: {before[name]} → {lesson}")
        if changed:
            resets = (self._resets(name, before[name], lesson) for name, lesson in changed.items())
            rollout.renew_parameters(self.now, reset=any(resets))

    def _resets(self, name: str, before: str, now: str) -> bool:
        names, lessons = self._parameters[name].lessons, self._parameters[name].curriculum or ()
        ended = [lesson.completion_criteria for lesson in lessons[names.index(before) : names.index(now)]]
        return any(criteria is not None and criteria.require_reset for criteria in ended)


class StatusLine:
    """Line on an actor, every ten seconds."""

    def __init__(self, console: Console, link: Link) -> None:
        self._console, self._link = console, link
        self._last, self._steps_then = time.monotonic(), 0
        self._returns: deque[float] = deque(maxlen=20)

    def show_if_due(self, steps: int, returns: Sequence[float], weights: int) -> None:
        """Show the line if it is due.

        steps: so far; returns: of episodes that have just ended; weights: the version that acts
        """
        self._returns += returns
        now, sent = time.monotonic(), self._link.sent
        if now - self._last < LINE_S:
            return
        returns = self._returns
        mean = f"return {short(sum(returns) / len(returns))}" if returns else "no return yet"
        self._console.message(
            f"{steps:,} steps · {(steps - self._steps_then) / (now - self._last):,.0f} steps/s · {mean} · "
            f"weights {weights} · {sent.waiting} waiting · {sent.dropped:,} steps dropped"
        )
        self._last, self._steps_then = now, steps
