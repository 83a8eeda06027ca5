"""The roles of a training: all that the parts outside a family use of an agent.

A family (:mod:`algorithm.agents.registry`) fills them in. Trainer, checkpoints, evaluation, checks, pages and
``ds`` use nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.core.data import ActorOutput, Array, Bool, Demonstrations, Float, Segment, State, StepBatch
from algorithm.core.panels import Readout
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows

if TYPE_CHECKING:  # a family's name and its keys are asked for before torch is loaded
    import torch
    from torch import Tensor, nn

    from algorithm.core.timing import Stopwatch
    from algorithm.nn.loader import Network, NnFile
    from algorithm.replay.budget import MemoryBudget
    from algorithm.replay.buffer import ReplayBuffer

Tensors = Mapping[str, Mapping[str, "Tensor"]]
"""File of a checkpoint -> name -> tensor."""


class Policy(Protocol):
    """An actor for any number of agents of one behaviour."""

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of a recorded carry: the whole carry's, or (0,) for nothing."""
        ...

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""
        ...

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return actions of N ≥ 1 agents, among those that ``action_mask`` [N, ΣN] allows."""
        ...


class SamplingPolicy(Policy, Protocol):
    """A policy that can also return its mode."""

    @override
    def act(
        self,
        obs: Mapping[str, Array],
        prev_action: Float,
        carry: Float,
        action_mask: Bool,
        *,
        greedy: bool = False,
    ) -> ActorOutput:
        """Return actions of N ≥ 1 agents; ``greedy``: the mode instead of a sample."""
        ...


class ExploringPolicy(Policy, Protocol):
    """The policy that collects experience: random while ``warming_up``, then sampled."""

    warming_up: bool

    def state(self) -> State:
        """Return its random numbers and whether it is warming up."""
        ...

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        ...


class Recorder(Protocol):
    """A destination of transitions."""

    def add_steps(self, steps: StepBatch) -> None:
        """Store a transition of each of several agents."""
        ...

    def close(self, stream: int) -> None:
        """End the agent's unfinished episode as truncated."""
        ...


class SegmentRecorder(Protocol):
    """A destination of transitions that come several at a time, from a remote actor."""

    def add(self, segment: Segment) -> None:
        """Store consecutive transitions of one agent."""

    def close(self, stream: int) -> None:
        """End the agent's unfinished episode as truncated."""


@dataclass(frozen=True)
class Episode:
    """A finished episode of one agent."""

    behaviour: str
    agent: int
    total: float  # undiscounted return
    length: int


class Collector(Protocol):
    """A source of transitions, a step at a time: local environments or remote actors."""

    @property
    def steps(self) -> int:
        """Steps of all agents so far: transitions, all of which the agents have."""
        ...

    @property
    def behaviour_steps(self) -> Mapping[str, int]:
        """Behaviour -> its agents' share of ``steps``."""
        ...

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent that is there now."""
        ...

    def step(self) -> list[Episode]:
        """Take a step, or wait a moment for a remote one; returns the episodes that ended with it."""
        ...

    def truncate(self) -> None:
        """End unfinished local episodes as truncated and begin new ones."""
        ...

    def state(self) -> State:
        """Return what :meth:`load_state` continues from, between two steps."""
        ...

    def load_state(self, state: State) -> list[str]:
        """Continue from what :meth:`state` returned; returns a line on each thing that is not exact."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return values to log at a summary."""
        ...

    def rows(self) -> Rows:
        """Return more lines for the panel of a run."""
        ...


class DivergenceReport(Protocol):
    """A receiver of reports on updates that are not finite."""

    def skipped(self, line: str) -> None:
        """Report skipped steps; not called for every one."""

    def rolled_back(self, line: str) -> None:
        """Report that the networks went back to a checkpoint."""

    def told(self, line: str) -> None:
        """Report something that is no fault."""


