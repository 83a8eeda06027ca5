"""Evaluation episodes: on separate environments, without storing or learning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.roles import Policy, SamplingPolicy
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.core.data import ActorOutput, Array, Bool, Episode, Float
from algorithm.core.errors import EnvError
from algorithm.core.wording import counted, plus_minus
from algorithm.env.base import VecEnv
from algorithm.run.evaluation.callbacks import NULL_CALLBACK, CallbackList, EvalCallback, ProgressLines
from algorithm.run.evaluation.statistics import Interval, mean_infos, mean_interval
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.non_finite import OnNonFinite

PATIENCE = 1000
"""Maximum number of steps in a row without an agent of an unfinished behaviour, and of episodes cut off."""


@dataclass(frozen=True, repr=False)
class Performance:
    """Returns and lengths of the evaluation episodes of one behaviour, in the order in which they began.

    infos: means of the numbers that the environment puts into its infos, over the episodes that have one
    """

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    infos: Mapping[str, float] = field(default_factory=dict)

    @override
    def __repr__(self) -> str:
        return f"Performance({plus_minus(*astuple(self.interval))}, {counted(len(self.returns), 'episode')})"

    @property
    def mean(self) -> float:
        """Mean return."""
        return self.interval.mean

    @property
    def interval(self) -> Interval:
        """Mean return with its 95 % interval."""
        return mean_interval(self.returns)


def performance_of(episodes: Sequence[Episode]) -> Performance:
    """Return the performance in the given episodes."""
    returns, lengths = tuple(e.total for e in episodes), tuple(e.length for e in episodes)
    return Performance(returns, lengths, mean_infos(episode.infos for episode in episodes))


class EvalPolicy:
    """The policy as evaluations use it; ``greedy`` takes its mode."""

    def __init__(self, actor: SamplingPolicy, *, greedy: bool) -> None:
        self._actor = actor
        self._greedy = greedy

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of the whole carry, attention's cache included: recordings keep what no replay stores."""
        return self._actor.initial_carry(0).shape[1:]

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return the policy's actions, or its modes if it is greedy; see :class:`ActorOutput`."""
        return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)


@contextmanager
def eval_loop(
    env: VecEnv,
    players: Mapping[str, Policy],
    callback: EvalCallback,
    *,
    num_envs: int | None = None,
    length_limit: int = -1,
    on_non_finite: OnNonFinite | None = None,
) -> Iterator[LocalCollector]:
    """Start a rollout at episode 0, without storing; the callback's ``end`` runs in any case.

    num_envs, length_limit, on_non_finite: see :class:`~algorithm.run.experience.collector.LocalCollector`
    """
    try:
        recorders = {name: recorder for name in players if (recorder := callback.recorder(name)) is not None}
        rollout = LocalCollector(
            env,
            players,
            recorders,
            num_envs=num_envs,
            length_limit=length_limit,
            on_non_finite=on_non_finite,
        )
        callback.begin()
        yield rollout
    finally:
        callback.end()


def evaluate(
    env: VecEnv,
    players: Mapping[str, Policy],
    episodes: int,
    *,
    length_limit: int = -1,
    stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    callback: EvalCallback = NULL_CALLBACK,
    on_non_finite: OnNonFinite | None = None,
) -> dict[str, Performance] | None:
    """Play the ``episodes`` episodes of every behaviour that begin first; return the performance in them.

    Those that end first would mostly be short ones. The environments begin at episode 0, so every call plays
    the same starts. An episode that is cut off does not count; the one that began after it counts instead.

    on_episode: called with each episode that counts
    on_non_finite: treatment of episodes with such numbers, which do not count; by default the first raises
    Return None if stopped. Raises EnvError after ``PATIENCE`` steps without agents.
    """
    counts = {name: _FirstEpisodes(name, episodes) for name in players}
    absent = 0  # steps in a row without an agent of an unfinished behaviour
    with eval_loop(env, players, callback, length_limit=length_limit, on_non_finite=on_non_finite) as rollout:
        for count in counts.values():
            count.update(rollout, [])
        while not all(count.complete for count in counts.values()):
            if stop():
                return None
            ended = rollout.step()
            callback.step(ended)
            for count in counts.values():
                for episode in count.update(rollout, ended):
                    on_episode(episode)
            missing = [count for count in counts.values() if not count.complete]
            absent = 0 if any(count.open for count in missing) else absent + 1
            if missing and absent == PATIENCE:
                raise _no_agents(missing, rollout.steps)
            if never := [count for count in missing if count.cut_off >= PATIENCE]:
                raise _no_ends(never, rollout.steps)
    return {name: performance_of(count.first) for name, count in counts.items()}


