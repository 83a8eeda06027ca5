"""The source of a training's transitions, which is all that differs between one process and several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Collector, MakeReplay
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BaseConfig
from algorithm.core.errors import UsageError
from algorithm.core.extras import extra
from algorithm.core.spec import AgentSpec
from algorithm.core.timing import Stopwatch
from algorithm.env.base import VecEnv
from algorithm.replay.buffer import ReplayBuffer
from algorithm.run.experience.collector import LocalCollector
from algorithm.run.experience.non_finite import OnNonFinite
from algorithm.run.experience.offline import OfflineCollector
from algorithm.run.training_context import TrainingContext


@dataclass(frozen=True)
class EnvInfo:
    """Facts on the environments of a training.

    specs:       observations and actions of each behaviour
    time_limit:  steps of an episode before the environment truncates it; None if unknown
    arrangement: of the environments, for a person
    """

    specs: Mapping[str, AgentSpec]
    time_limit: int | None
    arrangement: str

    @classmethod
    def of(cls, env: VecEnv) -> EnvInfo:
        """Return the facts on environments in this process."""
        return cls(env.specs, env.time_limit, env.arrangement)


class Runtime(ABC):
    """The source of transitions, made before the agents, with hooks for the loop's begin and end.

    remote:      the agents act in other processes
    env:         environments that the agents are made for
    make_replay: constructor of the agents' replays
    """

    remote: ClassVar[bool]
    env: EnvInfo
    make_replay: MakeReplay

    @abstractmethod
    def __init__(self, context: TrainingContext, eval_env: VecEnv | None) -> None:
        """Make the runtime.

        eval_env: environment of evaluations, if there is one
        """

    @abstractmethod
    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        """Return the source of the agents' transitions."""

    def begin(self) -> None:  # noqa: B027 - nothing to start where the training's loop collects
        """Start collecting; agents and collector are complete, and restored if there was a checkpoint."""

    def end(self, stopped: Callable[[], bool]) -> None:  # noqa: B027
        """Stop collecting. stopped: returns whether the training was ended before its limit."""


class LocalRuntime(Runtime):
    """Runtime in which the agents act in this process, and the training's loop collects.

    vec_env: the environments of the training
    """

    remote = False

    @override
    def __init__(self, context: TrainingContext, eval_env: VecEnv | None) -> None:
        self._base = context.loaded.config.base_config
        self._on_non_finite = context.on_non_finite(context.inputs.run.argument)
        self.vec_env = context.env(
            "train", self._base.n_envs, render=context.inputs.render, workers=self._base.workers
        )
        self.env = EnvInfo.of(self.vec_env)
        self.make_replay = ReplayBuffer

    @override
    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        return local_collector(self.vec_env, self._base, self._on_non_finite, agents, watch)


class OfflineRuntime(Runtime):
    """Runtime without environments to step: agents learn from demonstrations.

    The environment of evaluations has the observations and actions.
    """

    remote = False

    @override
    def __init__(self, context: TrainingContext, eval_env: VecEnv | None) -> None:
        assert eval_env is not None, "the configuration refuses the Unity Editor"
        self.env = EnvInfo(eval_env.specs, eval_env.time_limit, "none is stepped for training")
        self.make_replay = ReplayBuffer

    @override
    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        return OfflineCollector(agents)


def chosen_runtime(loaded: LoadedConfig, runtime: type[Runtime], *, greedy: bool) -> type[Runtime]:
    """Return ``runtime``, or another class if several processes train or no environment is stepped.

    greedy: agents act without sampling
    """
    if is_offline(loaded):
        if runtime.remote:
            raise UsageError(
                "actors step environments, and offline training steps none",
                where="demonstrations.offline",
                why="a learner's updates follow the steps of its actors",
                fix="train without a learner and actors",
            )
        return OfflineRuntime
    if runtime.remote or num_processes(loaded) == 1:
        return runtime
    if greedy:
        raise UsageError(
            "--disable_sample works with one process only",
            why="the training processes sample from the policy",
            fix="leave it out, or set num_processes: 1",
        )
    of_processes: type[Runtime] = extra("AsyncRuntime")
    return of_processes


def num_processes(loaded: LoadedConfig) -> int:
    """Return the number of processes that train. Raises UsageError if it differs between behaviours."""
    numbers = {family(config).processes(config) for config in (loaded.config, *loaded.behaviours.values())}
    if len(numbers) > 1:
        raise UsageError(
            "behaviours of one environment are trained by different numbers of processes",
            where=f"{loaded.source}: ma_config",
            why=f"they are {' and '.join(map(str, sorted(numbers)))}",
            fix="set for all behaviours, and the top level, the same algorithm and num_processes",
        )
    return numbers.pop()


def is_offline(loaded: LoadedConfig) -> bool:
    """Return whether agents learn from demonstrations alone, without an environment to step."""
    configs = loaded.behaviours.values() or [loaded.config]
    return any(config.demonstrations.offline for config in configs)


def check_together(loaded: LoadedConfig, behaviours: Iterable[str]) -> None:
    """Raise UsageError if some of an environment's behaviours learn offline, and others do not."""
    if len({loaded.for_behaviour(name).demonstrations.offline for name in behaviours}) > 1:
        raise UsageError(
            "some behaviours of one environment learn offline, and others do not",
            where=f"{loaded.source}: ma_config",
            why="no environment is stepped offline, so the others would have nothing to learn from",
            fix="set the same demonstrations.offline for all behaviours",
        )


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
