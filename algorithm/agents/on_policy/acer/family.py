"""ACER as a family (arXiv 1611.01224): it learns from the last rollout, and again from the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.base import Family
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acer.config import BLOCK, acer_block, idle
from algorithm.agents.on_policy.acer.learner import AcerLearner
from algorithm.agents.on_policy.acer.metrics import READOUTS
from algorithm.agents.on_policy.acting import clipping, make_acting, segments_of
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.agents.on_policy.results import means
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.on_policy.rollout_agent import RolloutAgent
from algorithm.agents.roles import AgentInputs, RemoteLimits
from algorithm.agents.schedules import rate_factor
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import UsageError
from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.core.wording import Rows
from algorithm.nn.dry_run import check_q
from algorithm.nn.layers.mlp import Activation
from algorithm.nn.loader import Network
from algorithm.nn.models.tanh import TanhLayers
from algorithm.nn.protocols import q_size


class TanhQ(TanhLayers):
    """Critic of state and continuous action; arguments as of :class:`TanhLayers`."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        sizes = state_size + spec.action.continuous, q_size(spec.action)
        super().__init__(*sizes, dense_n, dense_depth, hidden, activation)

    @override
    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [..., N] of state [..., S] and c_action [..., A_c]."""
        return self.outputs(torch.cat([state, c_action], -1))


ALL_NETWORKS = {"ModelPolicy": NETWORKS["ModelPolicy"], "ModelQ": Network("q", check_q, TanhQ)}
"""Class names in an ``nn.py`` -> check and default; with continuous actions also ``ModelV``."""


def networks_of(spec: AgentSpec) -> Mapping[str, Network]:
    """Return the classes in an ``nn.py``: with discrete actions a critic, else an advantage and a value.

    Raises UsageError for actions of both kinds.
    """
    if spec.action.branches and spec.action.continuous:
        raise UsageError(
            "ACER supports discrete or continuous actions, not both",
            where="algorithm",
            why="the environment has both kinds, and ACER cannot combine their importance weights",
            fix="set algorithm: SAC or PPO",
        )
    return ALL_NETWORKS if spec.action.branches else {**ALL_NETWORKS, "ModelV": NETWORKS["ModelV"]}


def recorded(spec: AgentSpec) -> AgentSpec:
    """Return the spec with clipped actions, for which the policy's whole distribution is recorded."""
    spec = clipping(spec)
    return replace(spec, action=replace(spec.action, records="distribution"))


class AcerAgent(RolloutAgent):
    """Learner, policy and replay of one behaviour.

    Raises UsageError without sampled actions, for actions of both kinds, and if the replay does not fit into
    the memory.
    """

    learner: AcerLearner

    def __init__(self, inputs: AgentInputs) -> None:
        if inputs.greedy:
            raise UsageError(
                "ACER cannot train without sampling actions",
                where="--disable_sample",
                why="its importance weights need sampled actions",
                fix="leave it out, or set algorithm: PPO",
            )
        inputs = replace(inputs, spec=recorded(inputs.spec))
        self._keys = acer_block(inputs.config)
        networks = make_networks(inputs, networks_of(inputs.spec))
        ring = Ring(
            inputs,
            networks.rep.stored_carry_shape,
            self._keys,
            BLOCK,
            sequence=self._keys.rollout_step,
            kept=self._keys.capacity,
        )
        store = ring.demonstrations()
        extensions = extensions_of(inputs, networks, store)
        learner = AcerLearner(inputs, networks, self._keys, burn_in=ring.burn_in, extensions=extensions)
        super().__init__(inputs, learner, ring, sources=networks.sources, demonstrations=store, block=BLOCK)

    @property
    @override
    def updates_per_step(self) -> float:
        """Gradient updates per environment step, once updates draw from the replay."""
        return (1.0 + self._keys.replay_ratio) / self._ring.size

    @override
    def own_notices(self) -> list[str]:
        """Return lines on keys that are set and have no effect, or less than expected."""
        lines = [*idle(self.config, self.warm_up_steps)]
        if self.spec.action.branches and self.config.nn_config.v:
            lines.append("nn_config.v has no effect: the value of a state is the mean of its choices' values")
        return lines

    @override
    def _learn_from(self, batch: SequenceBatch, lag: int, step: int, run_step: int) -> None:
        end = self.config.base_config.max_step
        self.learner.scale_learning_rate(rate_factor(self.config.run, run_step, end))
        metrics = [self.learner.update(batch, drawn=False, current=lag == 0)]
        ready = len(self.replay) >= self._keys.start_step
        for _ in range(self.learner.num_replays() if ready else 0):
            sample = self.replay.sample()
            if sample is not None:
                metrics.append(self.learner.update(sample, drawn=True))
        self._passes(batch, {**means(metrics), "acer/replays": float(len(metrics) - 1)}, step)

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, rollout, algorithm and acting for the start screen."""
        keys = self._keys
        rollout = f"{self._ring.size:,} steps, then {keys.replay_ratio:g} more from {keys.capacity:,} rows"
        return self._shown(rollout, [f"c {keys.ratio_max:g}", f"learning rate {keys.learning_rate:g}"])


FAMILIES = {
    "ACER": Family(
        name="ACER",
        make_agent=AcerAgent,
        make_acting=partial(make_acting, spec_of=recorded, networks_of=networks_of),
        remote_limits=lambda config: RemoteLimits(segments_of(acer_block(config).rollout_step)),
        networks={**ALL_NETWORKS, "ModelV": NETWORKS["ModelV"]},
        readouts=READOUTS,
    )
}
