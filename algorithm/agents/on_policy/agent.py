"""An on-policy agent: the only place that joins networks, learner, policy and ring."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acktr import AcktrLearner
from algorithm.agents.on_policy.acting import acting_parts, clipping, new_actor
from algorithm.agents.on_policy.cloning import Cloning
from algorithm.agents.on_policy.config import idle
from algorithm.agents.on_policy.family_config import BLOCKS, AcktrConfig, own_block
from algorithm.agents.on_policy.learner import OnPolicyLearner
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import Int, Segment, SequenceBatch, State, StepBatch
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from algorithm.nn.normalise import vector_names
from algorithm.replay.buffer import ReplayBuffer

_BETWEEN_STOPS = 100  # steps of cloning


class OnPolicyAgent(Agent):
    """Learner, policy and rollouts of one behaviour.

    Transitions go into a small ring, as those of others into a replay. Once ``rollout_step · n_envs`` of them
    are new, the learner gets these and no others. Those of remote actors may come from older networks.

    Raises UsageError if the ring does not fit into the memory.
    """

    learner: OnPolicyLearner
    replay: ReplayBuffer

    def __init__(self, inputs: AgentInputs) -> None:
        inputs = replace(inputs, spec=clipping(inputs.spec))
        run, self._own = inputs.config.run, own_block(inputs.config)
        networks = make_networks(inputs, NETWORKS)
        self._ring = Ring(inputs, networks.rep.stored_carry_shape)
        shown = self._ring.demonstrations()
        make = AcktrLearner if isinstance(self._own, AcktrConfig) else OnPolicyLearner
        learner = make(
            inputs.spec,
            networks,
            self._own,
            gamma=run.gamma,
            normalised=run.use_normalization,
            scaled=run.reward_scaling,
            burn_in=self._ring.burn_in,
            learn=self._ring.sequence,
            device=inputs.device,
            seed=stream_seed(inputs.seed, "learner", inputs.behaviour),
            extensions=extensions_of(inputs, networks, shown),
        )
        self._block = BLOCKS[inputs.config.algorithm]
        super().__init__(inputs, learner, sources=networks.sources, demonstrations=shown, block=self._block)
        if shown:
            self._learn_from(shown)
        self.replay = self._ring.rows
        self.policy = BehaviourPolicy(
            self.spec,
            self.new_policy("acting"),
            stream(inputs.seed, "warm-up", inputs.behaviour),
            warming_up=False,
            greedy=inputs.greedy,
        )
        self._rollouts = 0
        self._pretrained = False
        self._metrics: dict[str, float] = {}
        known = shown is not None or not learner.model.normaliser.names
        self.warm_up_steps = self._ring.size if known else 2 * self._ring.size  # the first is only measured

    def _learn_from(self, demonstrations: DemoStore) -> None:
        """Measure the observations of demonstrations, and clone them if that is wanted."""
        demonstrations.show(self.learner.model.normaliser)
        cloning, own = self.config.behavioral_cloning, self._own
        if cloning.strength:
            sequences = max(1, self._ring.size // (own.num_minibatch * self._ring.sequence))
            size, rate = cloning.batch_size or sequences, cloning.strength * own.adam_rate
            make = partial(Cloning, store=demonstrations, batch_size=size, learning_rate=rate)
            self.learner.begin_cloning(make)

    @property
    @override
    def weights_version(self) -> int:
        """Rollouts so far: each changes the networks, or what is known of observations. So does cloning."""
        return self._rollouts + self._pretrained

    @property
    @override
    def updates_per_step(self) -> float:
        """Gradient updates for an environment step."""
        return self._own.num_epoch * self._own.num_minibatch / self._ring.size

    @override
    def own_notices(self) -> list[str]:
        """Return lines on keys that are set and have no effect, and on a training without an update."""
        lines = [*idle(self.config, self.warm_up_steps)]
        if not self._own.shared and not any(True for _ in self.learner.model.rep.parameters()):
            why = "the encoder learns nothing, so policy and values share nothing anyway"
            lines.append(f"{self._block}.shared: false has no effect: {why}")
        return lines

    @override
    def pretrain(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Take the steps of ``behavioral_cloning.pretrain``; see :meth:`.Agent.pretrain`."""
        left = self.config.behavioral_cloning.pretrain - self.learner.cloning_steps
        found: dict[str, float] = {}
        while left > 0 and not stop():
            n = min(left, _BETWEEN_STOPS)
            found = self.learner.clone(n)
            left -= n
            self._pretrained = True
        return found

    @override
    def acting_parts(self) -> dict[str, nn.Module]:
        """Return the modules that a remote policy needs."""
        return acting_parts(self.learner.model)

    @override
    def new_policy(self, purpose: str) -> Actor:
        """Return a policy with random numbers of its own."""
        inputs = self._inputs
        seed = stream_seed(inputs.seed, purpose, inputs.behaviour)
        return new_actor(self.spec, self.learner.model, device=inputs.device, seed=seed)

    @override
    def add_steps(self, steps: StepBatch) -> None:
        """Store a step of several agents; see :meth:`.Agent.add_steps`.

        Raises UsageError where agents are so many that the step overwrites a rollout that was not full.
        """
        full = self._ring.full
        super().add_steps(steps)
        if not full:
            self._ring.check()

    @override
    def add(self, segment: Segment) -> None:
        """Store transitions of one agent; see :meth:`.Agent.add`."""
        self._ring.lag = max(self._ring.lag, segment.lag)
        super().add(segment)

    @override
    def added(self, ids: Int, new: Segment | StepBatch) -> None:
        """Count transitions to the rollout."""
        self._ring.added(ids)
        super().added(ids, new)

    @override
    def learn(self, step: int, watch: Stopwatch | None = None, *, run_step: int | None = None) -> None:
        """Learn from the rollout if it is full; see :meth:`.Agent.learn`."""
        if not self._ring.full:
            return
        watch = watch or Stopwatch()
        batch, lag = self._ring.take()
        self._rollouts += 1
        watch.lap("sample")
        learner = self.learner
        if not learner.model.normaliser.names or learner.observations > 0:
            self._set_factors(step if run_step is None else run_step)
            metrics = learner.update(batch, current=lag == 0)
            finite = all(math.isfinite(value) for name, value in metrics.items() if name.startswith("loss/"))
            if self._guard.passes(batch, step, finite=finite):
                self._metrics = metrics
        self._measure(batch)  # after the update: the policy has acted with what was known before
        watch.lap("update")

    def _measure(self, batch: SequenceBatch) -> None:
        """Take the observations of a rollout into the running statistics."""
        normaliser, first = self.learner.model.normaliser, self._ring.burn_in
        if normaliser.names:
            valid = batch.valid[:, first:]
            rows = {name: batch.obs[name][:, first:-1][valid] for name in normaliser.names}
            normaliser.observe({name: value.numpy() for name, value in rows.items()})

    def _set_factors(self, step: int) -> None:
        left = max(0.0, 1.0 - step / self.config.base_config.max_step)
        rate_falls = self.config.run.learning_rate_schedule == "linear"
        clip_falls = self._own.clip_schedule == "linear"
        steps = self.config.behavioral_cloning.steps
        self.learner.set_factors(
            learning_rate=left if rate_falls else 1.0,
            clip=left if clip_falls else 1.0,
            cloning=max(0.0, 1.0 - step / steps) if steps else 1.0,
        )

    @override
    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, and with a rollout of theirs."""
        super().begin_with(model, optim)
        self._ring.clear()
        self._ring.lag = 0

    @override
    def own_metrics(self, step: int) -> dict[str, float]:
        """Return values of the last rollout."""
        return self._metrics

    @override
    def own_state(self) -> dict[str, State]:
        """Return the rollout in the making, and what is known of the last one."""
        finite = {name: value for name, value in self._metrics.items() if math.isfinite(value)}
        last = {"rollouts": self._rollouts, "pretrained": self._pretrained, "metrics": finite}
        return {"rollout": self._ring.state(), "last": State(meta=last)}

    @override
    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; without its ring a rollout begins anew."""
        super().load_state(state)
        self._ring.load_state(state.part("rollout"))
        last = state.part("last").meta
        self._rollouts = int(last["rollouts"])
        self._pretrained = bool(last["pretrained"])
        self._metrics = dict(last["metrics"])

    @override
    def num_parameters(self) -> Mapping[str, int]:
        """Return the numbers of trained parameters by part."""
        return self.learner.num_parameters()

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, rollout and algorithm, and on what computes actions."""
        own, run, ring = self._own, self.config.run, self._ring
        rollout = f"{ring.size:,} steps"
        if own.num_minibatch > 1:
            rollout += f", learned from {own.num_epoch} times in {own.num_minibatch} parts"
        parts = [f"λ {own.gae_lambda:g}", f"learning rate {own.learning_rate:g}"]
        if math.isfinite(own.clip):
            parts.append(f"clip {own.clip:g}")
        if isinstance(own, AcktrConfig):
            parts.append(f"trust region {own.kl_clip:g}")
        if run.use_normalization and vector_names(self.spec.obs):
            parts.append("normalised observations")
        if run.reward_scaling:
            parts.append("scaled rewards")
        if run.curiosity:
            parts.append("curiosity")
        rows = [
            ("rollout", f"{rollout}; {self.replay.nbytes / 2**20:,.1f} MB"),
            ("algorithm", f"{self.config.algorithm}, {', '.join(parts)}"),
            ("acting", self.new_policy("acting").way(self.spec, self.config.base_config.n_envs)),
        ]
        if run.seq_encoder is None:
            return rows
        how = "recurrent" if run.seq_encoder == "RNN" else f"attention to the last {ring.burn_in} steps"
        return [("memory", f"{how}, sequences of {ring.sequence} steps"), *rows]
