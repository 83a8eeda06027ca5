"""An agent of ACER: rollouts that are learned from at once, and again from the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.on_policy.acer.config import BLOCK, acer_block, idle
from algorithm.agents.on_policy.acer.learner import AcerLearner
from algorithm.agents.on_policy.acer.networks import networks_of, recorded
from algorithm.agents.on_policy.ring import Ring
from algorithm.agents.on_policy.rollout_agent import RolloutAgent
from algorithm.agents.roles import AgentInputs
from algorithm.agents.schedules import rate_factor
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream_seed
from algorithm.core.wording import Rows


class AcerAgent(RolloutAgent):
    """Learner, policy and replay of one behaviour.

    Raises UsageError for actions of both kinds, and if the replay does not fit into the memory.
    """

    learner: AcerLearner

    def __init__(self, inputs: AgentInputs) -> None:
        if inputs.greedy:
            raise UsageError(
                "ACER cannot train with the best action alone",
                where="--disable_sample",
                why="its importance weights are those of samples",
                fix="leave it out, or set algorithm: PPO",
            )
        inputs = replace(inputs, spec=recorded(inputs.spec))
        run, self._own = inputs.config.run, acer_block(inputs.config)
        networks = make_networks(inputs, networks_of(inputs.spec))
        ring = Ring(
            inputs,
            networks.rep.stored_carry_shape,
            self._own,
            BLOCK,
            sequence=self._own.rollout_step,
            kept=self._own.capacity,
        )
        shown = ring.demonstrations()
        learner = AcerLearner(
            inputs.spec,
            networks,
            self._own,
            gamma=run.gamma,
            normalised=run.use_normalization,
            scaled=run.reward_scaling,
            burn_in=ring.burn_in,
            device=inputs.device,
            seed=stream_seed(inputs.seed, "learner", inputs.behaviour),
            extensions=extensions_of(inputs, networks, shown),
        )
        super().__init__(inputs, learner, ring, sources=networks.sources, demonstrations=shown, block=BLOCK)
        if shown:
            shown.show(learner.model.normaliser)

    @property
    @override
    def updates_per_step(self) -> float:
        """Gradient updates for an environment step, once the replay is learned from."""
        return (1.0 + self._own.replay_ratio) / self._ring.size

    @override
    def own_notices(self) -> list[str]:
        """Return lines on keys that have less effect than expected."""
        lines = [*idle(self.config, self.warm_up_steps)]
        if self.spec.action.branches and self.config.nn_config.v:
            lines.append("nn_config.v has no effect: the value of a state is the mean of its choices' values")
        return lines

    @override
    def _learn_from(self, batch: SequenceBatch, lag: int, step: int, run_step: int) -> None:
        self.learner.scale_learning_rate(rate_factor(self.config.run, self._share_left(run_step)))
        found = [self.learner.update(batch, drawn=False, current=lag == 0)]
        ready = len(self.replay) >= self._own.start_step
        for _ in range(self.learner.num_replays() if ready else 0):
            sample = self.replay.sample()
            if sample is not None:
                found.append(self.learner.update(sample, drawn=True))
        means = {name: _mean(found, name) for name in found[0]}
        self._passes(batch, {**means, "acer/replays": float(len(found) - 1)}, step)

    @override
    def own_rows(self) -> Rows:
        """Return lines on memory, rollout and algorithm, and on what computes actions."""
        own = self._own
        rollout = f"{self._ring.size:,} steps, then {own.replay_ratio:g} more from {own.capacity:,} rows"
        return self._shown(rollout, [f"c {own.ratio_max:g}", f"learning rate {own.learning_rate:g}"])


def _mean(found: Sequence[Mapping[str, Tensor]], name: str) -> float:
    return torch.stack([one[name] for one in found]).mean().item()
