"""Episodes that only measure: on environments of their own, nothing stored, nothing learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from algorithm.data import ActorOutput, Array, Bool, Float
from algorithm.env.base import VecEnv
from algorithm.errors import EnvError
from algorithm.evaluation.statistics import Interval, mean_interval
from algorithm.experience.non_finite import OnNonFinite
from algorithm.roles import Episode, Policy, SamplingPolicy
from algorithm.run.playing.watching import NOBODY, Show, Watcher, shown

PATIENCE = 1000
"""Steps in a row without anybody of the behaviours still waited for, after which nobody is expected."""


@dataclass(frozen=True)
class Performance:
    """Returns and lengths of the evaluation episodes of one behaviour, in the order they ended."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def interval(self) -> Interval:
        """Mean return with its 95 % interval."""
        return mean_interval(self.returns)


class Visitor:
    """A player that acts with the policy; ``greedy`` takes its mode."""

    def __init__(self, actor: SamplingPolicy, *, greedy: bool) -> None:
        self._actor = actor
        self._greedy = greedy

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """All of the carry, attention's cache too, which no replay stores: here it is only looked at."""
        return self._actor.initial_carry(0).shape[1:]

    def initial_carry(self, n: int) -> Float:
        """See :class:`~algorithm.experience.collector.Policy`."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """The policy's action."""
        return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)


def evaluate(
    env: VecEnv,
    visitors: Mapping[str, Policy],
    episodes: int,
    *,
    length_limit: int = -1,
    stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    watcher: Watcher = NOBODY,
    on_non_finite: OnNonFinite | None = None,
) -> dict[str, Performance] | None:
    """Play until every behaviour has finished ``episodes`` episodes.

    The environments begin at episode 0, so every call plays the same starts: what changes is the policy.

    on_episode: told of every episode that counts, the first ``episodes`` of each behaviour
    watcher:    told of every step
    on_non_finite: what becomes of an episode with such numbers; by default it ends everything. One that is
        dropped does not count

    Returns None if ``stop`` became true on the way. Raises EnvError if for ``PATIENCE`` steps nobody was
    there of the behaviours that have not finished.
    """
    done: dict[str, list[Episode]] = {name: [] for name in visitors}
    with shown(env, visitors, watcher, length_limit=length_limit, on_non_finite=on_non_finite) as show:
        absence = _Absence(show, done, episodes)
        while absence.awaited:
            if stop():
                return None
            for episode in show.step():
                finished = done[episode.behaviour]
                if len(finished) < episodes:
                    finished.append(episode)
                    on_episode(episode)
            absence.look()
    return {
        name: Performance(tuple(e.total for e in finished), tuple(e.length for e in finished))
        for name, finished in done.items()
    }


class _Absence:
    """Sees to it that nobody waits for agents that never come."""

    def __init__(self, show: Show, done: Mapping[str, list[Episode]], episodes: int) -> None:
        self._show, self._done, self._episodes = show, done, episodes
        self._steps = 0

    @property
    def awaited(self) -> list[str]:
        """Behaviours that still have episodes to finish."""
        return [name for name, finished in self._done.items() if len(finished) < self._episodes]

    def look(self) -> None:
        """Count a step. Raises EnvError with the one that is too many."""
        awaited = self.awaited
        if not awaited or any(name in awaited for name, _ in self._show.rollout.agents):
            self._steps = 0
            return
        self._steps += 1
        if self._steps < PATIENCE:
            return
        missing = ", ".join(f"{name!r} ({len(self._done[name])} of {self._episodes})" for name in awaited)
        raise EnvError(
            f"an evaluation waits for agents that do not come: {missing}",
            where=f"environment step {self._show.rollout.steps} of the evaluation",
            why=f"for {PATIENCE:,} steps no agent of these behaviours was there",
            fix="mend the environment so that every behaviour it announces gets agents, or announce fewer",
        )
