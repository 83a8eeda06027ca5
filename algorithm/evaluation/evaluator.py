"""Evaluations of agents in training, on an environment of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from algorithm.agents.base import Agent
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.env.base import VecEnv
from algorithm.evaluation.callbacks import CallbackList, EvalCallback, ProgressLines
from algorithm.evaluation.evaluate import EvalPolicy, Performance, evaluate
from algorithm.experience.non_finite import OnNonFinite


def eval_policies(agents: Mapping[str, Agent], purpose: str, *, greedy: bool = True) -> dict[str, EvalPolicy]:
    """Return a policy of each agent; its random numbers are named by the ``purpose``."""
    return {name: EvalPolicy(agent.new_policy(purpose), greedy=greedy) for name, agent in agents.items()}


DEFAULT_MAX_STEP = 10_000
"""``eval_config.max_step`` where no episode has a limit that is known."""


def episode_limit(config: Config, time_limit: int | None) -> int:
    """Return the steps after which an episode of an evaluation is cut off; −1 for never.

    time_limit: the environment's own, where it is known
    """
    of_training, own = config.base_config.max_step_each_iter, config.eval_config.max_step
    if own is None:
        own = -1 if time_limit or of_training > 0 else DEFAULT_MAX_STEP
    return min((limit for limit in (of_training, own) if limit > 0), default=-1)


def cut_off_line(performances: Iterable[Performance], config: Config, time_limit: int | None) -> str | None:
    """Return a warning if episodes were cut off by ``eval_config.max_step`` alone.

    time_limit: as for :func:`episode_limit`
    """
    limit = episode_limit(config, time_limit)
    lengths = [length for performance in performances for length in performance.lengths]
    cut = sum(length == limit for length in lengths)
    if not cut or limit in (config.base_config.max_step_each_iter, time_limit):
        return None
    return (
        f"{cut} of {len(lengths)} episodes of the evaluation were cut off after {limit:,} steps "
        "(eval_config.max_step): their returns are those of these steps"
    )


class Evaluator:
    """Evaluations of a training.

    env:           the one environment that they run on
    film:          returns the callback of an evaluation at a step, which may record a video
    on_non_finite: treatment of episodes with such numbers
    """

    def __init__(
        self,
        env: VecEnv,
        config: Config,
        console: Console,
        *,
        film: Callable[[int], EvalCallback],
        on_non_finite: OnNonFinite,
    ) -> None:
        self.env = env
        self._config = config
        self._console = console
        self._film = film
        self._on_non_finite = on_non_finite
        self._told_cut_off = False

    def evaluate(
        self, agents: Mapping[str, Agent], step: int, stop: Callable[[], bool]
    ) -> dict[str, Performance] | None:
        """Return the performance of each behaviour's deterministic policy; None if ``stop`` became true."""
        found = evaluate(
            self.env,
            # New ones: a policy holds attributes of the networks, which a callback may have changed.
            eval_policies(agents, "evaluation"),
            self._config.eval_config.episodes,
            length_limit=episode_limit(self._config, self.env.time_limit),
            stop=stop,
            callback=CallbackList(self._film(step), ProgressLines(self._console.message)),
            on_non_finite=self._on_non_finite,
        )
        if found and not self._told_cut_off:
            line = cut_off_line(found.values(), self._config, self.env.time_limit)
            if line:
                self._told_cut_off = True
                self._console.warn(line)
        return found
