"""Evaluation episodes: on environments of their own, without storing or learning."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from algorithm.agents.roles import Episode, Policy, SamplingPolicy
from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.errors import EnvError
from algorithm.env.base import VecEnv
from algorithm.evaluation.callbacks import NULL_CALLBACK, EvalCallback
from algorithm.evaluation.statistics import Interval, mean_interval
from algorithm.experience.collector import LocalCollector
from algorithm.experience.non_finite import OnNonFinite

PATIENCE = 1000
"""Steps in a row without an agent of an unfinished behaviour, after which an evaluation gives up.

The same limit holds for steps in a row that cut off its episodes.
"""


@dataclass(frozen=True)
class Performance:
    """Returns and lengths of the evaluation episodes of one behaviour, in the order in which they began."""

    returns: tuple[float, ...]
    lengths: tuple[float, ...]

    @property
    def interval(self) -> Interval:
        """Mean return with its 95 % interval."""
        return mean_interval(self.returns)


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
        """Return the policy's action."""
        return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)


class EvalLoop:
    """A rollout and its callback; made by :func:`eval_loop`."""

    def __init__(self, rollout: LocalCollector, callback: EvalCallback) -> None:
        self.rollout, self._callback = rollout, callback

    def step(self) -> list[Episode]:
        """Take a step and pass the episodes that ended with it to the callback; return them."""
        ended = self.rollout.step()
        self._callback.step(ended)
        return ended


@contextmanager
def eval_loop(
    env: VecEnv,
    players: Mapping[str, Policy],
    callback: EvalCallback,
    *,
    num_envs: int | None = None,
    length_limit: int = -1,
    on_non_finite: OnNonFinite | None = None,
) -> Iterator[EvalLoop]:
    """Start a rollout at episode 0; the callback's ``end`` runs in any case.

    num_envs, length_limit, on_non_finite: see :class:`~algorithm.experience.collector.LocalCollector`
    """
    try:
        found = {name: callback.recorder(name) for name in players}
        recorders = {name: recorder for name, recorder in found.items() if recorder is not None}
        rollout = LocalCollector(
            env,
            players,
            recorders,
            num_envs=num_envs,
            length_limit=length_limit,
            on_non_finite=on_non_finite,
        )
        callback.begin()
        yield EvalLoop(rollout, callback)
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
    """Play the first ``episodes`` episodes of every behaviour, in the order in which they begin.

    Those that end first would be the short ones. The environments begin at episode 0, so every call plays the
    same starts; only the policy differs. An episode that is cut off without an end does not count, and the
    one that began after it counts instead.

    on_episode: called with each episode that counts
    on_non_finite: policy for episodes with such numbers, which do not count; by default the first one raises

    Returns None if ``stop`` became true on the way. Raises EnvError if unfinished behaviours had no agents
    for ``PATIENCE`` steps, or all of their episodes are cut off.
    """
    counts = {name: _FirstEpisodes(episodes) for name in players}
    absent = 0  # steps in a row without an agent of an unfinished behaviour
    with eval_loop(env, players, callback, length_limit=length_limit, on_non_finite=on_non_finite) as loop:
        begun = _begin(counts, {}, loop.rollout.open_episodes)
        missing = _incomplete(counts)
        while missing:
            if stop():
                return None
            ended = {(episode.behaviour, episode.agent): episode for episode in loop.step()}
            now = loop.rollout.open_episodes
            over: dict[str, dict[int, Episode | None]] = {name: {} for name in counts}
            for agent, number in begun.items():
                if now.get(agent) != number:
                    over[agent[0]][number] = ended.get(agent)
            for name, count in counts.items():
                count.end(over[name])
            begun = _begin(counts, begun, now)
            for count in counts.values():
                for episode in count.new():
                    on_episode(episode)
            missing = _incomplete(counts)
            absent = 0 if missing & {name for name, _ in now} else absent + 1
            if missing and absent == PATIENCE:
                raise _no_agents(_counted(counts, missing, episodes), loop)
            if cut_off := {name for name in missing if counts[name].cut_off == PATIENCE}:
                raise _all_cut_off(_counted(counts, cut_off, episodes), loop)
    return {
        name: Performance(tuple(e.total for e in count.finished), tuple(e.length for e in count.finished))
        for name, count in counts.items()
    }


def _incomplete(counts: Mapping[str, _FirstEpisodes]) -> set[str]:
    return {name for name, count in counts.items() if not count.complete}


_Open = Mapping[tuple[str, int], int]


def _begin(counts: Mapping[str, _FirstEpisodes], before: _Open, now: _Open) -> _Open:
    """Count the episodes that are open now and were not before; returns ``now``."""
    for agent, number in now.items():
        if before.get(agent) != number:
            counts[agent[0]].begin(number)
    return now


class _FirstEpisodes:
    """The first n episodes of one behaviour, by the order in which they begin; lost ones do not count."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._numbers: list[int] = []  # of all that have begun and are not lost, ascending
        self._ended: dict[int, Episode] = {}
        self._reported: set[int] = set()
        self.cut_off = 0  # steps that cut episodes off since the last end

    def begin(self, number: int) -> None:
        """Add an episode."""
        bisect.insort(self._numbers, number)

    def end(self, episodes: Mapping[int, Episode | None]) -> None:
        """End the episodes of a step, by number; None: it was cut off without an end."""
        for number, episode in episodes.items():
            if episode is None:
                self._numbers.remove(number)
            else:
                self._ended[number] = episode
        if episodes:
            self.cut_off = 0 if any(episodes.values()) else self.cut_off + 1

    @property
    def finished(self) -> list[Episode]:
        """Episodes among the first n that have ended, in the order in which they began."""
        return [self._ended[number] for number in self._numbers[: self._n] if number in self._ended]

    @property
    def complete(self) -> bool:
        """Whether each of the first n episodes has ended."""
        return len(self.finished) == self._n

    def new(self) -> list[Episode]:
        """Return episodes among the first n that have ended since the last call."""
        found = [k for k in self._numbers[: self._n] if k in self._ended and k not in self._reported]
        self._reported.update(found)
        return [self._ended[number] for number in found]


def _counted(counts: Mapping[str, _FirstEpisodes], names: set[str], episodes: int) -> str:
    """Return behaviours with their finished episodes, for a message."""
    return ", ".join(f"{name!r} ({len(counts[name].finished)} of {episodes})" for name in sorted(names))


def _all_cut_off(who: str, loop: EvalLoop) -> EnvError:
    return EnvError(
        f"an evaluation waits for episodes that are all cut off: {who}",
        where=f"environment step {loop.rollout.steps} of the evaluation",
        why=f"the last {PATIENCE:,} resets came before their ends: a reset is one for all agents of an "
        "environment, and others reach base_config.max_step_each_iter first",
        fix="raise max_step_each_iter or leave it out, and limit the episodes in the environment itself",
    )


def _no_agents(who: str, loop: EvalLoop) -> EnvError:
    return EnvError(
        f"an evaluation waits for agents that do not come: {who}",
        where=f"environment step {loop.rollout.steps} of the evaluation",
        why=f"for {PATIENCE:,} steps no agent of these behaviours was there",
        fix="make the environment give agents to every behaviour that it announces, or announce fewer",
    )
