"""The interface of any simulator: agents by behaviour name, stepped together.

An adapter turns a simulator's own spaces into :class:`~algorithm.core.spec.AgentSpec`, and the flat action in
[-1, 1] into its own actions. No package that imports this one depends on a simulator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, SupportsFloat, TypeVar

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.core.steps import Array, Bool, Double, Float, Int

EpisodeSeed = Callable[[int, int], int]
"""(environment index, episode number) -> seed of that reset, so that any episode can be replayed."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Observations of N agents; row i of every array belongs to agent ``ids[i]``. N may be 0."""

    ids: Int  # [N] agent ids, all different, stable over an agent's life
    obs: dict[str, Array]  # name -> [N, ...]
    action_mask: Bool  # [N, ΣN]


@dataclass(frozen=True, kw_only=True)
class ResetResult(Observation):
    """First observations of the agents in environments that were reset.

    removed: ids that these environments had before, waiting or not, and that are not in ``ids``
    """

    removed: Int | None = None


class Executed(NamedTuple):
    """Actions of N agents as they were executed, where these are not the requested ones."""

    action: Float  # [N, A]; undefined in other rows
    replaced: Bool  # [N]
    by_person: Bool  # [N] those among them that a person has done


@dataclass(frozen=True, kw_only=True)
class StepResult(Observation):
    """Next observations of N agents, with the results of their last actions.

    ``obs`` is the next observation to act on: the first of the next episode for an agent whose episode has
    ended. ``final`` holds the last observation of that episode; rows of the other agents are undefined.

    A ``skipped`` agent took no step: its action had no effect and there is nothing to store. If its episode
    was still open, the simulator failed and the episode ends there, truncated. ``obs`` is the first
    observation of its next episode.

    Agents may come and go: ``ids`` may differ from those of the last observation, also in order.

    * A new id is an agent that **appeared**. It took no step, so its reward and ends are undefined; ``obs``
      is its first observation.
    * An agent whose id is missing **waits**: its last action continues, and it needs no other one. The next
      result with its id belongs to that action, and has the whole reward since.
    * An agent that has ``vanished`` is gone without an end, whether it acted or waited. The result of its
      last action is unknown: nothing is stored for it, and an open episode ends there as truncated. If the
      same id appears with this result, it is another agent's.
    * An agent that has ``left`` finished its episode with this step and does not act until its id appears
      again. It is terminated or truncated, ``final`` holds its last observation, and ``obs`` is undefined.
      One that is new and has left is ignored.

    * An agent that was truncated and is ``unknown`` has lost its last observation to the simulator. Its
      episode ends there, but the last transition is not stored.

    An id that appears again starts another episode. Ids are unique over all behaviours.
    """

    reward: Float | Double  # [N] as it came, also beyond float32
    terminated: Bool  # [N] the task ended: no bootstrap
    truncated: Bool  # [N] cut off: bootstrap from ``final``
    final: Observation | None = None  # in the same rows; present if any episode ended
    executed: Executed | None = None  # present if any agent did another action than the one asked for
    skipped: Bool | None = None  # [N] present if any agent was skipped
    left: Bool | None = None  # [N] present if any agent left
    unknown: Bool | None = None  # [N] present if the last observation of any is unknown
    vanished: Int | None = None  # ids; present if any agent vanished


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A failure of a simulator, with the facts that help to find the cause."""

    what: str  # one line: what failed
    where: str  # environment, episode, seed, step, last action
    why: str  # type and message of the exception, signal, or time-out
    trace: str = ""  # the simulator's traceback, if any
    fix: str = ""  # advice where the fault is harmless: nothing was restarted

    @property
    def line(self) -> str:
        """The fault on one line, without the traceback."""
        return " · ".join(filter(None, (self.what, self.where, self.why)))


OnFault = Callable[[Fault], None]
"""Receiver of every failure that a restart survives, and of each harmless one once."""


def ignore_fault(fault: Fault) -> None:
    """Discard a fault: the default receiver."""


Picture = NDArray[np.uint8]
"""An image [H, W, 3]: red, green and blue."""


class VecEnv(Protocol):
    """Any number of environments with any number of agents, stepped together in a fixed order."""

    specs: Mapping[str, AgentSpec]  # behaviour name -> observations and actions of its agents
    time_limit: int | None  # steps after which an episode is truncated, where it is known
    fps: float | None  # images of `render` per second of simulated time, where it is known
    render_modes: tuple[str, ...]  # Gymnasium's names of the ways in which environment 0 can be shown
    masked: bool = True  # whether any action mask was received; true if that is unknown
    arrangement: str  # number and place of the sub-environments, for messages: "4 in 2 worker processes"

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> Mapping[str, ResetResult]:
        """Start new episodes in the environments ``indices`` (all by default).

        indices: environments, each named by the id of an agent in it
        episode: number of the episode to start; the next one by default

        Returns for every behaviour the first observations of the agents in these environments. Every former
        agent of them is either among them or ``removed``. In the next step all agents keep their order, less
        those removed; agents that are new with this reset follow, in the order returned.
        """

    def drop(self, agents: Collection[int]) -> Mapping[str, ResetResult]:
        """End the episodes of ``agents`` where they are; by default this is a :meth:`reset`."""
        return self.reset(sorted(agents))

    def step(self, actions: Mapping[str, Float]) -> Mapping[str, StepResult]:
        """Step once with flat actions [N, A] per behaviour, in the order of the last observations.

        Agents that wait or have left have no row. Returns a result for every behaviour, with N = 0 where it
        has no agent. An environment whose episode ends is reset before the next step that counts for it.
        Raises :class:`~algorithm.core.errors.EnvError` if a simulator failed for good.
        """

    def state(self) -> State:
        """Return all that later steps depend on, as far as it is visible outside the simulators."""

    def resume(self, state: State) -> Mapping[int, str]:
        """Continue where ``state`` was taken; call it after a reset of everything.

        Each open episode is started again with its own seed and repeats its own actions, at the speed of the
        simulator: a million steps are possible. Numbers of episodes continue in any case.

        Returns the environments whose open episode was not reproduced bit for bit, each named by the id of an
        agent in it, with the reason as a short phrase. The caller has to reset them, which starts their next
        episode. Raises :class:`~algorithm.core.errors.EnvError` if a simulator failed for good.
        """

    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        """Take the parameters of episodes that have not begun yet from these lessons, parameter -> name.

        Open episodes go on as they are. By default nothing: an environment without parameters has no lessons.
        """
        return

    def must_pause(self) -> bool:
        """Return whether learning has to pause, since an action is due; by default none has a fixed time."""
        return False

    def environments_of(self, agents: Collection[int]) -> list[int]:
        """Return the numbers of the environments of ``agents``; by default each has that of its agent."""
        return sorted(agents)

    def team_of(self, agent: int) -> int:
        """Return the number of the agent's team; by default all agents are in team 0."""
        return 0

    def episode_of(self, agent: int, *, begins: bool) -> str:
        """Return environment, number and seed of the episode of the agent's last step, for a message.

        begins: of the episode that has begun since, if that step has ended one
        Empty if it is unknown, as by default.
        """
        return ""

    def infos(self, agent: int) -> dict[str, float]:
        """Return numbers of the episode of the agent's last step from its infos, by key; none by default."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Return metrics that the simulators have recorded since the last call; nothing by default."""
        return {}

    def render(self) -> Picture | None:
        """Return an image of environment 0; None without one, as by default. Raises EnvError."""
        return None

    def close(self) -> None:
        """Release the simulators."""


