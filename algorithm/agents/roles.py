"""The interfaces between an algorithm family and the rest of the program.

A family (:mod:`algorithm.agents.registry`) implements them. Trainer, checkpoints, evaluation, checks, pages
and ``ds`` use nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from algorithm.core.data import ActorOutput, Array, Bool, Demonstrations, Episode, Float, State, StepBatch
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows
from algorithm.keys.behaviour import BehaviourConfig

if TYPE_CHECKING:  # a family's name and its keys are asked for before torch is loaded
    import torch
    from torch import Tensor, nn

    from algorithm.replay.budget import MemoryBudget
    from algorithm.replay.buffer import ReplayBuffer
    from algorithm.replay.relabel import Relabel

Tensors = Mapping[str, Mapping[str, "Tensor"]]
"""File of a checkpoint -> name -> tensor."""


class Policy(Protocol):
    """Policy that acts for any number of agents of one behaviour."""

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of a carry's recorded part, its first numbers: the networks' memory, or (0,) for none."""

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return actions of N ≥ 1 agents, among those that ``action_mask`` [N, ΣN] allows.

        obs: [N, ...] by name; prev_action: [N, A] flat, 0 at the start; carry: [N, *C]
        """


class SamplingPolicy(Policy, Protocol):
    """Policy that can also act by its mode."""

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
    """Policy that collects experience: random actions while ``warming_up``, then samples."""

    warming_up: bool

    def state(self) -> State:
        """Return the state of the random numbers, and whether the policy is warming up."""

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""


class Recorder(Protocol):
    """Destination of transitions, such as an agent."""

    def add_steps(self, steps: StepBatch) -> None:
        """Store transitions: a step of all environments, or several from a remote actor."""

    def close(self, stream: int) -> None:
        """End the open episode of an agent, ``stream``, as truncated."""


class Collector(Protocol):
    """Source of transitions, a step at a time: local environments or remote actors."""

    @property
    def steps(self) -> int:
        """Number of transitions of all agents so far; all of them have been stored."""

    @property
    def behaviour_steps(self) -> Mapping[str, int]:
        """Name of a behaviour -> number of its agents' transitions, of ``steps`` in all."""

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent that exists now."""

    def step(self) -> list[Episode]:
        """Take a step, or wait a moment for a remote one; return the episodes that ended with it."""

    def must_pause(self) -> bool:
        """Return whether learning has to pause, since the next action is due."""

    def truncate(self) -> None:
        """End unfinished local episodes as truncated and begin new ones."""

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Take the environments' parameters from these lessons, from the next reset of each on.

        lessons: parameter -> name of its lesson; reset: reset all at once, open episodes end as truncated
        Returns whether all episodes that end from now on began in these lessons.
        """

    def state(self) -> State:
        """Return the state for :meth:`load_state`; to be called between two steps."""

    def load_state(self, state: State) -> list[str]:
        """Continue from what :meth:`state` returned; return a line on everything that is not exact."""

    def metrics(self) -> dict[str, float]:
        """Return values to log at a summary."""

    def rows(self) -> Rows:
        """Return further lines for a run's panel in the terminal."""


class DivergenceReport(Protocol):
    """Receiver of reports on updates that are not finite."""

    def skipped(self, line: str) -> None:
        """Report skipped steps; not called for every step."""

    def rolled_back(self, line: str) -> None:
        """Report that the networks went back to a checkpoint."""

    def info(self, line: str) -> None:
        """Report something that is no fault, such as the start of a compilation."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """Work of an agent's copy in another process, for the owner's statistics and counts. Can be pickled.

    rows:    observations of its steps that have running statistics, name -> [n, ...]
    returns: its rewards, see :meth:`~algorithm.core.data.Rewarded.rewards`; their streams are its own
    updates: number of gradient updates; skipped: number of skipped ones among them
    staleness: for each update, the number of updates of other processes since its weights were read
    metrics: of the last update
    """

    rows: Mapping[str, Array]
    returns: Sequence[tuple[int, int, list[float], bool]]
    updates: int
    skipped: int
    staleness: Sequence[int]
    metrics: Mapping[str, float]

    def rewards(self) -> Iterator[tuple[int, int, list[float], bool]]:
        """Yield ``returns``, as :class:`~algorithm.core.data.Rewarded` requires."""
        return iter(self.returns)


class Contributor(Protocol):
    """Agent that several processes may train: one of them owns it, and the others have a copy each."""

    def weights(self) -> Sequence[Tensor]:
        """Return the tensors [P] that an update changes: parameters and the optimiser's state."""

    def statistics(self) -> Tensor:
        """Return the running statistics of observations and rewards, [S] in double precision."""

    def join(self, shared: Sequence[Tensor]) -> None:
        """Become a copy, which acts by its own parameters and applies its updates to ``shared`` weights."""

    def renew(self, statistics: Tensor) -> None:
        """Read the shared parameters, and load the owner's statistics. For a copy, between rollouts."""

    def contribution(self, stream: Callable[[int], int], staleness: Sequence[int]) -> Contribution:
        """Return a copy's work since the last call; stream: maps its streams to numbers of the owner's."""

    def take_in(self, work: Contribution) -> None:
        """Add a copy's work to the owner's statistics and counts."""


MakeReplay = Callable[..., "ReplayBuffer"]
"""Constructor with the arguments of :class:`~algorithm.replay.buffer.ReplayBuffer`."""


@dataclass(frozen=True, repr=False)
class Inputs:
    """Inputs of the networks that act.

    spec:      observations and actions
    config:    merged configuration of the behaviour
    nn_file:   the task's networks; None for the defaults
    behaviour: its name; all random numbers are derived from a seed and this name
    seed:      of the run, and so of the initial networks
    device:    of the networks
    """

    spec: AgentSpec
    config: BehaviourConfig
    _: KW_ONLY
    nn_file: Path | None
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

    memory:      budget of stored experience
    greedy:      act with the policy's mode while training
    make_replay: constructor of the replay; None: :class:`~algorithm.replay.buffer.ReplayBuffer`
    demonstrations: episodes to learn from; None without any, and for an agent that does not learn
    relabel:     change of sampled windows; None for no change
    """

    _: KW_ONLY
    memory: MemoryBudget
    greedy: bool = False
    make_replay: MakeReplay | None = None
    demonstrations: Demonstrations | None = None
    relabel: Relabel | None = None


@dataclass(frozen=True)
class Acting:
    """Exploring policy of a remote actor, and the modules into which its weights are loaded."""

    policy: ExploringPolicy
    parts: Mapping[str, nn.Module]


@dataclass(frozen=True)
class RemoteLimits:
    """Limits on the transitions that remote actors send for a behaviour.

    max_length: transitions of all agents in a message; None: ``base_config.max_episode_length``
    max_lag:    versions by which the weights that acted may be older than the newest; None: any
    """

    max_length: int | None = None
    max_lag: int | None = None
