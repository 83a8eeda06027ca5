"""PPO, A2C, A3C and ACKTR as families, whose agents learn from the last rollout alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.base import Family
from algorithm.agents.imitation.cloning import Pretraining
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acting import clipping, make_acting, remote_limits
from algorithm.agents.on_policy.config import idle
from algorithm.agents.on_policy.family_config import BLOCKS, own_block, processes
from algorithm.agents.on_policy.metrics import ACKTR_READOUTS, READOUTS, WATCHED, make_rules
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.on_policy.rollout_agent import RolloutAgent
from algorithm.agents.on_policy.update import OnPolicyLearner
from algorithm.agents.roles import AgentInputs, Contribution, Contributor
from algorithm.agents.schedules import rate_factor
from algorithm.core.data import Int, SequenceBatch, State, StepBatch
from algorithm.core.wording import Rows
from algorithm.nn.learning.optimiser import FlatRms

_KEPT = 1000  # number of updates over which staleness is averaged


class OnPolicyAgent(RolloutAgent):
    """Learner, policy and ring of one behaviour; each rollout is learned from once.

    Raises UsageError if the ring does not fit into the memory.
    """

    learner: OnPolicyLearner

    def __init__(self, inputs: AgentInputs) -> None:
        inputs = replace(inputs, spec=clipping(inputs.spec))
        config, self._keys = inputs.config, own_block(inputs.config)
        block = BLOCKS[config.algorithm]
        networks = make_networks(inputs, NETWORKS)
        sequence = self._keys.sequence if config.run.seq_encoder else 1
        ring = Ring(inputs, networks.rep.stored_carry_shape, self._keys, block, sequence=sequence)
        store = ring.demonstrations()
        extensions = extensions_of(inputs, networks, store)
        learner = OnPolicyLearner(
            inputs, networks, self._keys, burn_in=ring.burn_in, learn=ring.sequence, extensions=extensions
        )
        super().__init__(inputs, learner, ring, sources=networks.sources, demonstrations=store, block=block)
        cloning = config.behavioral_cloning
        self._pretraining = Pretraining(clone=learner.clone, steps=cloning.pretrain)
        if store and cloning.strength:
            sequences = max(1, ring.size // (self._keys.num_minibatch * ring.sequence))
            learner.begin_cloning(store, cloning, batch_size=cloning.batch_size or sequences)

    @property
    @override
    def weights_version(self) -> int:
        """Number of versions of the weights: rollouts so far, and cloning before the first one."""
        return super().weights_version + (self._pretraining.steps > 0)

    @property
    @override
    def updates_per_step(self) -> float:
        """Gradient updates per environment step."""
        return self._keys.num_epoch * self._keys.num_minibatch / self._ring.size

    @override
    def own_notices(self) -> list[str]:
        """Return lines on keys that are set and have no effect, and on a training without an update."""
        lines = [*idle(self.config, self.warm_up_steps)]
        if not self._keys.shared and not any(True for _ in self.learner.model.rep.parameters()):
            why = "the encoder has nothing to learn, so there is nothing to share"
            lines.append(f"{self._block}.shared: false has no effect: {why}")
        return lines

    @override
    def pretrain(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Take the steps of ``behavioral_cloning.pretrain``; see :meth:`.Agent.pretrain`."""
        return self._pretraining.run(stop)

    @override
    def _learn_from(self, batch: SequenceBatch, lag: int, step: int, run_step: int) -> None:
        left, cloning = self._share_left(run_step), self.config.behavioral_cloning.steps
        self.learner.set_factors(
            learning_rate=rate_factor(self.config.run, run_step, self.config.base_config.max_step),
            clip=left if self._keys.clip_schedule == "linear" else 1.0,
            cloning=max(0.0, 1.0 - run_step / cloning) if cloning else 1.0,
        )
        self._passes(batch, self.learner.update(batch, current=lag == 0), step)

    @override
    def own_state(self) -> dict[str, State]:
        """Return the states of the unfinished rollout, the last metrics and pretraining."""
        return {**super().own_state(), "pretraining": State(meta=self._pretraining.state())}

    @override
    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned; if its rows are lost, a rollout begins anew."""
        super().load_state(state)
        self._pretraining.load_state(state.part("pretraining").meta)

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, rollout, algorithm and acting for the start screen."""
        keys = self._keys
        rollout = f"{self._ring.size:,} steps"
        if keys.num_minibatch > 1:
            rollout += f", learned from {keys.num_epoch} times in {keys.num_minibatch} minibatches"
        return self._shown(rollout, [f"λ {keys.gae_lambda:g}", f"learning rate {keys.learning_rate:g}"])


