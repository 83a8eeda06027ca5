"""Networks of on-policy families, and the passes of policy and values over a rollout."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.agents.on_policy.rollout import Rollout
from algorithm.agents.roles import AgentInputs, Inputs
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import ModelError
from algorithm.nn.acting import ActingModel
from algorithm.nn.dry_run import check_policy, check_v
from algorithm.nn.layers.augment import RandomShift
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.learning.gradients import TrainingMode
from algorithm.nn.loader import Network, Networks
from algorithm.nn.models.tanh import TanhPolicy, TanhValue
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import HybridAction, Obs, Rep
from algorithm.ops.densities import normal_entropy, normal_logp
from algorithm.ops.discrete import branch_log_probs

CLIP = 10.0
"""Bound of normalised observations, in standard deviations (The 37 Implementation Details, 29)."""

CHUNK = 1024
"""Number of sequences in a forward pass without gradient."""

NETWORKS = {
    "ModelPolicy": Network("policy", check_policy, TanhPolicy),
    "ModelV": Network("v", check_v, TanhValue),
}
"""Class names in an ``nn.py`` -> check and default of that network."""


def check_norms(networks: Networks) -> None:
    """Raise ModelError for a batch norm: networks must compute the same in training as while acting."""
    for name, network in {"ModelRep": networks.rep, **networks.built}.items():
        if has_batch_norm(network):
            raise ModelError(
                f"{name} has a batch norm",
                why="it would compute different actions and values in learning than in acting",
                fix="use layer norm there, or SAC",
            )


def make_acting_model(inputs: Inputs, networks: Networks) -> ActingModel:
    """Return the networks that act, with a normaliser of observations if ``use_normalization`` is set."""
    return ActingModel(
        Normaliser(inputs.spec.obs, CLIP) if inputs.config.run.use_normalization else NoNormaliser(),
        networks.rep,
        networks.built["ModelPolicy"],
    ).to(inputs.device)


class ActorCritic:
    """Policy and values of one agent, and their passes over the sequences of a rollout.

    model:   normaliser, encoder and policy, which act
    v:       a value function for each horizon of rewards
    value_encoder: encoder of the values; the policy's encoder if ``shared``
    trained: all trained networks, in the order of their optimiser's storage
    parts:   the same networks by role; named: all that is saved, by its name in a checkpoint

    networks: the task's networks; default encoders get orthogonal initial weights
    num_values: G, the number of horizons
    burn_in: K, tokens that attention sees before the steps of a sequence
    Raises ModelError for a batch norm.
    """

    def __init__(
        self, inputs: AgentInputs, networks: Networks, *, shared: bool, num_values: int, burn_in: int
    ) -> None:
        value_encoder = networks.rep if shared else cast(Rep, networks.make("ModelRep"))
        if networks.sources["ModelRep"] == "default":
            for encoder in (networks.rep,) if shared else (networks.rep, value_encoder):
                set_orthogonal(encoder)
        check_norms(networks)
        self.model = make_acting_model(inputs, networks)
        self.value_encoder: Rep = value_encoder.to(inputs.device).eval()
        further = [networks.make("ModelV") for _ in range(num_values - 1)]
        v = networks.built["ModelV"]
        self.v = nn.ModuleList([v, *further]).to(inputs.device).eval()
        apart = {} if shared else {"value_encoder": value_encoder}
        actor = self.model.rep, self.model.policy
        self.trained = [*actor, v, *apart.values(), *further]
        self.parts = {"encoder": self.model.rep, "policy": self.model.policy, "value": self.v, **apart}
        self.named = {"model": self.model, "v": v, **apart, "signal_v": nn.ModuleList(further)}
        self._action, self._device, self._burn_in = inputs.spec.action, inputs.device, burn_in
        # Images that the policy has acted on were not shifted.
        self.training_mode = TrainingMode(self.trained, never=(RandomShift,))

    def evaluate(self, minibatch: Rollout) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Return log ρ, the policy's entropies and each V, all [M], of the transitions of a minibatch.

        ``log ρ = log π(a|s) − log π_old(a|s)`` of the whole action. Entropies are named ``continuous``, the
        sum over components, and ``discrete``, the sum over branches; an absent part of an action has none.
        """
        obs = self.model.normaliser(minibatch.obs)
        tokens = obs, minibatch.prev_action, minibatch.carry, minibatch.exists
        policy_state, _ = self.model.rep(*tokens)
        apart = self.value_encoder is not self.model.rep
        value_state = self.value_encoder(*tokens)[0] if apart else policy_state
        steps, flat = slice(-minibatch.valid.shape[1], None), minibatch.flat
        obs = {name: flat(x[:, steps]) for name, x in obs.items()}
        policy_state, value_state = flat(policy_state[:, steps]), flat(value_state[:, steps])
        policy: HybridAction = self.model.policy(policy_state, obs)
        logp, entropies = flat(minibatch.behaviour_logp), {}
        log_ratio = -flat(minibatch.old_log_ratio)  # log μ − log π_old, to which log π − log μ is added
        if policy.continuous is not None:
            mean, log_std = policy.continuous.mean, policy.continuous.log_std
            log_ratio = normal_logp(flat(minibatch.z), mean, log_std) - logp[:, -1] + log_ratio
            entropies["continuous"] = normal_entropy(log_std)
        if policy.logits is not None:
            mask = None if minibatch.action_mask is None else flat(minibatch.action_mask)
            log_probs, probs = branch_log_probs(policy.logits, mask, self._action.branches)
            chosen = flat(minibatch.action)[:, : self._action.discrete]
            log_ratio = log_ratio + (log_probs * chosen).sum(-1) - logp[:, 0]
            entropies["discrete"] = -(probs * log_probs).sum(-1)
        return log_ratio, entropies, [v(value_state, obs) for v in self.v]

    @torch.no_grad()
    def log_ratios(self, rollout: Rollout) -> Tensor:
        """Return log π/μ [B, T] of all transitions of a rollout, on the CPU; 0 where none exists.

        μ is the policy that acted. ``rollout.old_log_ratio`` must still be 0.
        """
        result, chunks = torch.zeros(rollout.valid.shape), torch.arange(len(rollout)).split(CHUNK)
        minibatches = (rollout.minibatch(rows, self._device) for rows in chunks)
        result[rollout.valid] = torch.cat([self.evaluate(minibatch)[0].cpu() for minibatch in minibatches])
        return result

    def values(self, batch: SequenceBatch) -> Tensor:
        """Return each V [G, B, T+1] of the steps' tokens and of the token after them, on the CPU."""
        exists = batch.obs_valid
        if self.model.rep.carry_shape != (0,):
            return self.values_of(batch.obs, batch.prev_action, batch.carry, exists)
        # Without a memory a token has the same value in every window, and most tokens are in two windows.
        tokens = exists.flatten().nonzero()[:, 0]
        _, first, place = np.unique(batch.ids.flatten()[tokens], return_index=True, return_inverse=True)
        chosen = tokens[first]
        obs = {name: value.flatten(0, 1)[chosen].unsqueeze(1) for name, value in batch.obs.items()}
        prev_action = batch.prev_action.flatten(0, 1)[chosen].unsqueeze(1)
        carry, alone = batch.carry.new_zeros(len(chosen), 0), exists.new_ones(len(chosen), 1)
        result = torch.zeros(len(self.v), *exists.shape)
        result[:, exists] = self.values_of(obs, prev_action, carry, alone)[:, torch.from_numpy(place), 0]
        return result

    @torch.no_grad()
    def values_of(self, raw: Obs, prev_action: Tensor, carry: Tensor, exists: Tensor) -> Tensor:
        """Return each V [G, B, L − K] of sequences of L tokens, on the CPU; arguments as of :class:`Rep`."""
        chunks, steps = [], slice(self._burn_in, None)
        for begin in range(0, len(exists), CHUNK):
            rows = slice(begin, begin + CHUNK)
            obs = self.model.normaliser({name: x[rows].to(self._device) for name, x in raw.items()})
            tokens = (x[rows].to(self._device) for x in (prev_action, carry, exists))
            state = self.value_encoder(obs, *tokens)[0][:, steps]
            seen = {name: x[:, steps].flatten(0, 1) for name, x in obs.items()}
            values = [v(state.flatten(0, 1), seen).view(state.shape[:2]).cpu() for v in self.v]
            chunks.append(torch.stack(values))
        return torch.cat(chunks, 1)
