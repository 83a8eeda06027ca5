"""The base class of agents, which each family extends, and the definition of a family."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.divergence import DivergenceMonitor
from algorithm.agents.health import Rule
from algorithm.agents.learner import Learner
from algorithm.agents.roles import (
    Acting,
    ActingInputs,
    AgentInputs,
    DivergenceReport,
    ExploringPolicy,
    RemoteLimits,
    SamplingPolicy,
    Tensors,
)
from algorithm.core.console import Readout
from algorithm.core.data import Int, State, StepBatch
from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.keys.behaviour import BehaviourConfig, idle
from algorithm.nn.loader import Network, instance
from algorithm.replay.buffer import ReplayBuffer


class Agent(ABC):
    """Learner, exploring policy and stored experience of one behaviour.

    A family sets ``policy`` and ``replay``, and implements the abstract methods. A family without a replay
    overrides :meth:`add_steps`.

    inputs:         spec, configuration, seed, device and the rest it is built from
    learner:        trains the networks
    sources:        class name in an ``nn.py`` -> origin of that network, for the start screen
    demonstrations: None without any
    block:          block of the configuration with the learner's ``learning_rate``
    """

    policy: ExploringPolicy
    replay: ReplayBuffer | None = None
    warm_up_steps: int = 0
    """Environment steps before the first update."""

    def __init__(
        self,
        inputs: AgentInputs,
        learner: Learner,
        *,
        sources: Mapping[str, str] | None = None,
        demonstrations: DemoStore | None = None,
        block: str = COMMON_BLOCK,
    ) -> None:
        self.spec = inputs.spec
        self.config = inputs.config
        self.learner = learner
        self.inputs = inputs
        self._reward_scale = np.float32(inputs.config.base_config.reward_scale)
        self._sources = dict(sources or {})
        self._demonstrations = demonstrations
        self._guard = DivergenceMonitor(learner, block)
        self.stop: Callable[[], bool] = lambda: False  # true: learn returns, and updates stay due
        self._masked = False  # a stored mask has forbidden a choice

    @override
    def __repr__(self) -> str:
        parts = f"{self.inputs.behaviour!r}, {self.spec!r}, {self.learner}, {self.replay}"
        return f"{type(self).__name__}({parts})"

    @property
    def updates_per_step(self) -> float:
        """Updates due per environment step after the warm-up, as far as it can be foreseen."""
        return 1.0

    @abstractmethod
    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Make all updates that are due after ``step`` environment steps of the behaviour.

        watch:    measures the time of sampling, updates and so on
        run_step: steps of all behaviours, by which schedules advance; by default ``step``
        """

    @property
    def owes_updates(self) -> bool:
        """True if :meth:`learn` returned early because of :attr:`stop`, with updates still due."""
        return False

    def acting_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that an exploring remote policy needs, by name; by default all networks."""
        return {"networks": self.learner.modules()}

    @abstractmethod
    def new_policy(self, purpose: str) -> SamplingPolicy:
        """Return a policy without exploration on these networks; purpose: seeds its random numbers."""

    def own_state(self) -> Mapping[str, State]:
        """Return the states that a family adds to :meth:`state`, by name."""
        return {}

    def own_metrics(self, step: int) -> Mapping[str, float]:
        """Return the values that a family logs, means over its last updates; none before the first."""
        return {}

    def own_notices(self) -> list[str]:
        """Return lines on the family's keys that are set and have no effect, or less than expected."""
        return []

    def own_rows(self) -> Rows:
        """Return the family's lines for the start screen, on memory, stored experience and algorithm."""
        return []

    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by network."""
        return {}

    @property
    def notices(self) -> list[str]:
        """Lines on keys that are set and have no effect, or less than expected."""
        of_demonstrations = self._demonstrations.notices if self._demonstrations else ()
        return [*self.own_notices(), *idle(self.config), *of_demonstrations]

    @property
    def updates(self) -> int:
        """Number of gradient updates so far, those of all resumed parts of the run included."""
        return self.learner.updates

    @property
    def weights_version(self) -> int:
        """Number of versions of ``acting_parts`` so far that remote actors were to be sent."""
        return self.updates // self.config.base_config.update_sac_bak_per_step

    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per environment step of the behaviour; NaN before the first update."""
        return self.updates / step if self.updates and step else math.nan

    def pretrain(self, stop: Callable[[], bool]) -> Mapping[str, float]:
        """Make the updates before the first environment step that are still left; return values to log.

        stop: true to return early; the rest is made by the next call
        """
        return {}

    def add_steps(self, steps: StepBatch) -> None:
        """Store transitions, with rewards multiplied by ``base_config.reward_scale``."""
        assert self.replay is not None
        if self._reward_scale != 1.0:
            steps = replace(steps, reward=steps.reward * self._reward_scale)
        self.added(self.replay.add_steps(steps), steps)

    def added(self, ids: Int, new: StepBatch) -> None:
        """Process transitions that have just been stored in the rows ``ids``."""
        self.learner.observe(new)
        self._masked = self._masked or not new.acted_on(new.action_mask, new.next_action_mask).all()

    def close(self, stream: int) -> None:
        """End the open episode of a stream, as truncated."""
        if self.replay is not None:
            self.replay.close(stream)
        self.learner.close(stream)

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return the replays for checkpoints, by name: "" if there is only one; empty without any."""
        return {} if self.replay is None else {"": self.replay}

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with the networks of a checkpoint, and targets equal to them.

        optim: the checkpoint's optimiser state; None: optimisers begin anew
        Raises ValueError as :meth:`.Learner.load_tensors`.
        """
        self.learner.begin_with(model, optim)

    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Set ``restore``, which returns the last checkpoint's tensors or None, and the report of faults."""
        self._guard.attach(restore=restore, report=report)

    def state(self) -> State:
        """Return the whole state except for tensors and replays; to be called between two steps."""
        shown = self._demonstrations.state() if self._demonstrations else {}
        basics = State(meta={"updates": self.updates, "masked": bool(self._masked), **shown})
        parts = {"own": basics, "policy": self.policy.state(), "divergence": self._guard.state()}
        return State.joined({**parts, **self.own_state()})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned, after tensors and replays have been loaded."""
        basics = state.part("own").meta
        if self._demonstrations:
            self._demonstrations.check(basics)
        self._masked = basics["masked"]
        self.policy.load_state(state.part("policy"))
        self._guard.load_state(state.part("divergence"))

    def metrics(self, step: int) -> dict[str, float]:
        """Return values to log, means over the last updates; ``step`` as in :meth:`learn`."""
        values = {"optim/skipped": float(self._guard.skipped), **self.own_metrics(step)}
        ratio = self.update_ratio(step)
        if self.updates and not math.isnan(ratio):  # updates may come before all steps
            values["time/replay_ratio"] = ratio
        return values

    def rows(self) -> Rows:
        """Return (label, text) of each line that the start screen shows about the agent.

        Models and parameters, then :meth:`own_rows` and demonstrations.
        """
        sizes = ", ".join(f"{name} {n:,}" for name, n in self.num_parameters().items() if n)
        models = ", ".join(f"{name} {source}" for name, source in self._sources.items())
        rows = [(name, text) for name, text in (("models", models), ("parameters", sizes)) if text]
        shown = self._demonstrations.rows() if self._demonstrations else []
        return [*rows, *self.own_rows(), *shown]


@dataclass(frozen=True, kw_only=True, repr=False)
class Family:
    """Definition of an algorithm family: constructors of its agents, and how they are displayed.

    make_agent:   constructor; raises UsageError if the agent's experience does not fit into the memory
    make_acting:  constructor of a remote actor's policy, with initial weights; None: the family cannot be
                  distributed
    remote_limits: limits on the transitions that remote actors send, for a configuration
    keys:         dataclass of the family's own keys, ``algorithm_args`` of the configuration
    networks:     classes in an ``nn.py`` besides ``ModelRep``, by name; a family without any has no ``nn.py``
    health_rules: health rules that apply to a configuration, by name
    watched:      metrics that those rules read
    readouts:     lines of the terminal's panel
    always_saved: every checkpoint holds the replay, because agents cannot continue without it
    processes:    number of processes that train an agent; if it may exceed 1, the agent is a Contributor
    rows:         rows in the batch of an update; with 0, updates on vectors are not put on a GPU
    """

    name: str
    make_agent: Callable[[AgentInputs], Agent]
    make_acting: Callable[[ActingInputs], Acting] | None = None
    remote_limits: Callable[[BehaviourConfig], RemoteLimits] = lambda _: RemoteLimits()
    keys: type[Any] = object
    networks: Mapping[str, Network] = field(default_factory=dict)
    health_rules: Callable[[BehaviourConfig], Mapping[str, Rule]] = lambda _: {}
    watched: Sequence[str] = ()
    readouts: Sequence[Readout] = ()
    always_saved: bool = False
    processes: Callable[[BehaviourConfig], int] = lambda _: 1
    rows: Callable[[BehaviourConfig], int] = lambda _: 0

    @override
    def __repr__(self) -> str:
        return f"Family({self.name!r})"

    def keys_of(self, config: BehaviourConfig) -> Any:  # noqa: ANN401 - as ``keys`` says
        """Return the family's own keys. Raises ModelError for an unknown key or a wrong value."""
        return instance(
            self.keys,
            (),
            config.algorithm_args,
            name=self.name,
            key="algorithm_args",
            where=self.keys.__module__,
        )
