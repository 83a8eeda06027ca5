"""Episodes that only measure: on environments of their own, nothing stored, nothing learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from algorithm.data import Array, Bool, Float
from algorithm.env.base import VecEnv
from algorithm.run.rollout import Episode, Rollout
from algorithm.run.statistics import Interval, mean_interval
from algorithm.sac.actor import Actor, ActorOutput


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

    def __init__(self, actor: Actor, *, greedy: bool) -> None:
        self._actor = actor
        self._greedy = greedy

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """See :class:`~algorithm.run.rollout.Player`."""
        return self._actor.stored_carry_shape

    def initial_carry(self, n: int) -> Float:
        """See :class:`~algorithm.run.rollout.Player`."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """The policy's action."""
        return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)


def evaluate(
    env: VecEnv,
    visitors: Mapping[str, Visitor],
    episodes: int,
    *,
    length_limit: int = -1,
    stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> dict[str, Performance] | None:
    """Play until every behaviour has finished ``episodes`` episodes.

    The environments begin at episode 0, so every call plays the same starts: what changes is the policy.
    Returns None if ``stop`` became true on the way.
    """
    rollout = Rollout(env, visitors, length_limit=length_limit)
    done: dict[str, list[Episode]] = {name: [] for name in visitors}
    while any(len(finished) < episodes for finished in done.values()):
        if stop():
            return None
        for episode in rollout.step():
            finished = done[episode.behaviour]
            if len(finished) < episodes:
                finished.append(episode)
                on_episode(episode)
    return {
        name: Performance(tuple(e.total for e in finished), tuple(e.length for e in finished))
        for name, finished in done.items()
    }
