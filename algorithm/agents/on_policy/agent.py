"""An on-policy agent: the only place that joins networks, learner, policy and ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithm.actions.actor import Actor
from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.demonstrations import DemoStore, signal_rows, unused
from algorithm.agents.divergence import DivergenceMonitor
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acting import acting_parts, clipping, new_actor
from algorithm.agents.on_policy.cloning import Cloning
from algorithm.agents.on_policy.config import BLOCKS, idle, own_block
from algorithm.agents.on_policy.learner import OnPolicyLearner
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.roles import DivergenceReport, ExploringPolicy, MakeReplay, Tensors
from algorithm.core.data import Demonstrations, Int, Segment, State, StepBatch
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.nn.loader import NnFile
from algorithm.nn.normalise import vector_names
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from algorithm.replay.sizing import largest_capacity, replay_bytes

_BETWEEN_STOPS = 100  # steps of cloning
_MANY_AGENTS = 64  # in an environment whose agents are not counted in advance


class OnPolicyAgent:
    """Learner, policy and rollouts of one behaviour.

    Transitions go into a small ring, as SAC's into its replay. Once ``rollout_step · n_envs`` of them are
    new, the learner gets these and no others. Those of remote actors may come from older networks.

    Raises UsageError if the ring does not fit into the memory.
    """

    def __init__(
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
        make_replay: MakeReplay = ReplayBuffer,
        demonstrations: Demonstrations | None = None,
    ) -> None:
        self.spec = spec = clipping(spec)
        self.config, self._device, self._seed, self._behaviour = config, device, seed, behaviour
        run, own = config.run, own_block(config)
        self._own, self._reward_scale = own, np.float32(config.base_config.reward_scale)
        networks = make_networks(spec, config, nn_file, NETWORKS, seed, behaviour)
        self._sources = networks.sources
        self._burn_in = run.burn_in_step if run.seq_encoder == "ATTN" else 0
        self._sequence: int = own.sequence if run.seq_encoder else 1
        carry_shape = networks.rep.stored_carry_shape
        self._size: int = own.rollout_step * config.base_config.n_envs
        self._reserve(memory, carry_shape)
        make_store = partial(
            DemoStore,
            spec=spec,
            # A recurrent state is not known: it is made of a whole sequence before the learned one.
            burn_in=self._sequence if run.seq_encoder == "RNN" else self._burn_in,
            learn=self._sequence,
            carry_shape=carry_shape,
            memory=memory,
            behaviour=behaviour,
        )
        self._demonstrations = make_store(demonstrations) if demonstrations is not None else None
        self.learner = OnPolicyLearner(
            spec,
            networks,
            own,
            gamma=run.gamma,
            normalised=run.use_normalization,
            scaled=run.reward_scaling,
            burn_in=self._burn_in,
            learn=self._sequence,
            device=device,
            seed=stream_seed(seed, "learner", behaviour),
            extensions=extensions_of(spec, config, networks, seed, behaviour, self._demonstrations),
        )
        if self._demonstrations:
            self._learn_from(self._demonstrations)
        self.ring = self._make_ring(carry_shape)
        self.policy: ExploringPolicy = BehaviourPolicy(
            spec,
            self.new_policy("acting"),
            stream(seed, "warm-up", behaviour),
            warming_up=False,
            greedy=greedy,
        )
        self._guard = DivergenceMonitor(self.learner, BLOCKS[config.algorithm])
        self._new: list[Int] = []  # ids of the transitions of this rollout
        self._num_new = 0
        self._lag = 0  # versions that the networks of the oldest of them are behind
        self._rollouts = 0
        self._pretrained = False
        self._metrics: dict[str, float] = {}
        self._falls = run.learning_rate_schedule == "linear", own.clip_schedule == "linear"

    def _reserve(self, memory: MemoryBudget, carry_shape: tuple[int, ...]) -> None:
        """Reserve the ring. Raises UsageError if it does not fit."""
        spec, rows = self.spec, self._ring_rows()
        memory.reserve(
            self._behaviour,
            capacity=rows,
            needed=replay_bytes(spec, rows, carry_shape, prioritised=False),
            largest_capacity=lambda n: self._longest(
                largest_capacity(spec, n, carry_shape, prioritised=False)
            ),
            key=f"{BLOCKS[self.config.algorithm]}.rollout_step",
        )

    def _make_ring(self, carry_shape: tuple[int, ...]) -> ReplayBuffer:
        return ReplayBuffer(
            self.spec,
            capacity=self._ring_rows(),
            batch_size=1,
            burn_in=self._burn_in,
            learn=self._sequence,
            n_step=1,
            carry_shape=carry_shape,
            sampler=UniformSampler(),
            seed=stream_seed(self._seed, "replay", self._behaviour),
        )

    def _learn_from(self, demonstrations: DemoStore) -> None:
        """Measure the observations of demonstrations, and clone them if that is wanted."""
        demonstrations.show(self.learner.model.normaliser)
        cloning, own = self.config.behavioral_cloning, self._own
        if cloning.strength:
            sequences = max(1, self._size // (own.num_minibatch * self._sequence))
            size, rate = cloning.batch_size or sequences, cloning.strength * own.learning_rate
            make = partial(Cloning, store=demonstrations, batch_size=size, learning_rate=rate)
            self.learner.begin_cloning(make)

    def _ring_rows(self) -> int:
        """Return room for two rollouts of the shortest episodes, and for what lies before open ones."""
        return 4 * self._size + self._open_rows()

    def _open_rows(self) -> int:
        agents = max(self.config.base_config.n_envs, _MANY_AGENTS)
        return (2 + int(self._burn_in)) * int(agents)

    def _longest(self, rows: int) -> int:
        """Return the largest ``rollout_step`` whose ring has at most ``rows``; 0 for none."""
        return max(0, rows - self._open_rows()) // (4 * int(self.config.base_config.n_envs))

    @property
    def updates(self) -> int:
        """Gradient updates so far."""
        return self.learner.updates

    @property
    def warm_up_steps(self) -> int:
        """Environment steps before the first update: a rollout; before it one that is only measured."""
        known = self._demonstrations is not None or not self.learner.model.normaliser.names
        return self._size if known else 2 * self._size

    @property
    def weights_version(self) -> int:
        """Rollouts so far: each changes the networks, or what is known of observations. So does cloning."""
        return self._rollouts + self._pretrained

    @property
    def updates_per_step(self) -> float:
        """Gradient updates for an environment step."""
        return self._own.num_epoch * self._own.num_minibatch / self._size

    @property
    def notices(self) -> list[str]:
        """Lines on keys that are set and have no effect, and on a training without an update."""
        lines = [*unused(self.config), *idle(self.config, self.warm_up_steps)]
        if not self._own.shared and not any(True for _ in self.learner.model.rep.parameters()):
            why = "the encoder learns nothing, so policy and values share nothing anyway"
            lines.append(f"{BLOCKS[self.config.algorithm]}.shared: false has no effect: {why}")
        return lines

    def pretrain(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Take the steps of ``behavioral_cloning.pretrain``; see :meth:`.roles.Agent.pretrain`."""
        left: int = self.config.behavioral_cloning.pretrain - self.learner.cloning_steps
        found: dict[str, float] = {}
        while left > 0 and not stop():
            n = min(left, _BETWEEN_STOPS)
            found = self.learner.clone(n)
            left, self._pretrained = left - n, True
        return found

    def update_ratio(self, step: int) -> float:
        """Return the achieved updates per environment step; NaN before the first."""
        return self.learner.updates / step if self.learner.updates and step else math.nan

    def stores(self) -> Mapping[str, ReplayBuffer]:
        """Return the ring."""
        return {"": self.ring}

    def acting_parts(self) -> Mapping[str, nn.Module]:
        """Return the modules that a remote policy needs."""
        return acting_parts(self.learner.model)

    def new_policy(self, purpose: str) -> Actor:
        """Return a policy with random numbers of its own."""
        seed = stream_seed(self._seed, purpose, self._behaviour)
        return new_actor(self.spec, self.learner.model, device=self._device, seed=seed)

    def add_steps(self, steps: StepBatch) -> None:
        """Store a step of several agents, with the rewards times ``base_config.reward_scale``.

        Raises UsageError where agents are so many that the step overwrites a rollout that was not full.
        """
        if self._reward_scale != 1.0:
            steps = replace(steps, reward=steps.reward * self._reward_scale)
        full = self._num_new >= self._size
        self._added(self.ring.add_steps(steps), steps)
        oldest = min(int(ids.min()) for ids in self._new if len(ids))
        if not full and oldest < self.ring.next_id - len(self.ring):
            raise self._overwritten()

    def add(self, segment: Segment) -> None:
        """Store transitions of one agent, likewise."""
        if self._reward_scale != 1.0:
            segment = replace(segment, reward=segment.reward * self._reward_scale)
        self._lag = max(self._lag, segment.lag)
        self._added(self.ring.add(segment), segment)

    def _added(self, ids: Int, new: StepBatch | Segment) -> None:
        self._new.append(ids)
        self._num_new += len(ids)
        self.learner.return_scale.observe(new)

    def close(self, stream: int) -> None:
        """End an agent's unfinished episode as truncated."""
        self.ring.close(stream)
        self.learner.return_scale.close(stream)

    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Learn from the rollout if it is full; see :meth:`algorithm.agents.roles.Agent.learn`."""
        if self._num_new < self._size:
            return
        watch = watch or Stopwatch()
        ids = np.sort(np.concatenate(self._new))
        batch = self.ring.chains(ids[ids >= self.ring.next_id - len(self.ring)])
        lag, self._lag = self._lag, 0
        self._new, self._num_new = [], 0
        self._rollouts += 1
        watch.lap("sample")
        normaliser = self.learner.model.normaliser
        measured = not normaliser.names or self.learner.observations > 0
        if measured:
            self._set_factors(step if run_step is None else run_step)
            metrics = self.learner.update(batch, current=lag == 0)
            finite = all(math.isfinite(value) for name, value in metrics.items() if name.startswith("loss/"))
            if self._guard.passes(batch, step, finite=finite):
                self._metrics = metrics
        if normaliser.names:  # after the update: the policy has acted with what was known before
            seen = slice(self._burn_in, -1), batch.valid[:, self._burn_in :]
            rows = {name: batch.obs[name][:, seen[0]][seen[1]] for name in normaliser.names}
            normaliser.observe({name: value.numpy() for name, value in rows.items()})
        watch.lap("update")

    def _overwritten(self) -> UsageError:
        agents, copies = max(map(len, self._new)), self.config.base_config.n_envs
        # Of a rollout and a step of all agents two rows each, and what lies before their open episodes.
        rows = 2 * agents + (2 + self._burn_in) * agents - self._open_rows()
        enough = max(-(-rows // (2 * copies)), 2 * self._own.rollout_step)
        return UsageError(
            "a rollout was overwritten before it was learned from",
            where=f"{BLOCKS[self.config.algorithm]}.rollout_step",
            why=f"{agents:,} agents of {self._behaviour!r} act at once, and there are {self.ring.capacity:,} "
            "rows for rollout_step · n_envs steps",
            fix=f"raise rollout_step to {enough:,} or more",
        )

    def _set_factors(self, step: int) -> None:
        left = max(0.0, 1.0 - step / self.config.base_config.max_step)
        rate, clip = (left if falls else 1.0 for falls in self._falls)
        steps = self.config.behavioral_cloning.steps
        cloning = max(0.0, 1.0 - step / steps) if steps else 1.0
        self.learner.set_factors(learning_rate=rate, clip=clip, cloning=cloning)

    def tensors(self) -> Tensors:
        """Return networks, optimiser and random state."""
        return self.learner.tensors()

    def trained(self) -> frozenset[str]:
        """Return the names of the trained tensors."""
        return self.learner.trained()

    def load_tensors(self, tensors: Tensors, updates: int) -> bool:
        """Take over what :meth:`tensors` returned; see :meth:`OnPolicyLearner.load_tensors`."""
        return self.learner.load_tensors(tensors, updates)

    def load_model(self, model: Mapping[str, Tensor]) -> None:
        """Load networks alone."""
        self.learner.load_model(model)

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, and with a rollout of theirs."""
        self.learner.begin_with(model, optim)
        self._new, self._num_new, self._lag = [], 0, 0

    def attach(self, *, restore: Callable[[], Tensors | None], report: DivergenceReport) -> None:
        """Go back to what ``restore`` returns when training diverges."""
        self._guard.attach(restore=restore, report=report)

    def metrics(self, step: int) -> dict[str, float]:
        """Return values to log, of the last rollout."""
        values = {"optim/skipped": float(self._guard.skipped)} | self._metrics
        if self.learner.updates:
            values["time/replay_ratio"] = self.update_ratio(step)
        return values

    def pictures(self) -> dict[str, NDArray[np.uint8]]:
        """Return none."""
        return {}

    def state(self) -> State:
        """Return all but networks, optimiser and ring, between two steps."""
        # Behind the next id: a larger ring may number its rows anew.
        ids = np.concatenate(self._new) - self.ring.next_id if self._new else np.empty(0, np.int64)
        finite = {name: value for name, value in self._metrics.items() if math.isfinite(value)}
        meta = {
            "updates": self.learner.updates,
            "rollouts": self._rollouts,
            "lag": self._lag,
            "metrics": finite,
        }
        if self._demonstrations:
            meta |= {"pretrained": self._pretrained, **self._demonstrations.state()}
        own = State({"rollout": ids}, meta)
        return State.joined({"own": own, "player": self.policy.state(), "guard": self._guard.state()})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; without its ring a rollout begins anew."""
        own = state.part("own")
        ids = own.arrays["rollout"].astype(np.int64)
        kept = ids[ids >= -len(self.ring)] + self.ring.next_id
        self._new, self._num_new = [kept], len(kept)
        self._rollouts, self._lag = int(own.meta["rollouts"]), int(own.meta["lag"])
        self._metrics = dict(own.meta["metrics"])
        if self._demonstrations:
            self._demonstrations.check(own.meta)
            self._pretrained = own.meta["pretrained"]
        self.policy.load_state(state.part("player"))
        self._guard.load_state(state.part("guard"))

    def rows(self) -> Rows:
        """Return lines for the start screen."""
        own, ring = self._own, self.ring
        rollout = f"{self._size:,} steps"
        if own.num_minibatch > 1:
            rollout += f", learned from {own.num_epoch} times in {own.num_minibatch} parts"
        parts = [f"λ {own.gae_lambda:g}", f"learning rate {own.learning_rate:g}"]
        if math.isfinite(own.clip):
            parts.append(f"clip {own.clip:g}")
        run = self.config.run
        if run.use_normalization and vector_names(self.spec.obs):
            parts.append("normalised observations")
        if run.reward_scaling:
            parts.append("scaled rewards")
        if run.curiosity:
            parts.append("curiosity")
        sizes = ", ".join(f"{name} {n:,}" for name, n in self.learner.num_parameters().items() if n)
        return [
            ("models", ", ".join(f"{name} {source}" for name, source in self._sources.items())),
            ("parameters", sizes),
            *self._memory_rows(),
            ("rollout", f"{rollout}; {ring.nbytes / 2**20:,.1f} MB"),
            *(self._demonstrations.rows() if self._demonstrations else []),
            ("algorithm", f"{self.config.algorithm}, {', '.join(parts)}"),
            ("acting", self.new_policy("acting").way(self.spec, self.config.base_config.n_envs)),
            *signal_rows(self.config),
        ]

    def _memory_rows(self) -> Rows:
        memory = self.config.run.seq_encoder
        if memory is None:
            return []
        how = "recurrent" if memory == "RNN" else f"attention to the last {self._burn_in} steps"
        return [("memory", f"{how}, sequences of {self._sequence} steps")]