class _FirstEpisodes:
    """The first n episodes of one behaviour, by the order in which they begin; lost ones do not count.

    first:   episodes among them that have ended, by order of beginning
    open:    agent → number of its open episode
    cut_off: steps in a row that cut episodes off, of those that ended any
    """

    def __init__(self, behaviour: str, n: int) -> None:
        self._behaviour, self._n = behaviour, n
        self.cut_off = 0
        self._ended: dict[int, Episode] = {}
        self._reported: set[int] = set()
        self.first: list[Episode] = []
        self.open: dict[int, int] = {}

    @override
    def __str__(self) -> str:
        return f"{self._behaviour!r} ({len(self.first)} of {self._n})"

    @property
    def complete(self) -> bool:
        """Whether each of the first n episodes has ended."""
        return len(self.first) == self._n

    def update(self, rollout: LocalCollector, ended: Iterable[Episode]) -> list[Episode]:
        """Count a step and its ended episodes; return those that are newly among the first n."""
        finished = {episode.agent: episode for episode in ended if episode.behaviour == self._behaviour}
        now = {agent: k for (name, agent), k in rollout.open_episodes.items() if name == self._behaviour}
        over = {k: finished.get(agent) for agent, k in self.open.items() if now.get(agent) != k}
        self.open = now
        if not over:
            return []
        self.cut_off = 0 if any(over.values()) else self.cut_off + 1
        self._ended |= {k: episode for k, episode in over.items() if episode is not None}
        first = [k for k in sorted({*self._ended, *now.values()})[: self._n] if k in self._ended]
        self.first = [self._ended[k] for k in first]
        new = [self._ended[k] for k in first if k not in self._reported]
        self._reported.update(first)
        return new


def _no_agents(unfinished: Iterable[_FirstEpisodes], steps: int) -> EnvError:
    return EnvError(
        f"an evaluation waits for agents that do not appear: {', '.join(map(str, unfinished))}",
        where=f"environment step {steps} of the evaluation",
        why=f"for {PATIENCE:,} steps there was no agent of these behaviours",
        fix="make the environment create agents for every behaviour that it declares, or declare fewer",
    )


def _no_ends(unfinished: Iterable[_FirstEpisodes], steps: int) -> EnvError:
    return EnvError(
        f"an evaluation waits for episodes that do not end: {', '.join(map(str, unfinished))}",
        where=f"environment step {steps} of the evaluation",
        why=f"{PATIENCE:,} in a row were cut off, each by a reset for another agent of its environment",
        fix="let the episodes of an environment end together, or raise eval_config.max_step",
    )


def eval_policies(agents: Mapping[str, Agent], purpose: str, *, greedy: bool = True) -> dict[str, EvalPolicy]:
    """Return a policy of each agent. purpose: name for its random numbers."""
    return {name: EvalPolicy(agent.new_policy(purpose), greedy=greedy) for name, agent in agents.items()}


DEFAULT_MAX_STEP = 10_000
"""``eval_config.max_step`` if no limit of episodes is known."""


def episode_limit(config: Config, time_limit: int | None) -> int:
    """Return the steps after which an episode of an evaluation is cut off; −1 for never.

    time_limit: the environment's own, where it is known
    """
    training_limit, eval_limit = config.base_config.max_step_each_iter, config.eval_config.max_step
    if eval_limit is None:
        eval_limit = -1 if time_limit or training_limit > 0 else DEFAULT_MAX_STEP
    return min((limit for limit in (training_limit, eval_limit) if limit > 0), default=-1)


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

    env:           the environment to play in
    watch:         makes the callback of an evaluation at a step, which may film or record it
    on_non_finite: treatment of episodes with such numbers
    """

    def __init__(
        self,
        env: VecEnv,
        config: Config,
        console: Console,
        *,
        watch: Callable[[int], EvalCallback],
        on_non_finite: OnNonFinite,
    ) -> None:
        self.env = env
        self._config = config
        self._console = console
        self._watch = watch
        self._on_non_finite = on_non_finite
        self._warned_cut_off = False

    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        """Use these lessons of the training from now on, unless evaluations are always in the last ones."""
        if lessons and self._config.eval_config.lesson == "current":
            self.env.renew_parameters(lessons)

    def evaluate(
        self, agents: Mapping[str, Agent], step: int, stop: Callable[[], bool]
    ) -> dict[str, Performance] | None:
        """Return the performance of each behaviour's deterministic policy; None if ``stop`` became true."""
        performances = evaluate(
            self.env,
            # New ones: a policy holds attributes of the networks, which a callback may have changed.
            eval_policies(agents, "evaluation"),
            self._config.eval_config.episodes,
            length_limit=episode_limit(self._config, self.env.time_limit),
            stop=stop,
            callback=CallbackList(self._watch(step), ProgressLines(self._console.message)),
            on_non_finite=self._on_non_finite,
        )
        if performances and not self._warned_cut_off:
            line = cut_off_line(performances.values(), self._config, self.env.time_limit)
            if line:
                self._warned_cut_off = True
                self._console.warn(line)
        return performances
