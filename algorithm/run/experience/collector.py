"""Collection of transitions: agents act in environments, transitions are stored, episodes returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from algorithm.agents.roles import Collector, Policy, Recorder
from algorithm.core.data import Episode, Int, State
from algorithm.core.errors import EnvError
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.env.base import Observation, VecEnv, checked
from algorithm.env.outputs import PERSON
from algorithm.nn.process import others_modes
from algorithm.run.experience.agent_processor import AgentProcessor
from algorithm.run.experience.non_finite import BadNumber, OnNonFinite, Stop, no_beginning

PATIENCE = 10_000
"""Number of steps in a row without any agent after which a collector raises EnvError."""

_TRIES = 10  # resets in a row that may begin with numbers that are not finite


class LocalCollector:
    """Source of transitions from environments of this process, with a policy for each behaviour.

    recorders:    destinations of transitions, per behaviour; a behaviour without one is not recorded
    num_envs:     number of environments, by default that of agents at the start; a state of another number
                  is not continued
    length_limit: an episode is truncated after so many steps; −1 for no limit
    watch:        charged with the time of acting, stepping and storing
    on_non_finite: treatment of episodes with such numbers; by default they end the run

    A step is that of one agent: ``steps`` counts transitions over all behaviours. Agents that wait or have
    vanished, in a failed environment or with numbers that are not finite, do not count.
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
        self.behaviour_steps = dict.fromkeys(policies, 0)
        self._idle = 0  # steps in a row without an agent
        with others_modes():
            started = checked(env, "reset", env.reset(episode=0))
        self._groups = {
            name: AgentProcessor(
                name, env.specs[name], policies[name], recorders.get(name), first, on_bad=self._on_bad_number
            )
            for name, first in started.items()
        }
        self._drop(self._unusable(started))
        self._num_envs = num_envs or sum(len(group.ids) for group in self._groups.values())

    @property
    def steps(self) -> int:
        """Steps of all agents."""
        return sum(self.behaviour_steps.values())

    def step(self) -> list[Episode]:
        """Take a step of every environment; return the episodes that ended with it.

        Raises EnvError if no agent took a step in :data:`PATIENCE` calls.
        """
        actions = {name: group.act() for name, group in self._groups.items()}
        self._watch.lap("act")
        with others_modes():
            results = checked(self._env, "step", self._env.step(actions))
        self._watch.lap("step")
        recorded = {
            name: group.record(results[name], self._length_limit) for name, group in self._groups.items()
        }
        for name, recorded_step in recorded.items():  # they are stored, whatever becomes of the reset
            self.behaviour_steps[name] += recorded_step.taken
        episodes = [
            replace(
                episode,
                infos=_with_rate(checked(self._env, "infos", self._env.infos(episode.agent)), episode.length),
            )
            for recorded_step in recorded.values()
            for episode in recorded_step.episodes
        ]
        # After all have recorded: an environment's reset is one for all of its agents.
        self._drop({name: recorded_step.to_drop for name, recorded_step in recorded.items()})
        self._reset({name: recorded_step.to_reset for name, recorded_step in recorded.items()})
        self._idle = 0 if any(recorded_step.taken for recorded_step in recorded.values()) else self._idle + 1
        if self._idle == PATIENCE:
            raise EnvError(
                "no agent asks for an action",
                where=f"step {self.steps:,}",
                why=f"the environments were stepped {PATIENCE:,} times, and no agent has taken a step",
                fix="make the environment ask its agents for decisions, or find out why there are none",
            )
        self._watch.lap("store")
        return episodes

    def truncate(self) -> None:
        """End every unfinished episode as truncated and begin new ones; these ends are not reported."""
        self._reset({name: group.unfinished for name, group in self._groups.items()})

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Use these lessons for the environments' parameters, from each one's next reset on.

        reset: reset at once; open episodes end as truncated
        Return whether the environments were reset.
        """
        self._env.renew_parameters(lessons)
        if reset:
            agents_of = {
                name: {*group.ids.tolist(), *group.unfinished} for name, group in self._groups.items()
            }
            self._reset({name: sorted(agents) for name, agents in agents_of.items()})
        return reset

    def state(self) -> State:
        """Return the state of agents and environments, between two steps."""
        steps = list(self.behaviour_steps.values())
        counts = State(meta={"steps": steps, "num_envs": self._num_envs, "behaviours": list(self._groups)})
        groups = {str(k): group.state() for k, group in enumerate(self._groups.values())}
        of_env = checked(self._env, "state", self._env.state())
        return State.joined({"own": counts, "env": of_env, "groups": State.joined(groups)})

    def load_state(self, state: State) -> list[str]:
        """Continue from ``state``: the next step is the one that would have followed.

        Episodes that cannot continue end as truncated, unreported; their environments begin the next ones.
        Return a line for the user on each reason for that; none if everything is exact.
        """
        counts = state.part("own").meta
        if "env" not in state.meta:  # several processes have trained, which keep nothing of their episodes
            self.behaviour_steps |= dict(zip(counts["behaviours"], counts["steps"], strict=True))
            return [self._begin_anew({}, f"{counts['num_envs']} processes became one")]
        saved = state.part("groups")
        parts = {name: saved.part(str(k)) for k, name in enumerate(counts["behaviours"])}
        taken = dict(zip(counts["behaviours"], counts["steps"], strict=True))
        self.behaviour_steps = {name: taken.get(name, 0) for name in self._groups}
        with others_modes():
            lost = checked(self._env, "resume", self._env.resume(state.part("env")))
        if why := self._unlike(counts["num_envs"], parts):
            return [self._begin_anew(parts, why)]
        for name, group in self._groups.items():
            group.load_state(parts[name])
        agents = {reason: [i for i in lost if lost[i] == reason] for reason in sorted(set(lost.values()))}
        lines = [_lost_line(self._env.environments_of(of_one), why) for why, of_one in agents.items()]
        self._reset(dict.fromkeys(self._groups, sorted(lost)))
        return lines

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent, waiting or not."""
        return frozenset().union(*(group.agents for group in self._groups.values()))

    @property
    def present(self) -> dict[str, Int]:
        """Behaviour -> ids [n] of its agents, waiting or not."""
        return {name: group.present for name, group in self._groups.items()}

    @property
    def open_episodes(self) -> dict[tuple[str, int], int]:
        """(behaviour, id) -> number of its episode in the behaviour, by the order of beginning."""
        return {key: number for group in self._groups.values() for key, number in group.open_episodes.items()}

    def must_pause(self) -> bool:
        """Return whether learning has to pause, since the next action is due."""
        return self._env.must_pause()

    def metrics(self) -> dict[str, float]:
        """Return the metrics that the environments have recorded; the trainer logs all others."""
        return checked(self._env, "metrics", self._env.metrics())

    def rows(self) -> Rows:
        """Return no rows: the trainer shows everything about local steps."""
        return ()

    def _reset(self, agents: Mapping[str, list[int]]) -> None:
        """Reset the environments of ``agents``, by behaviour."""
        self._drop(self._begun(agents, "reset"))

    def _drop(self, agents: Mapping[str, list[int]]) -> None:
        """End episodes until all begin with finite numbers. Raises NumericalError after ten rounds."""
        for _ in range(_TRIES):
            if not any(agents.values()):
                return
            agents = self._begun(agents, "drop")
        if any(agents.values()):
            raise no_beginning(_TRIES)

    def _begun(
        self, agents: Mapping[str, list[int]], method: Literal["reset", "drop"]
    ) -> Mapping[str, list[int]]:
        """End the episodes of ``agents``; return agents whose next first observation is not finite."""
        named = sorted({agent for of_one in agents.values() for agent in of_one})
        if not named:
            return {}
        self._watch.lap("store")
        with others_modes():
            started = checked(self._env, method, getattr(self._env, method)(named))
        self._watch.lap("step")
        for name, first in started.items():
            self._groups[name].restart(agents[name], first)
        return self._unusable(started)

    def _unusable(self, started: Mapping[str, Observation]) -> dict[str, list[int]]:
        """Return agents whose first observation is not finite, by behaviour."""
        return {
            name: group.unusable(started[name]) if name in started else []
            for name, group in self._groups.items()
        }

    def _on_bad_number(self, bad: BadNumber) -> None:
        """Treat a number that is not finite, with the facts of its episode."""
        episode = self._env.episode_of(bad.agent, begins=not bad.step)
        self._on_non_finite.handle(replace(bad, episode=episode, taken=self.steps))

    def _unlike(self, num_envs: int, parts: Mapping[str, State]) -> str:
        """Return why no agent can continue from ``parts``, the behaviours' states; empty if they can."""
        if num_envs != self._num_envs:
            return f"{num_envs} environments became {self._num_envs}"
        if parts.keys() != self._groups.keys():
            return f"the behaviours were {', '.join(parts)} and are {', '.join(self._groups)}"
        unlike = {name: group.unlike(parts[name]) for name, group in self._groups.items()}
        return "; ".join(f"{name}: {why}" for name, why in unlike.items() if why)

    def _begin_anew(self, parts: Mapping[str, State], why: str) -> str:
        """Begin new episodes for all agents; none continues from the saved ``parts``."""
        for name, part in parts.items():
            if name in self._groups:
                self._groups[name].abandon(part)
        self._reset({name: group.ids.tolist() for name, group in self._groups.items()})
        return f"{why}: all open episodes end as truncated"