class AsyncAgent(OnPolicyAgent, Contributor):
    """Asynchronous advantage actor-critic (arXiv 1602.01783, algorithm S3, with shared RMSprop of section 4).

    A copy reads the shared weights at the beginning of a rollout, acts with them, and computes the gradient
    at them. It adds the step to the shared weights, which others may have changed. In one process it is A2C.
    """

    def __init__(self, inputs: AgentInputs) -> None:
        super().__init__(inputs)
        self._shared: Sequence[Tensor] = ()
        self._seen: list[StepBatch] = []
        self._staleness: deque[int] = deque(maxlen=_KEPT)
        self._sent_updates = self._sent_skipped = 0

    @property
    def _optimiser(self) -> FlatRms:
        (only,) = self.learner.optimisers().values()
        assert isinstance(only, FlatRms)
        return only

    @override
    def weights(self) -> Sequence[Tensor]:
        return self._optimiser.flat.data, *self._optimiser.tensors().values()

    @override
    def join(self, shared: Sequence[Tensor]) -> None:
        self._shared = shared
        self._optimiser.share(*shared)

    @override
    def added(self, ids: Int, new: StepBatch) -> None:
        """Keep new transitions of a copy for the owner's statistics."""
        super().added(ids, new)
        if self._shared:
            self._seen.append(new)

    @override
    def statistics(self) -> Tensor:
        of_rewards = self.learner.return_scale.tensors().get("statistics", torch.empty(0))
        return torch.cat([buffer.double().flatten() for buffer in (*self._buffers, of_rewards)])

    @property
    def _buffers(self) -> list[Tensor]:
        """Running statistics of observations."""
        return [*self.learner.model.normaliser.state_dict().values()]

    @override
    def renew(self, statistics: Tensor) -> None:
        self._optimiser.flat.data.copy_(self._shared[0])
        begin = 0
        for buffer in self._buffers:
            buffer.copy_(statistics[begin : begin + buffer.numel()].view_as(buffer))
            begin += buffer.numel()
        self.learner.return_scale.roll_back({"statistics": statistics[begin:]})

    @override
    def contribution(self, stream: Callable[[int], int], staleness: Sequence[int]) -> Contribution:
        names, seen = self.learner.model.normaliser.names, self._seen
        rewarded = chain.from_iterable(steps.rewards() for steps in seen)
        work = Contribution(
            rows={name: np.concatenate([steps.obs[name] for steps in seen]) for name in names if seen},
            returns=[(stream(number), at, rewards, ended) for number, at, rewards, ended in rewarded],
            updates=self.updates - self._sent_updates,
            skipped=self._guard.skipped - self._sent_skipped,
            staleness=staleness,
            metrics=self._metrics,
        )
        self._seen = []
        self._sent_updates = self.updates
        self._sent_skipped = self._guard.skipped
        return work

    @override
    def take_in(self, work: Contribution) -> None:
        self.learner.return_scale.observe(work)
        if work.rows:
            self.learner.model.normaliser.observe(work.rows)
        self.learner.updates += work.updates
        self._guard.skipped += work.skipped
        self._staleness.extend(work.staleness)
        self._metrics = dict(work.metrics) or self._metrics
        self._rollouts += work.updates
        self._ring.clear()  # the owner's own unfinished rollout is too old by now

    @override
    def own_metrics(self, step: int) -> dict[str, float]:
        """Return values to log of the last rollout, and the mean staleness."""
        if not self._staleness:
            return self._metrics
        return {**self._metrics, "a3c/staleness": fmean(self._staleness)}


FAMILIES = {
    name: Family(
        name=name,
        make_agent=AsyncAgent if name == "A3C" else OnPolicyAgent,
        make_acting=None if name in ("A3C", "ACKTR") else make_acting,
        remote_limits=remote_limits,
        networks=NETWORKS,
        health_rules=make_rules,
        watched=WATCHED,
        readouts=ACKTR_READOUTS if name == "ACKTR" else READOUTS,
        always_saved=True,
        processes=processes,
    )
    for name in BLOCKS
}
