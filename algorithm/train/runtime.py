"""How a session comes by its transitions: the one thing in which one process and many differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from algorithm.config.schema import BaseConfig
from algorithm.env.base import VecEnv
from algorithm.experience.collector import LocalCollector
from algorithm.experience.faults import Faults
from algorithm.experience.non_finite import OnNonFinite
from algorithm.replay.buffer import ReplayBuffer
from algorithm.roles import Agent, Collector, MakeReplay
from algorithm.spec import AgentSpec
from algorithm.timing import Stopwatch

if TYPE_CHECKING:
    from algorithm.train.session import Session


class EnvInfo(Protocol):
    """What agents see and do, and where, for whoever builds them and for the start screen."""

    @property
    def specs(self) -> Mapping[str, AgentSpec]:
        """See :class:`~algorithm.env.base.VecEnv`."""
        ...

    @property
    def time_limit(self) -> int | None:
        """See :class:`~algorithm.env.base.VecEnv`."""
        ...

    @property
    def arrangement(self) -> str:
        """See :class:`~algorithm.env.base.VecEnv`."""
        ...


class Runtime(Protocol):
    """Made before the agents, asked for their feed, and told when a training begins and ends."""

    @property
    def scene(self) -> EnvInfo:
        """What the agents are made for."""
        ...

    @property
    def make_replay(self) -> MakeReplay:
        """What their replays are made by."""
        ...

    def feed(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        """Where their transitions come from."""
        ...

    def begin(self) -> None:
        """Agents and feed are what they were at the checkpoint, if there was one: the loop begins."""
        ...

    def end(self, *, stopped: bool) -> None:
        """The loop has ended. stopped: by a signal, and not because the training is complete."""
        ...


def local_feed(
    env: VecEnv,
    base: BaseConfig,
    on_non_finite: OnNonFinite,
    agents: Mapping[str, Agent],
    watch: Stopwatch,
) -> LocalCollector:
    """Agents that act in ``env``, which is reset here, and store what they do."""
    return LocalCollector(
        env,
        {name: agent.policy for name, agent in agents.items()},
        agents,
        num_envs=base.n_envs,
        length_limit=base.max_step_each_iter,
        watch=watch,
        on_non_finite=on_non_finite,
    )


Wire = Callable[["Session", VecEnv, Faults], Runtime]
"""(session, its evaluation environment, where to report failures) -> wiring."""


class OneProcess:
    """The agents act right here. See :class:`Runtime`."""

    def __init__(self, session: Session, eval_env: VecEnv, faults: Faults) -> None:
        self._base = base = session.loaded.config.base_config
        self._on_non_finite = session.on_non_finite(faults)
        self.make_replay: MakeReplay = ReplayBuffer
        self.scene = session.env(
            "train", base.n_envs, faults, render=session.options.render, workers=base.workers
        )

    def feed(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        """See :class:`Runtime`: the agents' own steps in the training environments."""
        return local_feed(self.scene, self._base, self._on_non_finite, agents, watch)

    def begin(self) -> None:
        """Nobody waits for it."""

    def end(self, *, stopped: bool) -> None:
        """Nobody waits for it."""
