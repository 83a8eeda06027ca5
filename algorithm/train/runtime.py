"""The source of a session's transitions, the only difference between one process and many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from algorithm.agents.base import Agent
from algorithm.agents.roles import Collector, MakeReplay
from algorithm.config.schema import BaseConfig
from algorithm.core.spec import AgentSpec
from algorithm.core.timing import Stopwatch
from algorithm.env.base import VecEnv
from algorithm.experience.collector import LocalCollector
from algorithm.experience.faults import Faults
from algorithm.experience.non_finite import OnNonFinite
from algorithm.replay.buffer import ReplayBuffer

if TYPE_CHECKING:
    from algorithm.train.session import Session


class EnvInfo(Protocol):
    """Facts on the environments for the makers of agents and for the start screen."""

    @property
    def specs(self) -> Mapping[str, AgentSpec]:
        """Observations and actions of each behaviour."""
        ...

    @property
    def time_limit(self) -> int | None:
        """Steps of an episode before the environment truncates it; None if unknown."""
        ...

    @property
    def arrangement(self) -> str:
        """Arrangement of the environments, for a person."""
        ...


class Runtime(Protocol):
    """The source of transitions, made before the agents, with hooks for the loop's begin and end."""

    @property
    def scene(self) -> EnvInfo:
        """Environments that the agents are made for."""
        ...

    @property
    def make_replay(self) -> MakeReplay:
        """Constructor of the agents' replays."""
        ...

    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        """Return the source of the agents' transitions."""
        ...

    def begin(self) -> None:
        """Start collecting: agents and collector are complete, restored if there was a checkpoint."""
        ...

    def end(self, *, stopped: bool) -> None:
        """Stop collecting. stopped: by a signal, and not because the training is complete."""
        ...


def local_collector(
    env: VecEnv,
    base: BaseConfig,
    on_non_finite: OnNonFinite,
    agents: Mapping[str, Agent],
    watch: Stopwatch,
) -> LocalCollector:
    """Return a collector of agents that act in ``env``, which is reset here."""
    return LocalCollector(
        env,
        {name: agent.policy for name, agent in agents.items()},
        agents,
        num_envs=base.n_envs,
        length_limit=base.max_step_each_iter,
        watch=watch,
        on_non_finite=on_non_finite,
    )


Wire = Callable[["Session", VecEnv | None, Faults], Runtime]
"""(session, its evaluation environment if it has one, receiver of failures) -> runtime."""


class OneProcess:
    """Runtime in which the agents act in this process."""

    def __init__(self, session: Session, eval_env: VecEnv | None, faults: Faults) -> None:
        self._base = base = session.loaded.config.base_config
        self._on_non_finite = session.on_non_finite(faults)
        self.make_replay: MakeReplay = ReplayBuffer
        self.scene = session.env(
            "train", base.n_envs, faults, render=session.options.render, workers=base.workers
        )

    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        """Return a collector of steps in the training environments."""
        return local_collector(self.scene, self._base, self._on_non_finite, agents, watch)

    def begin(self) -> None:
        """Do nothing: the loop itself collects."""

    def end(self, *, stopped: bool) -> None:
        """Do nothing: the loop itself collects."""
