"""An agent that learns from the last rollout alone: PPO, A2C and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from typing_extensions import override

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acktr import AcktrLearner
from algorithm.agents.on_policy.acting import clipping
from algorithm.agents.on_policy.cloning import Cloning
from algorithm.agents.on_policy.config import idle
from algorithm.agents.on_policy.family_config import BLOCKS, AcktrConfig, own_block
from algorithm.agents.on_policy.learner import OnPolicyLearner
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.on_policy.rollout_agent import RolloutAgent
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import SequenceBatch, State
from algorithm.core.seeding import stream_seed
from algorithm.core.wording import Rows

_BETWEEN_STOPS = 100  # steps of cloning


class OnPolicyAgent(RolloutAgent):
    """Learner, policy and rollouts of one behaviour, each of which is learned from once.

    Raises UsageError if the ring does not fit into the memory.
    """

    learner: OnPolicyLearner

    def __init__(self, inputs: AgentInputs) -> None:
        inputs = replace(inputs, spec=clipping(inputs.spec))
        run, self._own = inputs.config.run, own_block(inputs.config)
        block = BLOCKS[inputs.config.algorithm]
        networks = make_networks(inputs, NETWORKS)
        sequence = self._own.sequence if run.seq_encoder else 1
        ring = Ring(inputs, networks.rep.stored_carry_shape, self._own, block, sequence=sequence)
        shown = ring.demonstrations()
        make = AcktrLearner if isinstance(self._own, AcktrConfig) else OnPolicyLearner
        learner = make(
            inputs.spec,
            networks,
            self._own,
            gamma=run.gamma,
            normalised=run.use_normalization,
            scaled=run.reward_scaling,
            burn_in=ring.burn_in,
            learn=ring.sequence,
            device=inputs.device,
            seed=stream_seed(inputs.seed, "learner", inputs.behaviour),
            extensions=extensions_of(inputs, networks, shown),
        )
        super().__init__(inputs, learner, ring, sources=networks.sources, demonstrations=shown, block=block)
        self._pretrained = False
        if shown:
            self._prepare(shown)

    def _prepare(self, demonstrations: DemoStore) -> None:
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
        """Rollouts so far, and cloning before the first of them."""
        return super().weights_version + self._pretrained

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
    def _learn_from(self, batch: SequenceBatch, lag: int, step: int, run_step: int) -> None:
        self._set_factors(run_step)
        self._passes(batch, self.learner.update(batch, current=lag == 0), step)

    def _set_factors(self, step: int) -> None:
        left = self._share_left(step)
        rate_falls = self.config.run.learning_rate_schedule == "linear"
        clip_falls = self._own.clip_schedule == "linear"
        steps = self.config.behavioral_cloning.steps
        self.learner.set_factors(
            learning_rate=left if rate_falls else 1.0,
            clip=left if clip_falls else 1.0,
            cloning=max(0.0, 1.0 - step / steps) if steps else 1.0,
        )

    @override
    def own_state(self) -> dict[str, State]:
        """Return the rollout in the making, what is known of the last one, and whether cloning began."""
        return {**super().own_state(), "cloning": State(meta={"pretrained": self._pretrained})}

    @override
    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; without its ring a rollout begins anew."""
        super().load_state(state)
        self._pretrained = bool(state.part("cloning").meta["pretrained"])

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, rollout and algorithm, and on what computes actions."""
        own = self._own
        rollout = f"{self._ring.size:,} steps"
        if own.num_minibatch > 1:
            rollout += f", learned from {own.num_epoch} times in {own.num_minibatch} parts"
        parts = [f"λ {own.gae_lambda:g}", f"learning rate {own.learning_rate:g}"]
        if math.isfinite(own.clip):
            parts.append(f"clip {own.clip:g}")
        if isinstance(own, AcktrConfig):
            parts.append(f"trust region {own.kl_clip:g}")
        return self._shown(rollout, parts)
