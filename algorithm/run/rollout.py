"""Agents act in environments; every transition goes to its agent, every finished episode is reported."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.env.base import VecEnv
from algorithm.run.group import Episode, Group, Player, Recorded, Recorder
from algorithm.run.timing import Stopwatch

__all__ = ["Episode", "Iteration", "Player", "Recorder", "Rollout"]


class Rollout:
    """Steps environments with a player per behaviour, from episode 0 on.

    recorders:    who stores the transitions, per behaviour; none where nothing is kept
    num_envs:     environments that the agents live in; by default each agent of the first behaviour has its
                  own, of those that are there at the start
    length_limit: an episode is truncated after so many steps; −1 for no limit
    watch:        told when acting, stepping and storing end

    ``steps`` counts environment steps: in a step of N environments N, less those that took none. Those are
    not reported themselves; what is known is who of the first behaviour was skipped. Where that is a share of
    those asked for an action, the same share of the environments took none, rounded down: exact as long as
    the agents are spread evenly. Who appeared was not asked. Who vanished was in an environment that went on
    without it. Where nobody was asked every environment took its step.
    """

    def __init__(
        self,
        env: VecEnv,
        players: Mapping[str, Player],
        recorders: Mapping[str, Recorder] | None = None,
        *,
        num_envs: int | None = None,
        length_limit: int = -1,
        watch: Stopwatch | None = None,
    ) -> None:
        self._env = env
        self._length_limit = length_limit
        self._watch = watch or Stopwatch()
        recorders = recorders or {}
        self._groups = {
            name: Group(name, env.specs[name], players[name], recorders.get(name), first)
            for name, first in env.reset(episode=0).items()
        }
        self.steps = 0
        self._counted, group = next(iter(self._groups.items()))
        self._num_envs = num_envs or max(1, len(group.ids))

    def step(self) -> list[Episode]:
        """One step of every environment. Returns the episodes that ended with it."""
        actions = {name: group.act() for name, group in self._groups.items()}
        self._watch.lap("act")
        results = self._env.step(actions)
        self._watch.lap("step")
        recorded = {
            name: group.record(results[name], self._length_limit) for name, group in self._groups.items()
        }
        # After all have recorded: an environment's reset is one for all of its agents.
        self._reset({name: came.over_limit for name, came in recorded.items()})
        self.steps += self._num_taken(recorded[self._counted])
        self._watch.lap("store")
        return [episode for came in recorded.values() for episode in came.episodes]

    def truncate(self) -> None:
        """End every unfinished episode as truncated and begin anew; such an episode is not reported."""
        self._reset({name: group.ids[group.step > 0].tolist() for name, group in self._groups.items()})

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent that is there now."""
        return frozenset().union(*(group.agents for group in self._groups.values()))

    def _reset(self, agents: Mapping[str, list[int]]) -> None:
        """Reset the environments of ``agents``, by behaviour."""
        named = sorted({agent for of_one in agents.values() for agent in of_one})
        if not named:
            return
        self._watch.lap("store")
        started = self._env.reset(named)
        self._watch.lap("step")
        for name, first in started.items():
            self._groups[name].restart(agents[name], first)

    def _num_taken(self, recorded: Recorded) -> int:
        """Environments that took the step; where one fails, all of its agents are skipped."""
        if not recorded.skipped:
            return self._num_envs
        return -(-self._num_envs * (recorded.asked - recorded.skipped) // recorded.asked)


class Iteration:
    """Over when everybody who is there has finished an episode in it; then the next one begins.

    Nobody waits for an agent that has left or vanished. One that appeared is waited for like the others.
    """

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._finished: set[tuple[str, int]] = set()

    def ends(self, episodes: list[Episode]) -> bool:
        """Whether it ends with the step that brought ``episodes``. To be asked after every step."""
        self._finished.update((episode.behaviour, episode.agent) for episode in episodes)
        if not self._finished or not self._finished >= self._rollout.agents:
            return False
        self._finished.clear()
        return True
