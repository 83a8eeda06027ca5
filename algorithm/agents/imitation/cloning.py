"""Behavioural cloning: supervised learning of demonstrated actions, beside the updates and before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from algorithm.actions.parts import Categorical, DiscretePart
from algorithm.agents.demonstrations import DemoStore
from algorithm.core.data import SequenceBatch
from algorithm.nn.acting import ActingModel
from algorithm.nn.layers.noisy import LayerNoise
from algorithm.nn.layers.norm import BatchStatistics
from algorithm.nn.learning.flat import FlatParameters
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.protocols import HybridAction
from algorithm.ops.imitation import cloning_error, constraint_weight
from algorithm.ops.shapes import valid_share, window_mean

_BETWEEN_STOPS = 100  # steps of cloning between two calls of ``stop``

Squash = Callable[[Tensor], Tensor]
"""Function from the policy's mean to the continuous action u."""


def cloning_loss(
    policy: HybridAction, action: Tensor, mask: Tensor, discrete: DiscretePart, squash: Squash
) -> Tensor:
    """Return ``Σ_i (squash(m)_i − u_i)² / |A_c| + mean_b −log π_b(a_b)`` [P] of flat actions [P, A].

    m is the policy's mean; its standard deviation does not matter. The continuous or the discrete term is
    left out if the action lacks that part; a greedy discrete part has no probability that could be raised.

    policy: outputs at P states; action: [P, A] demonstrated; mask: [P, ΣN]
    """
    error = torch.zeros(action.shape[:-1], device=action.device)
    if isinstance(discrete, Categorical):
        nothing = action.new_zeros(*action.shape[:-1], 1)
        error = error - discrete.log_ratio(policy, mask, action, nothing) / len(discrete.branches)
    if policy.continuous is not None:
        mean = squash(policy.continuous.mean)
        error = error + cloning_error(mean, action[..., action.shape[-1] - mean.shape[-1] :])
    return error


class Constraint:
    """Constraint of a policy to the actions of a batch: the loss ``−λ q`` plus :func:`cloning_loss` (TD3+BC).

    λ is :func:`~algorithm.ops.imitation.constraint_weight` (arXiv 2106.06860, eq. 5). An entropy bonus is not
    multiplied by λ, which is large for small values: it would outweigh the cloning.

    discrete: the discrete part of actions; alpha: numerator of λ
    """

    def __init__(self, discrete: DiscretePart, alpha: float) -> None:
        self._discrete, self._alpha = discrete, alpha

    def weight(self, value: Tensor, share: Tensor) -> Tensor:
        """Return λ. value: [P] Q of the policy's actions; share: [P] of each position in the mean."""
        return constraint_weight(value, share, alpha=self._alpha)

    def cloning(self, policy: HybridAction, action: Tensor, mask: Tensor, share: Tensor) -> Tensor:
        """Return the mean :func:`cloning_loss`, a scalar.

        policy: outputs at P states
        action, mask: [P, A] and [P, ΣN] of the batch; share: [P] of each position in the mean
        """
        return (cloning_loss(policy, action, mask, self._discrete, torch.tanh) * share).sum()


