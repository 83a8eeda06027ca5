"""Agents act in environments; every transition goes to its agent, every finished episode is reported."""

from __future__ import annotations

from collections.abc import Mapping

from algorithm.data import State
from algorithm.env.base import Observation, VecEnv
from algorithm.experience.agent_processor import AgentProcessor, Recorded
from algorithm.experience.non_finite import BadNumber, OnNonFinite, Stop, no_beginning
from algorithm.roles import Collector, Episode, Policy, Recorder
from algorithm.timing import Stopwatch
from algorithm.wording import Rows

MAX_FINISHED = 2**16
"""Agents of an iteration that are remembered, whether they are still there or not."""

_TRIES = 10  # resets in a row that may begin with numbers that are not finite


class LocalCollector:
    """Steps environments with a player per behaviour, from episode 0 on.

    recorders:    who stores the transitions, per behaviour; none where nothing is kept
    num_envs:     environments that the agents live in; by default each agent of the first behaviour has its
                  own, of those that are there at the start
    length_limit: an episode is truncated after so many steps; −1 for no limit
    watch:        told when acting, stepping and storing end
    on_non_finite: what becomes of episodes with such numbers; by default they end the run

    ``steps`` counts environment steps: in a step of N environments N, less those that took none. Those are
    not reported themselves; what is known is who of the first behaviour was skipped. Where that is a share of
    those asked for an action, the same share of the environments took none, rounded down: exact as long as
    the agents are spread evenly. Who appeared was not asked. Who vanished was in an environment that went on
    without it. Where nobody was asked every environment took its step.
    """

    def __init__(
        self,
        env: VecEnv,
        policies: Mapping[str, Policy],
        recorders: Mapping[str, Recorder] | None = None,
        *,
        num_envs: int | None = None,
        length_limit: int = -1,
        watch: Stopwatch | None = None,
        on_non_finite: OnNonFinite | None = None,
    ) -> None:
        self._env, self._on_non_finite = env, on_non_finite or Stop()
        self._length_limit = length_limit
        self._watch = watch or Stopwatch()
        recorders = recorders or {}
        self.steps = 0
        started = env.reset(episode=0)
        self._groups = {
            name: AgentProcessor(
                name, env.specs[name], policies[name], recorders.get(name), first, on_bad=self._met
            )
            for name, first in started.items()
        }
        self._reset(self._unusable(started))
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
        self._reset({name: came.to_reset for name, came in recorded.items()})
        self.steps += self._num_taken(recorded[self._counted])
        self._watch.lap("store")
        return [episode for came in recorded.values() for episode in came.episodes]

    def truncate(self) -> None:
        """End every unfinished episode as truncated and begin anew; such an episode is not reported."""
        self._reset({name: group.ids[group.step > 0].tolist() for name, group in self._groups.items()})

    def state(self) -> State:
        """Between two steps: what the agents remember, and where their environments stand."""
        own = State(meta={"steps": self.steps, "num_envs": self._num_envs, "behaviours": list(self._groups)})
        groups = {str(k): group.state() for k, group in enumerate(self._groups.values())}
        return State.joined({"own": own, "env": self._env.state(), "groups": State.joined(groups)})

    def load_state(self, state: State) -> list[str]:
        """Go on where ``state`` was taken: the next step is the very one that would have followed.

        Episodes that cannot be gone on with end as truncated, unreported, and their environments begin the
        next ones. Returns a line for a person on each reason for that; none if everything is exact.
        """
        own, saved = state.part("own").meta, state.part("groups")
        parts = {name: saved.part(str(k)) for k, name in enumerate(own["behaviours"])}
        self.steps = own["steps"]
        lost = self._env.resume(state.part("env"))
        if why := self._unlike(own["num_envs"], parts):
            return [self._begin_anew(parts, why)]
        for name, group in self._groups.items():
            group.load_state(parts[name])
        self._reset(dict.fromkeys(self._groups, sorted(lost)))
        reasons = sorted(set(lost.values()))
        return [_told([i for i in sorted(lost) if lost[i] == reason], reason) for reason in reasons]

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent that is there now."""
        return frozenset().union(*(group.agents for group in self._groups.values()))

    def metrics(self) -> dict[str, float]:
        """See :class:`~algorithm.roles.Collector`: the trainer's own say everything."""
        return {}

    def rows(self) -> Rows:
        """See :class:`~algorithm.roles.Collector`: the trainer's own say everything."""
        return ()

    def _reset(self, agents: Mapping[str, list[int]]) -> None:
        """Reset the environments of ``agents``, by behaviour."""
        tries = 0
        while named := sorted({agent for of_one in agents.values() for agent in of_one}):
            if tries == _TRIES:
                raise no_beginning(tries)
            tries += 1
            self._watch.lap("store")
            started = self._env.reset(named)
            self._watch.lap("step")
            for name, first in started.items():
                self._groups[name].restart(agents[name], first)
            agents = self._unusable(started)

    def _unusable(self, started: Mapping[str, Observation]) -> dict[str, list[int]]:
        """By behaviour, agents whose first observation is not finite."""
        return {
            name: group.unusable(started[name]) if name in started else []
            for name, group in self._groups.items()
        }

    def _met(self, bad: BadNumber) -> None:
        self._on_non_finite.met(bad, lambda: self._env.trace(bad.agent), self.steps)

    def _unlike(self, num_envs: int, parts: Mapping[str, State]) -> str:
        """Why nobody can go on where the ``parts`` of the behaviours were left; empty if they can."""
        if num_envs != self._num_envs:
            return f"{num_envs} environments became {self._num_envs}"
        if parts.keys() != self._groups.keys():
            return f"the behaviours were {', '.join(parts)} and are {', '.join(self._groups)}"
        unlike = {name: group.unlike(parts[name]) for name, group in self._groups.items()}
        return "; ".join(f"{name}: {why}" for name, why in unlike.items() if why)

    def _begin_anew(self, parts: Mapping[str, State], why: str) -> str:
        """Everybody begins the next episode; nobody goes on with one of the saved ``parts``."""
        for name, part in parts.items():
            if name in self._groups:
                self._groups[name].abandon(part)
        self._reset({name: group.ids.tolist() for name, group in self._groups.items()})
        return f"{why}: all open episodes end as truncated"

    def _num_taken(self, recorded: Recorded) -> int:
        """Environments that took the step; where one fails, all of its agents are skipped."""
        if not recorded.skipped:
            return self._num_envs
        return -(-self._num_envs * (recorded.asked - recorded.skipped) // recorded.asked)


def _told(environments: list[int], reason: str) -> str:
    which = ", ".join(map(str, environments))
    if len(environments) == 1:
        return f"environment {which}: {reason}; its open episode ends as truncated"
    return f"environments {which}: {reason}; their open episodes end as truncated"


class Iteration:
    """Over when everybody who is there has finished an episode in it; then the next one begins.

    Nobody waits for an agent that has left or vanished. One that appeared is waited for like the others.
    """

    def __init__(self, feed: Collector) -> None:
        self._feed = feed
        self._finished: set[tuple[str, int]] = set()

    def ends(self, episodes: list[Episode]) -> bool:
        """Whether it ends with the step that brought ``episodes``. To be asked after every step."""
        self._finished.update((episode.behaviour, episode.agent) for episode in episodes)
        if len(self._finished) > MAX_FINISHED:  # most of them have left since
            self._finished &= self._feed.agents
        if not self._finished or not self._finished >= self._feed.agents:
            return False
        self._finished.clear()
        return True

    def state(self) -> State:
        """Who has finished an episode in it."""
        return State(meta={"finished": [list(agent) for agent in sorted(self._finished)]})

    def load_state(self, state: State) -> None:
        """Wait for the others only."""
        self._finished = {(behaviour, agent) for behaviour, agent in state.meta["finished"]}
