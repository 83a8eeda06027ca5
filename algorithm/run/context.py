"""Environments and agents of a configuration, for training, playing and checks."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from algorithm.agents.base import Agent
from algorithm.agents.networks import pick_device, suits_gpu
from algorithm.agents.registry import family
from algorithm.agents.roles import AgentInputs, MakeReplay
from algorithm.config.by_spaces import for_spaces
from algorithm.config.loader import LoadedConfig
from algorithm.core.console import Console
from algorithm.core.errors import COMMON_BLOCK, EnvError, StorageError, UsageError
from algorithm.core.program import flag_or_argument, program
from algorithm.core.spec import AgentSpec
from algorithm.demos.sources import load_demonstrations
from algorithm.env.base import VecEnv
from algorithm.env.config import without_team
from algorithm.env.env_id import extend_path
from algorithm.env.objects import EnvObject
from algorithm.env.parameters.curricula import check_lessons
from algorithm.env.registry import make_vec_env
from algorithm.nn.process import others_modes, set_matmul_precision, set_up_process
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer
from algorithm.run.experience.faults import Faults
from algorithm.run.experience.goals import make_relabel
from algorithm.run.experience.non_finite import Drop, OnNonFinite, Stop
from algorithm.run.experience.requests import Purpose, env_request
from algorithm.run.inputs import blame_user_code, nn_file, own_classes, use_modules
from algorithm.store.checkpoints.checkpoint import Checkpoint
from algorithm.store.names import behaviour_file


@dataclass(kw_only=True)
class RunContext:
    """A configuration, and the maker of its environments and agents.

    loaded: configuration; :meth:`fit` adds the sections by its spaces
    device: of the networks, by name; ``auto``: a GPU where there is one, for images and large networks
    faults: receiver of the failures that environments survive
    stack:  closes everything that is opened here; reports an error in a user's code as such
    files:  folder for the output of workers and players; None: nothing is kept
    seed:   seed of the environments, instead of the run's
    since:  step from which a run is resumed, for other seeds of Unity's players
    lessons: lessons of evaluations; by default the last one of each curriculum
    env_object: environments that were passed as Python objects
    """

    loaded: LoadedConfig
    device: str
    faults: Faults
    stack: ExitStack
    files: Path | None = None
    seed: int | None = None
    since: int = 0
    lessons: Mapping[str, str] | None = None
    env_object: EnvObject | None = None

    def __post_init__(self) -> None:
        use_modules(self.loaded)
        pick_device(self.device)  # refuses one that is not there
        self.stack.push(partial(blame_user_code, self.loaded))

    @property
    def console(self) -> Console:
        """The console of the run."""
        return self.faults.console

    def fit(self, specs: Mapping[str, AgentSpec]) -> None:
        """Add the sections for the behaviours' spaces to the configuration, and choose a device."""
        self.loaded = fitted(self.loaded, specs)
        self.device = str(self._device(self.loaded, specs))

    def _device(self, loaded: LoadedConfig, specs: Mapping[str, AgentSpec]) -> torch.device:
        """Return one device for all behaviours: ``auto`` is a GPU if that suits any of them."""
        configs = {name: loaded.for_behaviour(name) for name in specs}
        suits = (suits_gpu(family(config), config, specs[name]) for name, config in configs.items())
        return pick_device(self.device, suits_gpu=any(suits))

    @others_modes()
    def env(
        self, purpose: Purpose, n: int = 1, *, render: bool = False, workers: int = 0, film: bool = False
    ) -> VecEnv:
        """Make n environments for one purpose, seeded for it.

        render:  show the first one in a window
        workers: number of processes for them; 0: this process
        film:    the first one can render images
        """
        base = self.loaded.config.base_config
        source = self.env_object.source(purpose) if self.env_object else None
        if purpose == "evaluate":
            episodes = self.loaded.config.eval_config.episodes
            n = (source and source.lanes) or max(n, episodes if base.kind.lanes else 1)
        request = replace(
            env_request(self.loaded, purpose, source=source, seed=self.seed, lessons=self.lessons),
            n=n,
            render=render,
            video=film,
            workers=workers,
            on_fault=self.faults,
            on_hang=self.faults.hangs,
            waiting=self.faults.waiting,
            log=self.files / ("players" if base.kind.player else "workers") if self.files else None,
            since=self.since,
        )
        env = make_vec_env(request)
        self.stack.callback(self._close, env)
        return env

    @others_modes()
    def _close(self, env: VecEnv) -> None:
        """Release simulators; a failure is only a warning, since they are not needed any more."""
        try:
            env.close()
        except EnvError as error:
            self.console.warn(error.line)

    def on_non_finite(self, task: str, *, most: float = math.inf) -> OnNonFinite:
        """Return the treatment of episodes with numbers that are not finite.

        task: environment as the command line names it; most: how many episodes may be dropped
        """
        if self.loaded.config.base_config.on_non_finite == "drop":
            return Drop(self.faults, most=most)
        command = shlex.join([*program(), task, "--check", f"--seed={self.loaded.seed}"])
        again = (
            flag_or_argument(command, f"asac.check({task!r})")
            if self.env_object is None
            else "asac.check(env)"
        )
        return Stop(f"{again}    (plays random actions; reset(seed=…) begins this very episode)")

    def agents(
        self,
        specs: Mapping[str, AgentSpec],
        networks: Path,
        *,
        memory: MemoryBudget | None = None,
        greedy: bool = False,
        make_replay: MakeReplay = ReplayBuffer,
        learning: bool = True,
    ) -> dict[str, Agent]:
        """Make one agent per behaviour of the environment, each from its own merged configuration.

        networks: folder of ``nn.py``; memory: budget of the replays, by default the machine's
        learning: read the demonstrations, which an agent that only plays does not need
        Raises UsageError for a behaviour that does not exist, for demonstrations that cannot be used, and for
        replays that do not fit into ``memory``.
        """
        loaded, memory = self.loaded, memory or MemoryBudget()
        check_behaviours(loaded, specs)
        agents, device = dict[str, Agent](), self._device(loaded, specs)
        source = self.env_object.train if self.env_object else None
        for name, spec in specs.items():
            config = loaded.for_behaviour(name)
            file = nn_file(config, networks)
            demos = relabel = None
            if learning:
                demos = load_demonstrations(config.demonstrations, spec, name, loaded.env_dir, specs)
                relabel = make_relabel(loaded, name, spec, self.stack, source)
            if file is not None:  # a learner may have made no environment
                extend_path(loaded.env_dir)
            inputs = AgentInputs(
                spec,
                config,
                nn_file=file,
                behaviour=name,
                seed=loaded.seed,
                device=device,
                memory=memory,
                greedy=greedy,
                make_replay=make_replay,
                demonstrations=demos,
                relabel=relabel,
            )
            agents[name] = family(config).make_agent(inputs)
        modules = [module for agent in agents.values() for module in agent.acting_parts().values()]
        set_matmul_precision(loaded.config.run.matmul_precision, modules, device)
        return agents

    def players(self, specs: Mapping[str, AgentSpec], networks: Path, saved: Checkpoint) -> dict[str, Agent]:
        """Make agents that only act, with a checkpoint's networks. Raises StorageError if they do not fit."""
        set_up_process(self.loaded.config.run.threads)
        # Nothing is stored, so no page of the replays is touched and their size does not matter.
        agents = self.agents(specs, networks, memory=MemoryBudget(free=sys.maxsize), learning=False)
        for name, agent in agents.items():
            try:
                agent.learner.load_model(saved.tensors[behaviour_file(name, "model")])
            except (KeyError, ValueError) as error:
                raise StorageError(
                    "the checkpoint does not fit this agent",
                    where=saved.path,
                    why=str(error) if isinstance(error, ValueError) else f"it has no networks for {name!r}",
                    fix="use the networks and the configuration it was trained with",
                ) from error
        return agents