class Cloning:
    """Steps of Adam on :func:`cloning_loss` of demonstrated actions.

    Families with rollouts take them after all updates of a rollout: between two updates they would change
    the policy by which the ratios are computed.

    model:    encoder and policy, which learn
    flats:    storages of their parameters, shared with the updates' optimisers; by names of new optimisers
    discrete: the discrete part of actions
    training_mode: context in which the networks are in training mode
    store:    demonstrations; batch_size: windows in a step
    updates:  steps for each update of the agent
    learning_rate: of Adam; skipped: tensor that counts skipped steps
    squash:   function from the policy's mean to u; by default the mean itself, which may be beyond ±1
    """

    def __init__(
        self,
        model: ActingModel,
        flats: Mapping[str, FlatParameters],
        discrete: DiscretePart,
        *,
        training_mode: Callable[[], AbstractContextManager[None]],
        store: DemoStore,
        batch_size: int,
        updates: int,
        learning_rate: float,
        skipped: Tensor,
        squash: Squash = lambda mean: mean,
    ) -> None:
        self._model, self._discrete, self._store, self._batch_size = model, discrete, store, batch_size
        self.updates, self._squash = updates, squash
        self._training_mode = training_mode
        self._norms = BatchStatistics([model.policy])
        self._layer_noise = LayerNoise([model.rep, model.policy], on=True)
        # Parameters without influence on the loss, such as those of values, have gradient 0 and do not move.
        self.optimisers = {
            name: FlatAdam(flat, learning_rate, skipped=skipped) for name, flat in flats.items()
        }
        self.factor = 1.0

    @property
    def factor(self) -> float:
        """Factor on the learning rate in the next step."""
        return self._factor

    @factor.setter
    def factor(self, factor: float) -> None:
        self._factor = factor
        for optimiser in self.optimisers.values():
            optimiser.factor = factor

    def update(self, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Take n steps; return their mean loss, ``loss/cloning``, on the device; {} if none is taken.

        generator: of the demonstrations drawn, and of noisy layers
        """
        if not (n and self.factor):
            return {}
        with self._training_mode():
            total = self._step(generator)
            for _ in range(n - 1):
                total += self._step(generator)
        return {"loss/cloning": total / n}

    def _step(self, generator: torch.Generator) -> Tensor:
        first, *others = self.optimisers.values()
        self._norms.past_warm_up()
        self._layer_noise.apply(generator)
        batch = self._store.draw(self._batch_size, generator).to(first.gradient.device)
        for optimiser in (first, *others):
            optimiser.gradient.zero_()
        loss = self._loss(batch)
        loss.backward()
        for optimiser in (first, *others):
            optimiser.step_along(optimiser.gradient)
        if self._norms:
            self._norms.commit(first.usable)
        return loss.detach()

    def _loss(self, batch: SequenceBatch) -> Tensor:
        tokens, learned = slice(self._store.learned.stop), self._store.learned
        raw = {name: value[:, tokens] for name, value in batch.obs.items()}
        obs, rep = self._model.normaliser(raw), self._model.rep
        state, _ = rep(obs, batch.prev_action[:, tokens], batch.carry, batch.obs_valid[:, tokens])
        valid = batch.valid[:, learned]
        share = valid_share(valid, batch.weight.dtype).flatten()
        with self._norms.of_batch(None if valid.shape[1] == 1 else share / share.sum().clamp(min=1.0)):
            policy = self._model.policy(
                state[:, learned].flatten(0, 1),
                {name: value[:, learned].flatten(0, 1) for name, value in obs.items()},
            )
        action, mask = (x[:, learned].flatten(0, 1) for x in (batch.action, batch.action_mask))
        error = cloning_loss(policy, action, mask, self._discrete, self._squash)
        return window_mean(error.view(valid.shape), valid)


class Pretraining:
    """Steps of cloning, then updates on demonstrations, before the first environment step.

    clone:   takes a number of steps, and returns their metrics
    steps:   steps of cloning in all; the attribute: so far
    updates: updates in all; the attribute: so far
    cloned:  called once the steps are complete
    update:  makes an update
    """

    def __init__(
        self,
        *,
        clone: Callable[[int], Mapping[str, Tensor]],
        steps: int,
        updates: int = 0,
        cloned: Callable[[], object] = lambda: None,
        update: Callable[[], object] = lambda: None,
    ) -> None:
        self._clone, self._cloned, self._update = clone, cloned, update
        self._steps, self._updates = steps, updates
        self.steps = self.updates = 0

    def run(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Make the steps and updates that are left, until ``stop``; return metrics of the last cloning."""
        metrics: Mapping[str, Tensor] = {}
        while self.steps < self._steps and not stop():
            n = min(self._steps - self.steps, _BETWEEN_STOPS)
            metrics = self._clone(n)
            self.steps += n
            if self.steps == self._steps:
                self._cloned()
        while self.steps >= self._steps and self.updates < self._updates and not stop():
            self._update()
            self.updates += 1
        return {name: float(value) for name, value in metrics.items()}

    def state(self) -> dict[str, Any]:
        """Return the numbers of steps and updates so far, as JSON."""
        return {"steps": self.steps, "updates": self.updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned."""
        self.steps, self.updates = state["steps"], state["updates"]
