"""The roles of a training: all that the parts outside a family use of an agent.

A family (:mod:`algorithm.agents.registry`) fills them in. Trainer, checkpoints, evaluation, checks, pages and
``ds`` use nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from algorithm.core.data import ActorOutput, Array, Bool, Demonstrations, Episode, Float, State, StepBatch
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows
from algorithm.keys.behaviour import BehaviourConfig

if TYPE_CHECKING:  # a family's name and its keys are asked for before torch is loaded
    import torch
    from torch import Tensor, nn

    from algorithm.nn.loader import NnFile
    from algorithm.replay.budget import MemoryBudget
    from algorithm.replay.buffer import ReplayBuffer
    from algorithm.replay.relabel import Relabel

Tensors = Mapping[str, Mapping[str, "Tensor"]]
"""File of a checkpoint -> name -> tensor."""


class Policy(Protocol):
    """An actor for any number of agents of one behaviour."""

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of what is recorded of a carry, its first numbers: the networks' own, or (0,) for nothing."""

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return actions of N ≥ 1 agents, among those that ``action_mask`` [N, ΣN] allows."""


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


class ExploringPolicy(Policy, Protocol):
    """The policy that collects experience: random while ``warming_up``, then sampled."""

    warming_up: bool

    def state(self) -> State:
        """Return its random numbers and whether it is warming up."""

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""


class Recorder(Protocol):
    """A destination of transitions."""

    def add_steps(self, steps: StepBatch) -> None:
        """Store transitions: a step of all environments, or several from a remote actor."""

    def close(self, stream: int) -> None:
        """End the agent's unfinished episode as truncated."""


class Collector(Protocol):
    """A source of transitions, a step at a time: local environments or remote actors."""

    @property
    def steps(self) -> int:
        """Steps of all agents so far: transitions, all of which the agents have."""

    @property
    def behaviour_steps(self) -> Mapping[str, int]:
        """Behaviour -> its agents' share of ``steps``."""

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent that is there now."""

    def step(self) -> list[Episode]:
        """Take a step, or wait a moment for a remote one; returns the episodes that ended with it."""

    def truncate(self) -> None:
        """End unfinished local episodes as truncated and begin new ones."""

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Take the environments' parameters from these lessons, from each one's next reset on.

        reset: that comes at once, and open episodes end as truncated
        Returns whether all episodes that end from here on began in these lessons.
        """

    def state(self) -> State:
        """Return what :meth:`load_state` continues from, between two steps."""

    def load_state(self, state: State) -> list[str]:
        """Continue from what :meth:`state` returned; returns a line on each thing that is not exact."""

    def metrics(self) -> dict[str, float]:
        """Return values to log at a summary."""

    def rows(self) -> Rows:
        """Return more lines for the panel of a run."""


class DivergenceReport(Protocol):
    """A receiver of reports on updates that are not finite."""

    def skipped(self, line: str) -> None:
        """Report skipped steps; not called for every one."""

    def rolled_back(self, line: str) -> None:
        """Report that the networks went back to a checkpoint."""

    def told(self, line: str) -> None:
        """Report something that is no fault."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """Steps of an agent in another process, and what it has learned from them there. Can be pickled.

    rows:    observations of the steps, name -> [n, ...], of those that have running statistics
    returns: see :meth:`~algorithm.core.data.Rewarded.rewards`; of streams that no other process has
    updates: gradient updates; skipped: of them
    staleness: of each update, those that other processes made since its weights were read
    metrics: of the last update
    """

    rows: Mapping[str, Array]
    returns: Sequence[tuple[int, int, list[float], bool]]
    updates: int
    skipped: int
    staleness: Sequence[int]
    metrics: Mapping[str, float]

    def rewards(self) -> Iterator[tuple[int, int, list[float], bool]]:
        """Yield the returns."""
        return iter(self.returns)


class Contributor(Protocol):
    """An agent that several processes may train: one of them owns it, and the others have a copy each."""

    def weights(self) -> Sequence[Tensor]:
        """Return what an update changes, [P] each: parameters and the optimiser's state."""

    def statistics(self) -> Tensor:
        """Return the running statistics of observations and rewards, [S] in double precision."""

    def join(self, shared: Sequence[Tensor]) -> None:
        """Become a copy, which acts by its own parameters and adds its steps to ``shared`` weights."""

    def renew(self, statistics: Tensor) -> None:
        """Read the shared parameters, and take over the owner's statistics. For a copy, between rollouts."""

    def contribution(self, stream: Callable[[int], int], staleness: Sequence[int]) -> Contribution:
        """Return what a copy has done since the last one; stream: names its streams for the owner."""

    def take_in(self, work: Contribution) -> None:
        """Take into the owner's statistics and counts what a copy has done."""


MakeReplay = Callable[..., "ReplayBuffer"]
"""A :class:`~algorithm.replay.buffer.ReplayBuffer` from that class's arguments, or its equal."""


@dataclass(frozen=True, repr=False)
class Inputs:
    """Inputs of the networks that act.

    config:    the behaviour's own merged configuration
    nn_file:   the task's networks; None for the defaults
    behaviour: name; every random stream is derived from a seed and this name
    seed:      of the run, and so of the first networks
    """

    spec: AgentSpec
    config: BehaviourConfig
    _: KW_ONLY
    nn_file: NnFile | None
    behaviour: str
    seed: int
    device: torch.device

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.behaviour!r}, {self.spec!r}, seed={self.seed}, {self.device})"


@dataclass(frozen=True, repr=False)
class ActingInputs(Inputs):
    """Inputs of a remote actor's policy; own_seed: of the policy's own random numbers."""

    _: KW_ONLY
    own_seed: int


@dataclass(frozen=True, repr=False)
class AgentInputs(Inputs):
    """Inputs of an agent.

    memory:      the budget of stored experience
    greedy:      act with the policy's mode while training
    make_replay: constructor of the replay; None: a plain one
    demonstrations: None, too, where nothing is learned
    relabel: a change of sampled windows; None: there is none
    """

    _: KW_ONLY
    memory: MemoryBudget
    greedy: bool = False
    make_replay: MakeReplay | None = None
    demonstrations: Demonstrations | None = None
    relabel: Relabel | None = None


@dataclass(frozen=True)
class Acting:
    """A remote exploring policy, and the modules that its weights are loaded into."""

    policy: ExploringPolicy
    parts: Mapping[str, nn.Module]


@dataclass(frozen=True)
class RemoteLimits:
    """Limits on what remote actors send for a behaviour.

    max_length: transitions of all agents in a message; None: as ``base_config.max_episode_length`` says
    max_lag:    versions that the weights of a stored segment may be behind; None: any
    """

    max_length: int | None = None
    max_lag: int | None = None
