"""The on-policy learner: updates of networks from rollouts, without environment, replay or files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.parts import make_parts
from algorithm.agents.config import BehavioralCloning
from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.imitation.cloning import Cloning
from algorithm.agents.on_policy.family_config import A2cConfig, A3cConfig, OwnConfig, PpoConfig
from algorithm.agents.on_policy.networks import make_encoders
from algorithm.agents.on_policy.rollout import Minibatch, Rollout, explained_variance, standardised
from algorithm.agents.on_policy.rollout_agent import RolloutLearner, check_ratios, means
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import SequenceBatch
from algorithm.extensions.base import Extension, signal_metric
from algorithm.nn.acting.model import TrainingMode
from algorithm.nn.distributions import HybridAction
from algorithm.nn.layers.augment import RandomShift
from algorithm.nn.learning.optimiser import FlatAdam, FlatOptimiser, FlatRms
from algorithm.nn.loader import Networks
from algorithm.nn.protocols import Obs
from algorithm.ops.densities import normal_entropy
from algorithm.ops.discrete import branch_log_probs
from algorithm.ops.on_policy import LARGEST_LOG_RATIO, approximate_kl, surrogate, value_error
from algorithm.ops.shapes import added

EPSILON = 1e-5
"""Addend of both optimisers' divisors (The 37 Implementation Details, 3)."""

_ENTROPY_OF_ONE = 0.5 * math.log(2.0 * math.pi * math.e)  # of a normal distribution with σ = 1

Metric = TypeVar("Metric", float, Tensor)

_CHUNK = 1024  # sequences whose values are computed at once