def _with_rate(infos: dict[str, float], length: int) -> dict[str, float]:
    """Return an episode's infos with the share of a person's steps, and whether there were none."""
    by_person = infos.pop(PERSON, None)
    if by_person is None:
        return infos
    return {"intervention_rate": by_person / length, "unaided": float(by_person == 0), **infos}


def _lost_line(environments: list[int], reason: str) -> str:
    """Return the line on environments whose open episodes cannot continue."""
    which = ", ".join(map(str, environments))
    if len(environments) == 1:
        return f"environment {which}: {reason}; its open episode ends as truncated"
    return f"environments {which}: {reason}; their open episodes end as truncated"


class Iteration:
    """Iteration, a period in which each agent finishes an episode; the next one follows at once.

    It counts the agents that exist at the end of its first step; those that leave later are not waited for.
    An iteration without a finished episode does not end.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._expected: frozenset[tuple[str, int]] | None = None  # agents without a finished episode
        self._finished = False  # some agent has finished one

    def ends(self, episodes: list[Episode]) -> bool:
        """Return whether the iteration ends with a step that ended ``episodes``. Call it after every step."""
        agents = self._collector.agents
        expected = (self._expected or agents) & agents
        if episodes:
            self._finished = True
            expected -= {(episode.behaviour, episode.agent) for episode in episodes}
        self._expected = expected
        if expected or not self._finished:
            return False
        self._expected, self._finished = None, False
        return True

    def state(self) -> State:
        """Return the agents without a finished episode."""
        expected = None if self._expected is None else [list(agent) for agent in sorted(self._expected)]
        return State(meta={"expected": expected, "finished": self._finished})

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`."""
        expected = state.meta["expected"]
        self._expected = None if expected is None else frozenset((name, agent) for name, agent in expected)
        self._finished = state.meta["finished"]
