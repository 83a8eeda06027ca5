"""The update of PPO, A2C, A3C and ACKTR: from a rollout to the last step of the optimiser.

Each step minimises the same loss on a minibatch of the rollout (arXiv 1707.06347, eq. 7 and 9):

    mean(−min(ρ A, clip(ρ, 1 ± clip) A)) + value_coef · mean((V − R)²) − entropy_coef · mean(H(π))

with ``ρ = π(a|s) / π_old(a|s)``, where π_old is the policy that acted. Advantages A and targets R are
estimated once, before the first step. If rewards have several horizons, each of them has a V and an R, and A
is the sum of their advantages.

The families differ in the keys of their blocks (``family_config.py``), and in their optimiser
(``descent.py``).

    PPO        num_epoch · num_minibatch steps, with Adam
    A2C, A3C   num_epoch and num_minibatch are 1, clip is infinite: at the only step ρ is 1, and −ρ A has the
               gradient of −A log π (arXiv 1602.01783, algorithm S3); with RMSprop
    ACKTR      the same along the natural gradient (arXiv 1708.05144), with K-FAC
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.parts import make_parts
from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.imitation.cloning import Cloning
from algorithm.agents.on_policy.descent import make_descent
from algorithm.agents.on_policy.family_config import OwnConfig
from algorithm.agents.on_policy.learner import RolloutLearner
from algorithm.agents.on_policy.networks import ActorCritic
from algorithm.agents.on_policy.results import GradientStep, update_metrics
from algorithm.agents.on_policy.rollout import (
    Rollout,
    check_ratios,
    estimate_advantages,
    make_rollout,
    standardised,
)
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import SequenceBatch
from algorithm.extensions.base import Extension, Horizon, by_horizon
from algorithm.keys.signals import BehavioralCloning
from algorithm.nn.learning.optimiser import FlatOptimiser
from algorithm.nn.loader import Networks
from algorithm.ops.on_policy import approximate_kl, surrogate, value_error
from algorithm.ops.shapes import total


class OnPolicyLearner(RolloutLearner):
    """Networks of an agent, and their updates from rollouts.

    inputs:   with a spec of actions whose ``squash`` is ``clip``
    keys:     the family's block of keys
    burn_in:  K, tokens that attention sees before a sequence. While acting, its caches are of networks before
              the last update; so with attention, ratios are to the policy before this update.
    networks, learn, extensions: as of :class:`ActorCritic` and :class:`RolloutLearner`
    """

    PARTS: ClassVar = {**RolloutLearner.PARTS, "v": ("v.", "signal_v.", "value_encoder.")}

    def __init__(
        self,
        inputs: AgentInputs,
        networks: Networks,
        keys: OwnConfig,
        *,
        burn_in: int,
        learn: int,
        extensions: Sequence[Extension],
    ) -> None:
        num_values = len(by_horizon(extensions, Horizon(inputs.config.run.gamma)))
        self._actor_critic = ActorCritic(
            inputs, networks, shared=keys.shared, num_values=num_values, burn_in=burn_in
        )
        super().__init__(
            inputs,
            self._actor_critic.model,
            rate=keys.adam_rate,
            limit=keys.max_grad_norm,
            burn_in=burn_in,
            learn=learn,
            extensions=extensions,
        )
        self.parts = self._actor_critic.parts
        self._keys, self._action = keys, inputs.spec.action
        self._descent = make_descent(
            keys, self._actor_critic.trained, max_norm=self._limit, skipped=self._skipped
        )
        self._clip_factor = 1.0
        self._cloning: Cloning | None = None

    def update(self, batch: SequenceBatch, *, current: bool = True) -> dict[str, float]:
        """Learn from a rollout; return the metrics. Waits for the device at its end.

        batch:   windows that hold each transition once, of ``ReplayBuffer.chains``
        current: the present networks acted in the whole rollout
        Raises ModelError if the policy computes other probabilities than while it acted.
        """
        with self._actor_critic.training_mode():
            rollout = self._estimate(batch, current=current)
            steps, epochs = self._descend(rollout, batch, current=current)
        cloned = self.clone(len(steps) * self._cloning.updates) if self._cloning else {}
        metrics = update_metrics(
            rollout,
            steps,
            epochs=epochs,
            reward_scale=self.return_scale.factor,
            action=self._action,
            signals=self._bonuses.signals,
        )
        return {**metrics, **{name: float(value) for name, value in cloned.items()}}

    def _estimate(self, batch: SequenceBatch, *, current: bool) -> Rollout:
        """Return the rollout with values, advantages and targets; if it is not current, with V-trace weights.

        current: as for :meth:`update`
        """
        keys = self._keys
        values = self._actor_critic.values(batch)
        rollout = make_rollout(batch, values)
        corrected = keys.use_vtrace and not current
        if corrected or self._burn_in:  # π_old is the policy before the update, not μ, which acted
            rollout.old_log_ratio.copy_(self._actor_critic.log_ratios(rollout))
        if corrected:  # weights of V-trace, min(1, π_old/μ) (arXiv 1802.01561, section 4.1)
            rollout.weight.copy_(rollout.old_log_ratio.clamp(max=0.0).exp())
        rewards, horizons = self._bonuses.rewards(batch), self._bonuses.by_horizon
        estimate_advantages(rollout, batch, values, rewards, horizons, trace_decay=keys.gae_lambda)
        if keys.normalise_advantage == "rollout":
            rollout.advantage[rollout.valid] = standardised(rollout.advantage[rollout.valid])
        return rollout

    def _descend(
        self, rollout: Rollout, batch: SequenceBatch, *, current: bool
    ) -> tuple[list[GradientStep], int]:
        """Take the steps of all epochs; return them, and the number of complete epochs.

        They end after the first step before which the KL divergence exceeded 1.5 · ``target_kl``.
        """
        keys, steps = self._keys, list[GradientStep]()
        for epoch in range(keys.num_epoch):
            order = torch.randperm(len(rollout), generator=self._generator)
            for sequences in order.tensor_split(min(keys.num_minibatch, len(rollout))):
                minibatch = rollout.minibatch(sequences, self.device)
                step = self._step(minibatch, first=current and not steps)
                if self._bonuses.extensions:
                    bonuses = self._bonuses.update(batch.rows(sequences), self._generator)
                    step = replace(step, further={**step.further, **bonuses})
                steps.append(step)
                if keys.target_kl is not None and float(step.kl) > 1.5 * keys.target_kl:
                    return steps, epoch
        return steps, keys.num_epoch

    def _step(self, minibatch: Rollout, *, first: bool) -> GradientStep:
        """Take a step on a minibatch. first: the policy is still the one that acted, so that ρ must be 1."""
        keys, flat = self._keys, minibatch.flat  # flat: [B, T] -> [M], of the transitions that exist
        advantage, clip = flat(minibatch.advantage), keys.clip * self._clip_factor
        if keys.normalise_advantage == "minibatch":
            advantage = standardised(advantage)

        with self._descent.recorded():
            log_ratio, entropies, values = self._actor_critic.evaluate(minibatch)
        self._descent.measure(log_ratio, values, self._generator)  # ACKTR's Fisher matrix; nothing elsewhere
        if first:
            check_ratios(log_ratio)

        policy_loss = (flat(minibatch.weight) * surrogate(log_ratio, advantage, clip)).mean()
        value_losses = [
            value_error(value, flat(old), flat(target), keys.clip_value).mean()
            for value, old, target in zip(values, minibatch.values, minibatch.targets, strict=True)
        ]
        mean_entropies = {kind: entropy.mean() for kind, entropy in entropies.items()}
        loss = (
            policy_loss
            + keys.value_coef * total(value_losses)
            - keys.entropy_coef * total(mean_entropies.values())
        )

        grad_norm = self._descent.optimiser.step(loss)
        self.updates += 1
        return GradientStep(
            policy_loss=policy_loss.detach(),
            value_losses=[value_loss.detach() for value_loss in value_losses],
            entropies={kind: mean.detach() for kind, mean in mean_entropies.items()},
            log_ratio=log_ratio.detach(),
            kl=approximate_kl(log_ratio.detach()).mean(),
            clip=clip,
            grad_norm=grad_norm,
            further=self._descent.metrics(),
        )

    def set_factors(self, *, learning_rate: float, clip: float, cloning: float = 1.0) -> None:
        """Set factors on the configured learning rates, clip range and learning rate of cloning."""
        self._clip_factor = clip
        self.scale_learning_rate(learning_rate)
        if self._cloning:
            self._cloning.factor = cloning

    def begin_cloning(self, store: DemoStore, keys: BehavioralCloning, *, batch_size: int) -> None:
        """Set up the cloning of demonstrations, which follows each rollout from now on."""
        self._cloning = Cloning(
            self.model,
            {"cloning": self._descent.optimiser.flat},
            make_parts(self._action).discrete,
            training_mode=self._actor_critic.training_mode,
            store=store,
            batch_size=batch_size,
            updates=keys.updates,
            learning_rate=keys.strength * self._keys.adam_rate,
            skipped=self._skipped,
        )

    def clone(self, n: int) -> dict[str, Tensor]:
        """Take n steps of behavioural cloning; return their mean loss, see :meth:`.Cloning.update`."""
        assert self._cloning is not None, "the configuration asks for it"
        return self._cloning.update(n, self._generator)

    @override
    def modules(self) -> nn.Module:
        """Return all networks, with those of extensions."""
        return nn.ModuleDict(
            {**self._actor_critic.named, "extensions": nn.ModuleList(self._bonuses.extensions)}
        )

    @override
    def optimisers(self) -> dict[str, FlatOptimiser]:
        """Return the optimisers of the networks (``all``), of extensions, and of cloning."""
        cloning = self._cloning.optimisers if self._cloning else {}
        return {"all": self._descent.optimiser, **self._bonuses.optimisers, **cloning}
