"""Evaluations of agents in training, on an environment of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from algorithm.agents.base import Agent
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.env.base import VecEnv
from algorithm.evaluation.callbacks import CallbackList, EvalCallback, ProgressLines
from algorithm.evaluation.evaluate import EvalPolicy, Performance, evaluate
from algorithm.evaluation.length import cut_off_line, episode_limit
from algorithm.experience.non_finite import OnNonFinite


def eval_policies(agents: Mapping[str, Agent], purpose: str, *, greedy: bool = True) -> dict[str, EvalPolicy]:
    """Return a policy of each agent; its random numbers are named by the ``purpose``."""
    return {name: EvalPolicy(agent.new_policy(purpose), greedy=greedy) for name, agent in agents.items()}


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
