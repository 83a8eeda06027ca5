"""What the runner sees of any simulator: agents by behaviour name, stepped together.

An adapter turns a simulator's own spaces into :class:`~algorithm.spec.AgentSpec` and the flat action in
[-1, 1] into its own actions; nothing to the right of this package knows a simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithm.data import Array, Bool, Float, Int, State
from algorithm.spec import AgentSpec

EpisodeSeed = Callable[[int, int], int]
"""(environment index, episode number) -> seed of that reset, so that any episode can be replayed."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What N agents see; row i of every array is that of agent ``ids[i]``. N may be 0."""

    ids: Int  # [N] agent ids, all different, stable over an agent's life
    obs: dict[str, Array]  # name -> [N, ...]
    action_mask: Bool  # [N, ΣN]


@dataclass(frozen=True, kw_only=True)
class StepResult(Observation):
    """What N agents see next, and what their last action brought.

    ``obs`` is what to act on: the first observation of the next episode for an agent whose episode has ended.
    ``final`` holds what it saw at that end; rows of the other agents mean nothing there.

    An agent that is ``skipped`` took no step: its action had no effect and there is nothing to store. If its
    episode was still open, the simulator failed and the episode ends, truncated, where it was. ``obs`` is the
    first observation of its next episode.

    Agents may come and go: ``ids`` need not be those of the last observation, nor in the same order.

    * A new id is an agent that **appeared**. It took no step, so that its reward and its ends mean nothing;
      ``obs`` is its first observation.
    * An agent whose id is missing **vanished**. What its last action led to is not known: nothing is stored
      for it, and its episode, if it was still open, ends as truncated where it was.
    * An agent that has ``left`` finished its episode with this step and is not acted for until its id
      appears again. It is terminated or truncated, ``final`` holds what it saw last, and ``obs`` means
      nothing. One that is new and has left is passed over.

    An id that appears again is the same agent and begins another episode.
    """

    reward: Float  # [N]
    terminated: Bool  # [N] the task ended: nothing to bootstrap from
    truncated: Bool  # [N] cut off from outside: bootstrap from ``final``
    final: Observation | None = None  # in the same rows; present if any episode ended
    skipped: Bool | None = None  # [N] present if any agent was skipped
    left: Bool | None = None  # [N] present if any agent left


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A failure of a simulator, as its user needs it to find the cause."""

    what: str  # one line: what failed
    where: str  # copy, episode, seed, step, last action
    why: str  # type and message of the exception, signal of the process, or the time-out
    trace: str = ""  # the simulator's own traceback, where there is one
    fatal: bool = False  # it breaks its own spaces: a new copy would do the same
    harmless: bool = False  # nothing was started anew, the environment goes on

    @property
    def line(self) -> str:
        """All but the traceback on one line."""
        return f"{self.what} · {self.where} · {self.why}"


OnFault = Callable[[Fault], None]
"""Told of every failure that was survived by starting the simulator anew, and of what is harmless once."""

Picture = NDArray[np.uint8]
"""[H, W, 3], red, green and blue."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What it takes to repeat an episode: a reset with ``seed``, then the actions one after the other.

    to_env: turns a flat action [A] into the simulator's own
    """

    env_index: int
    episode: int
    seed: int
    actions: Float  # [L, A] flat, in [-1, 1]
    next_seed: int | None  # of the reset that followed; None while the episode is open
    to_env: Callable[[Float], Any]

    @property
    def env_actions(self) -> list[Any]:
        """The simulator's own actions as plain numbers, lists and dicts, made anew at every call."""
        return [_plain(self.to_env(action)) for action in self.actions]


def _plain(action: Any) -> Any:  # noqa: ANN401 - a space may hold anything
    if isinstance(action, Mapping):
        return {str(key): _plain(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return [_plain(part) for part in action]
    return np.asarray(action).tolist()


class VecEnv(Protocol):
    """Any number of environments with any number of agents, stepped together in a fixed order."""

    specs: Mapping[str, AgentSpec]  # behaviour name -> what its agents see and do
    time_limit: int | None  # steps after which an episode is truncated, where it is known
    fps: float | None  # images of `render` per second of simulated time, where it is known
    render_modes: tuple[str, ...]  # Gymnasium's names of the ways in which environment 0 can be shown
    arrangement: str  # number and place of the sub-environments, for messages: "4 in 2 worker processes"

    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> Mapping[str, Observation]:
        """Start new episodes in the environments ``indices`` (all by default).

        indices: environments, each named by the id of an agent that lives in it.
        episode: number of the episode to start; the next one by default.
        Returns for every behaviour the first observations of the agents in these environments. At the next
        step everybody keeps its row, and agents that are new with this reset follow, in the order in which
        they stand here. One that is gone with it still has an action in that step, without effect, and is
        missing in the result.
        """
        ...

    def step(self, actions: Mapping[str, Float]) -> Mapping[str, StepResult]:
        """One step with flat actions [N, A] per behaviour, in the order of the last observations.

        Agents that have left are no longer among them. Returns a result for every behaviour, with N = 0 where
        there is no agent of it. An environment whose episode ends is reset before the next step that counts
        for it. Raises :class:`~algorithm.errors.EnvError` if a simulator failed for good.
        """
        ...

    def state(self) -> State:
        """All that a later step depends on, as far as it can be known from outside of the simulators."""
        ...

    def resume(self, state: State) -> Mapping[int, str]:
        """Stand where ``state`` was taken; to be called after a reset of everything.

        Each open episode is begun again with its own seed and stepped with its own actions, which takes as
        long as it took: a million steps are possible. Numbers of episodes go on in any case.

        Returns the environments whose open episode is not there again bit for bit, each named by the id of an
        agent that lives in it, with the reason as a short phrase. The caller has to reset them, which begins
        their next episode. Raises :class:`~algorithm.errors.EnvError` if a simulator failed for good.
        """
        ...

    def trace(self, agent: int) -> Trace | None:
        """The episode that the agent's last step was part of, even if it ended with that step.

        None where it is not known.
        """
        ...

    def render(self) -> Picture | None:
        """A picture of environment 0; None if it has none.

        Raises :class:`~algorithm.errors.EnvError` if it fails.
        """
        ...

    def close(self) -> None:
        """Release the simulators."""
        ...