def check_behaviours(loaded: LoadedConfig, specs: Mapping[str, AgentSpec]) -> None:
    """Raise UsageError if ``ma_config`` or a lesson names a behaviour that the environment does not have."""
    unknown = sorted(set(loaded.behaviours).difference(specs, map(without_team, specs)))
    if unknown:
        raise UsageError(
            f"ma_config names {', '.join(map(repr, unknown))}, which the environment does not have",
            where=loaded.file or loaded.source,
            why=f"its behaviours are {', '.join(map(repr, specs))}",
            fix="rename or remove that part of ma_config",
        )
    check_lessons(loaded.config.parameters, specs)


def check_eval_spaces(
    loaded: LoadedConfig, train: Mapping[str, AgentSpec], evaluation: Mapping[str, AgentSpec]
) -> None:
    """Raise unless evaluations have the same observations and actions as the training.

    Raises UsageError if evaluations have their own wrappers, else EnvError.
    """
    for name in {**train, **evaluation}:
        spec, other = train.get(name), evaluation.get(name)
        if spec == other:
            continue
        what = "evaluations have other observations or actions than the training"
        why = f"{name}: {other or 'nothing'} there, and {spec or 'nothing'} in the training"
        if loaded.config.eval_config.wrappers is not None:
            raise UsageError(
                what,
                where="eval_config.wrappers",
                why=why,
                fix="repeat the base_config.wrappers that change observations or actions",
            )
        raise EnvError(what, why=why, fix="the environment must have the same spaces at every start")


def fitted(loaded: LoadedConfig, specs: Mapping[str, AgentSpec]) -> LoadedConfig:
    """Return the configuration for a run of these behaviours, with the sections by their spaces.

    ``compile: auto`` becomes off if it is not worth it, so that a prolonged run goes on as it began.
    Raises UsageError for a section that the spaces contradict, and as :func:`~.inputs.nn_file`.
    """
    loaded = for_spaces(loaded, specs, partial(own_classes, folder=loaded.env_dir))
    return loaded.resolved(
        COMMON_BLOCK,
        lambda config: (
            {"compile": "off"} if config.run.compile == "auto" and not config.worth_compiling else {}
        ),
    )
