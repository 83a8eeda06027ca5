"""Behavioural cloning: supervised learning of demonstrated actions, beside the updates and before them."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.actions.discrete import Categorical
from algorithm.actions.parts import DiscretePart
from algorithm.agents.demonstrations import DemoStore
from algorithm.core.data import SequenceBatch
from algorithm.nn.acting.model import ActingModel
from algorithm.nn.learning.flat import FlatParameters
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.ops.imitation import cloning_error
from algorithm.ops.shapes import window_mean


class Cloning:
    """Steps of Adam on ``Σ_i (m_i − u_i)² / |A_c| + mean_b −log π_b(a_b)`` of demonstrated actions.

    m is the policy's mean before it is clipped: behind a clip an error beyond ±1 would have no gradient. The
    standard deviation is not cloned.

    Steps are made after all updates of a rollout. Between these the policy would be another one than that of
    their ratios.

    model:    encoder and policy, which learn
    flat:     the storage of all networks' parameters, which the updates' own optimiser has too
    discrete: the discrete part of actions
    store:    demonstrations; batch_size: sequences of a step
    """

    def __init__(
        self,
        model: ActingModel,
        flat: FlatParameters,
        discrete: DiscretePart,
        *,
        store: DemoStore,
        batch_size: int,
        learning_rate: float,
        skipped: Tensor,
    ) -> None:
        self._model, self._discrete, self._store, self._batch_size = model, discrete, store, batch_size
        # What has no part in the loss, such as the values, has gradient and moments 0 and so stays.
        self.optimiser = FlatAdam(flat, learning_rate, skipped=skipped)

    @property
    def steps(self) -> int:
        """Steps so far. Waits for the device."""
        return int(self.optimiser.tensors()["step"])

    def update(self, n: int, generator: torch.Generator) -> dict[str, float]:
        """Take n steps; return ``loss/cloning``, their mean. Waits for the device."""
        if not (n and self.optimiser.factor):
            return {}
        total = torch.zeros((), device=self.optimiser.gradient.device)
        for _ in range(n):
            loss = self._loss(self._store.draw(self._batch_size, generator).to(total.device))
            self.optimiser.step(loss)
            total += loss.detach()
        return {"loss/cloning": float(total) / n}

    def _loss(self, batch: SequenceBatch) -> Tensor:
        tokens, learned = slice(self._store.learned.stop), self._store.learned
        raw = {name: value[:, tokens] for name, value in batch.obs.items()}
        obs, rep = self._model.normaliser(raw), self._model.rep
        state, _ = rep(obs, batch.prev_action[:, tokens], batch.carry, batch.obs_valid[:, tokens])
        policy = self._model.policy(
            state[:, learned], {name: value[:, learned] for name, value in obs.items()}
        )
        action = batch.action[:, learned]
        error = torch.zeros(action.shape[:2], device=action.device)
        if isinstance(self._discrete, Categorical):
            mask, nothing = batch.action_mask[:, learned], action.new_zeros(*action.shape[:2], 1)
            logp = self._discrete.log_ratio(policy, mask, action, nothing)
            error = error - logp / len(self._discrete.branches)
        if policy.continuous is not None:
            mean = policy.continuous.mean
            error = error + cloning_error(mean, action[..., action.shape[-1] - mean.shape[-1] :])
        return window_mean(error, batch.valid[:, learned])
