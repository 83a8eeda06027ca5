"""Everything that a maker of environments is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algorithm.core.errors import EnvError
from algorithm.env.base import EpisodeSeed, OnFault, ignore_fault
from algorithm.env.config import UnityArgs
from algorithm.env.gym import GymEnv
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.pool.child_process import ignore_text
from algorithm.env.pool.env_group import MakeEnv
from algorithm.env.pool.executor import Executor, InProcessExecutor, WorkerExecutor, ignore_hang
from algorithm.env.pool.pool import EnvPool
from algorithm.env.wrappers import Wrapper


def as_it_is(env: Any) -> Any:  # noqa: ANN401 - any simulator
    """Return a simulator itself."""
    return env


@dataclass(frozen=True, kw_only=True)
class UnityOptions:
    """Settings of Unity players besides those of every environment.

    args:       ``base_config.unity_args``
    behaviours: those that ``ma_config`` names, which are waited for at the start
    purpose:    name of the players' files
    since:      number of the first start of each player; another one, and other seeds, in a resumed run
    """

    args: UnityArgs = field(default_factory=UnityArgs)
    behaviours: tuple[str, ...] = ()
    purpose: str = "player"
    since: int = 0


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """Place of environments, the parameters of their episodes, and the treatment of their failures.

    workers:  processes for the sub-environments, at most n; 0 for this process only
    timeout:  seconds after which a step or reset counts as hanging, -1 for never
    restarts: failures survived by a restart; ``on_fault`` is called with each
    on_hang:  called before a hang in this process ends it, in another thread; it gets a minute
    waiting:  called again and again while sub-environments are made, with a text on how far that is; what it
              raises ends that
    log:      folder for the output of worker processes, and of Unity's players; a temporary one by default
    unity:    more about Unity's players
    parameters: of each episode; none by default
    infos:    keys of the infos with numbers of an episode
    watch:    gets a simulator that steps many at once, and returns what is stepped in its place
    """

    workers: int = 0
    timeout: float = 120.0
    restarts: int = 10
    on_fault: OnFault = ignore_fault
    on_hang: Callable[[EnvError], None] = ignore_hang
    waiting: Callable[[str], None] = ignore_text
    log: Path | None = None
    unity: UnityOptions = field(default_factory=UnityOptions)
    parameters: ParameterSource = field(default_factory=ParameterSource)
    infos: tuple[str, ...] = ()
    watch: Callable[[Any], Any] = as_it_is

    def make(self, make: MakeEnv, *, n: int, seed_of: EpisodeSeed) -> EnvPool:
        """Return a pool of n environments. Raises EnvError if they cannot be built."""
        executor: Executor
        if self.workers:
            executor = WorkerExecutor(
                make, n, self.workers, timeout=self.timeout, log=self.log, waiting=self.waiting
            )
        else:

            def make_one(index: int) -> GymEnv:
                self.waiting(f"{index:,} of {n:,} environments are made")
                return make(index)

            executor = InProcessExecutor(make_one, n, timeout=self.timeout, on_hang=self.on_hang)
        return EnvPool(
            executor,
            seed_of=seed_of,
            parameters=self.parameters,
            restarts=self.restarts,
            on_fault=self.on_fault,
        )


@dataclass(frozen=True, kw_only=True)
class EnvRequest:
    """The environments that are wanted; for the fields see :func:`~algorithm.env.registry.make_vec_env`."""

    env_name: str
    seed_of: EpisodeSeed
    folder: Path | None = None
    env_args: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    options: Mapping[str, Any] | None = None
    render: bool = False
    video: bool = False
    wrappers: tuple[Wrapper, ...] = ()
    pool: PoolOptions = field(default_factory=PoolOptions)