class OnPolicyLearner(RolloutLearner):
    """Networks of one agent, and their updates.

    inputs:   with actions whose ``squash`` is ``clip``
    own:      the family's block of keys
    burn_in:  K, tokens that attention sees before a sequence. Its caches while acting are those of networks
              before the last update, so there the ratio is to the policy before this update.
    networks, learn, extensions: as of :class:`RolloutLearner`
    """

    PARTS: ClassVar = {**RolloutLearner.PARTS, "v": ("v.", "signal_v.", "value_encoder.")}

    def __init__(
        self,
        inputs: AgentInputs,
        networks: Networks,
        own: OwnConfig,
        *,
        burn_in: int,
        learn: int,
        extensions: Sequence[Extension],
    ) -> None:
        self._encoders = make_encoders(networks, shared=own.shared, device=inputs.device)
        super().__init__(
            inputs,
            networks,
            rate=own.adam_rate,
            limit=own.max_grad_norm,
            burn_in=burn_in,
            learn=learn,
            extensions=extensions,
        )
        self._own = own
        further = [networks.make("ModelV") for _ in range(len(self._bonuses.by_horizon) - 1)]
        self._v = nn.ModuleList([networks.built["ModelV"], *further]).to(self.device).eval()
        # The policy has acted on images that were not shifted.
        learning = self._encoders, self.model.policy, *self._v
        self._training_mode = TrainingMode(learning, never=(RandomShift,))
        self._action, self._parts = inputs.spec.action, make_parts(inputs.spec.action)
        v, *more = self._v
        trained = [self.model.rep, self.model.policy, v, *self._encoders.own().values(), *more]
        self._optimiser = self._make_optimiser(trained)
        self._cloning: Cloning | None = None
        self._clip_factor = 1.0

    def _make_optimiser(self, modules: Sequence[nn.Module]) -> FlatOptimiser:
        own, rate, limit, skipped = self._own, self._own.learning_rate, self._limit, self._skipped
        if isinstance(own, PpoConfig):
            return FlatAdam(modules, rate, max_norm=limit, skipped=skipped, epsilon=EPSILON)
        assert isinstance(own, A2cConfig | A3cConfig)
        inside = own.use_tf_rms
        return FlatRms(modules, rate, max_norm=limit, skipped=skipped, epsilon=EPSILON, inside=inside)

    def update(self, batch: SequenceBatch, *, current: bool = True) -> dict[str, float]:
        """Learn from a rollout; return the means of its updates' metrics. Waits for the device at its end.

        batch:   windows that hold each transition once, of ``ReplayBuffer.chains``
        current: the present networks have acted, in all of it
        Raises ModelError if the policy gives other probabilities than while it acted.
        """
        own = self._own
        with self._training_mode():
            rollout = Rollout(batch, self._burn_in, self._values(batch))
            corrected = own.use_vtrace and not current
            if self._burn_in or corrected:
                self._set_first(rollout)
            if corrected:
                rollout.correct()
            (value, target), *more = rollout.estimate(
                self._bonuses.rewards(batch, _CHUNK, reward_scale=self.return_scale.factor),
                list(self._bonuses.by_horizon),
                reward_scale=self.return_scale.factor,
                trace_decay=own.gae_lambda,
            )
            if own.normalise_advantage == "rollout":
                rollout.normalise()
            metrics, epochs = list[Mapping[str, Tensor]](), 0
            for _ in range(own.num_epoch):
                if not self._epoch(rollout, metrics, checked=current):
                    break
                epochs += 1
        cloned = self.clone(len(metrics) * self._cloning.updates) if self._cloning else {}
        return {
            **means(metrics),
            **{name: float(value) for name, value in cloned.items()},
            "ppo/explained_variance": explained_variance(value, target),
            **self._of_signals("ppo/explained_variance", (explained_variance(*one) for one in more)),
            "ppo/epochs_done": float(epochs),
            "ppo/trace_weight": float(rollout.weight[rollout.valid].mean()),
            "value/target": float(target.mean()) / self.return_scale.factor,
        }

    def _of_signals(self, name: str, values: Iterable[Metric]) -> dict[str, Metric]:
        """Return values of all horizons but the agent's, by names of their signals."""
        _, *groups = self._bonuses.by_horizon.values()
        return {signal_metric(name, group): value for group, value in zip(groups, values, strict=True)}

    @torch.no_grad()
    def _set_first(self, rollout: Rollout) -> None:
        """Set log π − log μ of all transitions before the update."""
        for sequences in torch.arange(len(rollout)).split(_CHUNK):
            part = rollout.part(sequences).to(self.device)
            log_ratio, *_ = self._evaluate(part)
            own = torch.zeros(part.valid.shape, device=self.device)
            own[part.valid] = log_ratio
            rollout.first[sequences] = own.cpu()

    def _epoch(self, rollout: Rollout, metrics: list[Mapping[str, Tensor]], *, checked: bool) -> bool:
        """Make the updates of an epoch, and add their metrics; return False if ``target_kl`` has ended it.

        checked: the ratios of the very first update must be 1
        """
        order = torch.randperm(len(rollout), generator=self._generator)
        for sequences in order.tensor_split(min(self._own.num_minibatch, len(order))):
            found = self._step(rollout.part(sequences).to(self.device), first=checked and not metrics)
            if self._bonuses.extensions:
                windows, scale = rollout.windows(sequences), self.return_scale.factor
                found |= self._bonuses.update(windows, self._generator, reward_scale=scale)
            metrics.append(found)
            limit = self._own.target_kl
            if limit is not None and float(found["ppo/approx_kl"]) > 1.5 * limit:
                return False
        return True

    def _step(self, part: Minibatch, *, first: bool) -> dict[str, Tensor]:
        own = self._own
        clip = own.clip * self._clip_factor
        advantage = part.taken(part.advantage)
        if own.normalise_advantage == "minibatch" and len(advantage) > 1:
            advantage = standardised(advantage)
        log_ratio, entropies, values = self._evaluate(part)
        if first:
            check_ratios(log_ratio)
        policy_loss = (part.taken(part.weight) * surrogate(log_ratio, advantage, clip)).mean()
        value_losses = [
            value_error(value, part.taken(old), part.taken(target), own.clip_value).mean()
            for value, old, target in zip(values, part.values, part.targets, strict=True)
        ]
        mean_entropies = {name: entropy.mean() for name, entropy in entropies.items()}
        mean_entropy = added(mean_entropies.values())
        loss = policy_loss + own.value_coef * added(value_losses) - own.entropy_coef * mean_entropy
        norm = self._optimiser.step(loss)
        self.updates += 1
        with torch.no_grad():
            moved = log_ratio.detach()
            change = moved.clamp(max=LARGEST_LOG_RATIO).expm1()  # ρ − 1
            return {
                "loss/policy": policy_loss.detach(),
                "loss/value": value_losses[0].detach(),
                **self._of_signals("loss/value", (one.detach() for one in value_losses[1:])),
                "policy/entropy": mean_entropy.detach(),
                **self._widths(mean_entropies),
                "ppo/approx_kl": approximate_kl(moved).mean(),
                "ppo/clip_fraction": (change.abs() > clip).float().mean(),
                "ppo/ratio_max": change.max() + 1.0,
                "optim/grad_norm": norm,
            }

    def _evaluate(self, part: Minibatch) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Return log π − log μ, entropies of the policy and each V of the M transitions of a minibatch."""
        obs = self.model.normaliser(part.obs)
        states = self._encoders(obs, part.prev_action, part.carry, part.exists)
        learned, taken = slice(self._burn_in, None), part.taken
        state, of_value = (taken(one[:, learned]) for one in states)
        obs = {name: taken(value[:, learned]) for name, value in obs.items()}
        policy = self.model.policy(state, obs)
        logp, choices = taken(part.behaviour_logp), None
        log_ratio = self._parts.continuous.log_ratio(policy, taken(part.z), logp) - taken(part.first)
        if policy.logits is not None:
            mask = None if part.action_mask is None else taken(part.action_mask)
            choices = branch_log_probs(policy.logits, mask, self._action.branches)
            chosen = taken(part.action)[:, : self._action.discrete]
            log_ratio = log_ratio + (choices[0] * chosen).sum(-1) - logp[:, 0]
        return log_ratio, _entropies(policy, choices), [v(of_value, obs) for v in self._v]

    def _widths(self, entropies: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return metrics of how far the policy spreads its actions."""
        action, found = self._action, {}
        if "c" in entropies:  # the inverse of a normal distribution's entropy, ln σ + ½ ln 2πe
            found["policy/std"] = (entropies["c"] / action.continuous - _ENTROPY_OF_ONE).exp()
        if "d" in entropies:
            found["policy/entropy_share"] = entropies["d"] / sum(map(math.log, action.branches))
        return found

    def _values(self, batch: SequenceBatch) -> Tensor:
        """Return each V [G, B, T+1] of the learned tokens and of the one behind, on the CPU."""
        exists = batch.obs_valid
        if self.model.rep.carry_shape != (0,):
            return self._values_of(batch.obs, batch.prev_action, batch.carry, exists)
        # Without a memory a token has one value wherever it stands, and most stand in two windows.
        tokens = exists.flatten().nonzero()[:, 0]
        _, first, place = np.unique(batch.ids.flatten()[tokens], return_index=True, return_inverse=True)
        chosen = tokens[first]
        obs = {name: value.flatten(0, 1)[chosen].unsqueeze(1) for name, value in batch.obs.items()}
        prev_action = batch.prev_action.flatten(0, 1)[chosen].unsqueeze(1)
        carry, alone = batch.carry.new_zeros(len(chosen), 0), exists.new_ones(len(chosen), 1)
        result = torch.zeros(len(self._v), *exists.shape)
        result[:, exists] = self._values_of(obs, prev_action, carry, alone)[:, torch.from_numpy(place), 0]
        return result

    @torch.no_grad()
    def _values_of(self, raw: Obs, prev_action: Tensor, carry: Tensor, exists: Tensor) -> Tensor:
        found, learned = [], slice(self._burn_in, None)
        for at in range(0, len(exists), _CHUNK):
            rows = slice(at, at + _CHUNK)
            obs = self.model.normaliser({name: value[rows].to(self.device) for name, value in raw.items()})
            tokens = (one[rows].to(self.device) for one in (prev_action, carry, exists))
            state = self._encoders.for_values(obs, *tokens)
            shape, state = state[:, learned].shape[:2], state[:, learned].flatten(0, 1)
            seen = {k: v[:, learned].flatten(0, 1) for k, v in obs.items()}
            found.append(torch.stack([v(state, seen).view(shape).cpu() for v in self._v]))
        return torch.cat(found, 1)

    def set_factors(self, *, learning_rate: float, clip: float, cloning: float = 1.0) -> None:
        """Set learning rates, clip and the rate of cloning to so many times those of the configuration."""
        self._clip_factor = clip
        self.scale_learning_rate(learning_rate)
        if self._cloning:
            self._cloning.factor = cloning

    def begin_cloning(self, store: DemoStore, keys: BehavioralCloning, *, batch_size: int) -> None:
        """Clone demonstrations into encoder and policy after each rollout from now on."""
        self._cloning = Cloning(
            self.model,
            {"cloning": self._optimiser.flat},
            self._parts.discrete,
            training_mode=self._training_mode,
            store=store,
            batch_size=batch_size,
            updates=keys.updates,
            learning_rate=keys.strength * self._own.adam_rate,
            skipped=self._skipped,
        )

    def clone(self, n: int) -> dict[str, Tensor]:
        """Take n steps of behavioural cloning; return the means of their metrics."""
        assert self._cloning is not None, "the configuration asks for it"
        return self._cloning.update(n, self._generator)

    @override
    def parts(self) -> dict[str, nn.Module]:
        """Return encoder, policy and values, and the encoder of these if there is one."""
        shared = {"encoder": self.model.rep, "policy": self.model.policy, "value": self._v}
        return {**shared, **self._encoders.own()}

    @override
    def modules(self) -> nn.Module:
        """Return all networks, those of extensions among them."""
        extensions = nn.ModuleList(self._bonuses.extensions)
        v, *more = self._v
        parts = {"model": self.model, "v": v, "extensions": extensions, **self._encoders.own()}
        return nn.ModuleDict({**parts, "signal_v": nn.ModuleList(more)})

    @override
    def optimisers(self) -> dict[str, FlatOptimiser]:
        """Return that of the networks, those of extensions, and that of cloning."""
        cloning = self._cloning.optimisers if self._cloning else {}
        return {"all": self._optimiser, **self._bonuses.optimisers, **cloning}


def _entropies(policy: HybridAction, choices: tuple[Tensor, Tensor] | None) -> dict[str, Tensor]:
    """Return the entropy [M] of each part, ``c`` and ``d``, a sum over its components or branches.

    choices: log π and π [M, ΣN] of ``branch_log_probs``
    """
    found = {}
    if policy.continuous is not None:
        found["c"] = normal_entropy(policy.continuous.log_std)
    if choices is not None:
        log_probs, probs = choices
        found["d"] = -(probs * log_probs).sum(-1)
    return found