_MUST_RETURN: Mapping[str, tuple[type, type, str]] = {
    "reset": (Mapping, ResetResult, "a dict: name of a behaviour -> algorithm.env.base.ResetResult"),
    "drop": (Mapping, ResetResult, "a dict: name of a behaviour -> algorithm.env.base.ResetResult"),
    "step": (Mapping, StepResult, "a dict: name of a behaviour -> algorithm.env.base.StepResult"),
    "state": (State, np.ndarray, "algorithm.core.data.State(arrays, meta): arrays of NumPy, and plain JSON"),
    "resume": (Mapping, str, "a dict: agent -> reason why its open episode cannot go on; {} if all can"),
    "infos": (Mapping, SupportsFloat, "a dict: name -> number; {} without any"),
    "metrics": (Mapping, SupportsFloat, "a dict: name, which begins with plugin/ -> number; {} without any"),
}
"""Method -> type of its result, type of the values in that, and both in words."""

_T = TypeVar("_T")


def checked(env: VecEnv, method: str, result: _T) -> _T:
    """Return the result of a method of a user's environments. Raises EnvError for one of a wrong type."""
    kind, of_values, must = _MUST_RETURN[method]
    if isinstance(result, kind) and _fits(result, of_values):
        return result
    raise EnvError(
        "a method of the environments returns a wrong type",
        where=f"{type(env).__module__}.{type(env).__qualname__}.{method}",
        why=f"it has returned {result!r:.80}",
        fix=f"return {must}",
    )


def _fits(result: Any, of_values: type) -> bool:  # noqa: ANN401 - a mapping, or a State
    """Return whether all values of a result have a type; a state must also be one that can be saved."""
    if isinstance(result, State):
        try:
            json.dumps(result.meta, allow_nan=False)
        except (TypeError, ValueError):
            return False
        result = result.arrays
    return all(isinstance(value, of_values) for value in result.values())