class Agent(Recorder, SegmentRecorder, Protocol):
    """Learner, exploring policy and stored experience of one behaviour."""

    spec: AgentSpec
    config: BehaviourConfig
    policy: ExploringPolicy

    @property
    def updates(self) -> int:
        """Gradient updates so far."""
        ...

    @property
    def warm_up_steps(self) -> int:
        """Environment steps before the first update."""
        ...

    @property
    def updates_per_step(self) -> float:
        """Gradient updates due for an environment step after the warm-up, as far as it is known."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Lines on keys that are set and have no effect, or less than expected."""
        ...

    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Make all updates due after ``step`` steps of the behaviour; ``watch`` is charged with their parts.

        run_step: steps of all behaviours, for what changes with the run's progress; by default ``step``
        """
        ...

    def pretrain(self, stop: Callable[[], bool]) -> Mapping[str, float]:
        """Make what is left of updates due before the first step; return values to log, none without any."""
        ...

    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per step of the behaviour; NaN before learning."""
        ...

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return stored experience by name, for checkpoints; "" for an only one. May be empty."""
        ...

    def acting_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that an exploring remote policy needs, by name."""
        ...

    @property
    def weights_version(self) -> int:
        """Number of times so far that remote actors were due new ``acting_parts``."""
        ...

    def new_policy(self, purpose: str) -> SamplingPolicy:
        """Return a policy without exploration on these networks, with random numbers of its own."""
        ...

    def tensors(self) -> Tensors:
        """Return what training continues from, by file of a checkpoint; ``model`` holds all networks."""
        ...

    def trained(self) -> Collection[str]:
        """Return the names of the tensors in ``model`` that an optimiser trains."""
        ...

    def load_tensors(self, tensors: Tensors, updates: int) -> bool:
        """Take over what :meth:`tensors` returned; returns whether random numbers continue too.

        Raises ValueError if networks differ in name or shape.
        """
        ...

    def load_model(self, model: Mapping[str, Tensor]) -> None:
        """Load networks alone, for inference. Raises ValueError as :meth:`load_tensors`."""
        ...

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, targets equal to them. Raises ValueError as :meth:`load_tensors`.

        optim: file of a checkpoint with the optimisers' moments; None: they begin anew
        """
        ...

    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Set the source of tensors for a diverged training: ``restore``; None: there is no checkpoint."""
        ...

    def state(self) -> State:
        """Return everything but tensors and stores, between two steps."""
        ...

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned, after tensors and stores were loaded."""
        ...

    def metrics(self, step: int) -> dict[str, float]:
        """Return values to log, means over the last updates; ``step`` as in :meth:`learn`."""
        ...

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """Return pictures of the last update, uint8 [H, W, C] by name."""
        ...

    def rows(self) -> Rows:
        """Return lines for the start screen: models, parameters, memory, algorithm."""
        ...


MakeReplay = Callable[..., "ReplayBuffer"]
"""A :class:`~algorithm.replay.buffer.ReplayBuffer` from that class's arguments, or its equal."""


class MakeAgent(Protocol):
    """Constructor of an agent. Raises UsageError if its experience does not fit into the memory."""

    def __call__(
        self,
        spec: AgentSpec,
        config: BehaviourConfig,
        *,
        nn_file: NnFile | None,
        behaviour: str,
        seed: int,
        device: torch.device,
        memory: MemoryBudget,
        greedy: bool = False,
        make_replay: MakeReplay = ...,
        demonstrations: Demonstrations | None = None,
    ) -> Agent:
        """Build the agent.

        spec:      observations and actions
        config:    the behaviour's own merged configuration
        nn_file:   the task's networks; None for the defaults
        behaviour: name; every random stream is derived from the seed and this name
        memory:    the budget of stored experience
        greedy:    act with the policy's mode while training
        make_replay: constructor of the replay; demonstrations: None, too, where nothing is learned
        """
        ...


@dataclass(frozen=True)
class Acting:
    """A remote exploring policy, and the modules that its weights are loaded into."""

    policy: ExploringPolicy
    parts: Mapping[str, nn.Module]


class MakeActing(Protocol):
    """Constructor of a remote actor's policy; its weights are those of the run's first moment."""

    def __call__(
        self,
        spec: AgentSpec,
        config: BehaviourConfig,
        *,
        nn_file: NnFile | None,
        behaviour: str,
        run_seed: int,
        own_seed: int,
        device: torch.device,
    ) -> Acting:
        """Build the policy; run_seed: of the networks, own_seed: of the policy's own random numbers."""
        ...


@dataclass(frozen=True)
class RemoteLimits:
    """Limits on what remote actors send for a behaviour.

    max_length: transitions of a segment; None: those of ``base_config.max_episode_length``
    max_lag:    versions that the weights of a stored segment may be behind; None: any
    """

    max_length: int | None = None
    max_lag: int | None = None


def _no_limits(config: BehaviourConfig) -> RemoteLimits:
    return RemoteLimits()


def _no_rules(config: BehaviourConfig) -> dict[str, Callable[[Any], str | None]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One algorithm family: construction and display of its agents.

    make_agent:   see :class:`MakeAgent`
    make_acting:  see :class:`MakeActing`; None: it cannot be distributed
    remote_limits: limits on what remote actors send, for a configuration
    networks:     classes of an ``nn.py`` besides ``ModelRep``, by name; a family without any has no ``nn.py``
    health_rules: rules of the watchdog that hold for a configuration, by name
    watched:      metrics that those rules read
    readouts:     lines of the live panel
    always_saved: agents cannot go on without what they store: every checkpoint holds it
    """

    name: str
    make_agent: MakeAgent
    make_acting: MakeActing | None = None
    remote_limits: Callable[[BehaviourConfig], RemoteLimits] = _no_limits
    networks: Mapping[str, Network] = field(default_factory=dict)
    health_rules: Callable[[BehaviourConfig], Mapping[str, Callable[[Any], str | None]]] = _no_rules
    watched: Sequence[str] = ()
    readouts: Sequence[Readout] = ()
    always_saved: bool = False
