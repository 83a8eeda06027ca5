"""An agent: what all families share of it, what each of them adds, and a family itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.demonstrations import DemoStore, signal_rows
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
from algorithm.core.errors import RUN_BLOCK
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.extensions.base import Extension
from algorithm.keys.behaviour import BehaviourConfig, idle
from algorithm.nn.loader import Network, instance
from algorithm.replay.buffer import ReplayBuffer


class Agent(ABC):
    """Learner, exploring policy and stored experience of one behaviour: all that the rest asks of it.

    A family sets ``policy`` and ``replay``, and says what is abstract here. One without a replay takes its
    transitions from :meth:`add_steps`.

    inputs:         what it was made of
    learner:        of the networks
    sources:        class of an ``nn.py`` -> where it comes from
    demonstrations: None where there are none
    extensions:     whose pictures are shown
    block:          of the configuration, with the learner's ``learning_rate``
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
        extensions: Sequence[Extension] = (),
        block: str = RUN_BLOCK,
    ) -> None:
        self.spec = inputs.spec
        self.config = inputs.config
        self.learner = learner
        self.inputs = inputs
        self._reward_scale = np.float32(inputs.config.base_config.reward_scale)
        self._sources = dict(sources or {})
        self._demonstrations = demonstrations
        self._extensions = tuple(extensions)
        self._guard = DivergenceMonitor(learner, block)
        self.stop: Callable[[], bool] = lambda: False  # true: updates that are due are left owed
        self._masked = False  # a choice was not allowed in what was stored

    @override
    def __repr__(self) -> str:
        parts = f"{self.inputs.behaviour!r}, {self.spec!r}, {self.learner}, {self.replay}"
        return f"{type(self).__name__}({parts})"

    @property
    def updates_per_step(self) -> float:
        """Updates due for an environment step after the warm-up, as far as it is known."""
        return 1.0

    @abstractmethod
    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Make all updates due after ``step`` steps of the behaviour; ``watch`` is charged with their parts.

        run_step: steps of all behaviours, for what changes with the run's progress; by default ``step``
        """

    @property
    def owes_updates(self) -> bool:
        """True if :meth:`learn` has left updates that were due, because of :attr:`stop`."""
        return False

    def acting_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that an exploring remote policy needs, by name; without limits all of them."""
        return {"networks": self.learner.modules()}

    @abstractmethod
    def new_policy(self, purpose: str) -> SamplingPolicy:
        """Return a policy without exploration on these networks, with random numbers of its own."""

    def own_state(self) -> Mapping[str, State]:
        """Return the parts of the state that a family adds, by name."""
        return {}

    def own_metrics(self, step: int) -> Mapping[str, float]:
        """Return values to log, means over the last updates; none before the first."""
        return {}

    def own_notices(self) -> list[str]:
        """Return lines on the family's keys that are set and have no effect, or less than expected."""
        return []

    def own_rows(self) -> Rows:
        """Return lines for the start screen on memory, stored experience and algorithm."""
        return []

    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by part."""
        return {}

    @property
    def notices(self) -> list[str]:
        """Lines on keys that are set and have no effect, or less than expected."""
        shown = self._demonstrations.notices if self._demonstrations else ()
        return [*self.own_notices(), *idle(self.config), *shown]

    @property
    def updates(self) -> int:
        """Gradient updates so far."""
        return self.learner.updates

    @property
    def weights_version(self) -> int:
        """Number of times so far that remote actors were due new ``acting_parts``."""
        return self.updates // self.config.base_config.update_sac_bak_per_step

    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per step of the behaviour; NaN before learning."""
        return self.updates / step if self.updates and step else math.nan

    def pretrain(self, stop: Callable[[], bool]) -> Mapping[str, float]:
        """Make what is left of updates due before the first step; return values to log, none without any."""
        return {}

    def add_steps(self, steps: StepBatch) -> None:
        """Store transitions, with the rewards times ``base_config.reward_scale``."""
        assert self.replay is not None
        if self._reward_scale != 1.0:
            steps = replace(steps, reward=steps.reward * self._reward_scale)
        self.added(self.replay.add_steps(steps), steps)

    def added(self, ids: Int, new: StepBatch) -> None:
        """Process transitions that have just been stored; ids: of their rows."""
        self.learner.observe(new)
        self._masked = self._masked or not new.acted_on(new.action_mask, new.next_action_mask).all()

    def close(self, stream: int) -> None:
        """End an agent's unfinished episode as truncated."""
        if self.replay is not None:
            self.replay.close(stream)
        self.learner.close(stream)

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return stored experience by name, for checkpoints; "" for an only one. May be empty."""
        return {} if self.replay is None else {"": self.replay}

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, targets equal to them. Raises ValueError as ``learner.load_tensors``.

        optim: file of a checkpoint with the optimisers' moments; None: they begin anew
        """
        self.learner.begin_with(model, optim)

    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Set the source of tensors for a diverged training: ``restore``; None: there is no checkpoint."""
        self._guard.attach(restore=restore, report=report)

    def state(self) -> State:
        """Return everything but tensors and stores, between two steps."""
        shown = self._demonstrations.state() if self._demonstrations else {}
        own = State(meta={"updates": self.updates, "masked": bool(self._masked), **shown})
        parts = {"own": own, "policy": self.policy.state(), "divergence": self._guard.state()}
        return State.joined({**parts, **self.own_state()})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned, after tensors and stores were loaded."""
        own = state.part("own").meta
        if self._demonstrations:
            self._demonstrations.check(own)
        self._masked = own["masked"]
        self.policy.load_state(state.part("policy"))
        self._guard.load_state(state.part("divergence"))

    def metrics(self, step: int) -> dict[str, float]:
        """Return values to log, means over the last updates; ``step`` as in :meth:`learn`."""
        values = {"optim/skipped": float(self._guard.skipped), **self.own_metrics(step)}
        ratio = self.update_ratio(step)
        if self.updates and not math.isnan(ratio):  # updates may come before all steps
            values["time/replay_ratio"] = ratio
        return values

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """Return pictures of the last update, uint8 [H, W, C] by name. Waits for the device."""
        shown = [(x.prefix + name, one) for x in self._extensions for name, one in x.pictures().items()]
        return {name: picture.cpu().numpy() for name, picture in shown}

    def rows(self) -> Rows:
        """Return lines for the start screen: models, parameters, memory, algorithm."""
        sizes = ", ".join(f"{name} {n:,}" for name, n in self.num_parameters().items() if n)
        models = ", ".join(f"{name} {source}" for name, source in self._sources.items())
        rows = [(name, text) for name, text in (("models", models), ("parameters", sizes)) if text]
        shown = self._demonstrations.rows() if self._demonstrations else []
        return [*rows, *self.own_rows(), *shown, *signal_rows(self.config)]


@dataclass(frozen=True, kw_only=True, repr=False)
class Family:
    """One algorithm family: construction and display of its agents.

    make_agent:   constructor; raises UsageError if the agent's experience does not fit into the memory
    make_acting:  constructor of a remote actor's policy, with the weights of the run's first moment; None: it
                  cannot be distributed
    remote_limits: limits on what remote actors send, for a configuration
    keys:         dataclass of the keys of its own, ``algorithm_args`` of the configuration
    networks:     classes of an ``nn.py`` besides ``ModelRep``, by name; a family without any has no ``nn.py``
    health_rules: rules of the watchdog that hold for a configuration, by name
    watched:      metrics that those rules read
    readouts:     lines of the live panel
    always_saved: agents cannot go on without what they store: every checkpoint holds it
    processes:    processes that train an agent; if that may be more than 1, it is a Contributor
    rows:         rows of an update; with 0, updates of vectors do not suit a GPU
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
        """Return the keys of its own. Raises ModelError for one that it does not have, and a wrong value."""
        return instance(
            self.keys,
            (),
            config.algorithm_args,
            name=self.name,
            key="algorithm_args",
            where=self.keys.__module__,
        )
