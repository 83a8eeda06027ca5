"""The learner of ACER, which updates from the last rollout and from windows of the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.networks import policy_in_windows
from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.agents.on_policy.acer.heads import AcerHeads, AcerTerms, ChoiceHeads, NormalHeads, Positions
from algorithm.agents.on_policy.learner import RolloutLearner
from algorithm.agents.on_policy.networks import check_norms, make_acting_model
from algorithm.agents.on_policy.rollout import check_ratios
from algorithm.agents.roles import AgentInputs
from algorithm.core.data import SequenceBatch
from algorithm.core.errors import UsageError
from algorithm.extensions.base import Extension
from algorithm.nn.encoding import make_encoding
from algorithm.nn.layers.augment import RandomShift
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.learning.flat import Target
from algorithm.nn.learning.gradients import TrainingMode
from algorithm.nn.learning.optimiser import FlatOptimiser, FlatRms
from algorithm.nn.loader import Networks
from algorithm.nn.protocols import Rep
from algorithm.ops.on_policy import trust_region
from algorithm.ops.shapes import valid_share


class AcerLearner(RolloutLearner):
    """Networks of one agent, and their updates (arXiv 1611.01224, algorithms 1 and 3).

    inputs:   with a spec whose actions' whole distribution is recorded
    keys:     the family's block of keys
    networks, burn_in, extensions: as of :class:`RolloutLearner`

    Raises UsageError for an extension with a horizon of its own.
    """

    PARTS: ClassVar = {**RolloutLearner.PARTS, "q": ("critics.",)}

    def __init__(
        self,
        inputs: AgentInputs,
        networks: Networks,
        keys: AcerConfig,
        *,
        burn_in: int,
        extensions: Sequence[Extension],
    ) -> None:
        if networks.sources["ModelRep"] == "default":
            set_orthogonal(networks.rep)
        check_norms(networks)
        super().__init__(
            inputs,
            make_acting_model(inputs, networks),
            rate=keys.adam_rate,
            limit=keys.max_grad_norm,
            burn_in=burn_in,
            learn=keys.rollout_step,
            extensions=extensions,
        )
        self._keys = keys
        critics = [network for name, network in networks.built.items() if name != "ModelPolicy"]
        self._critics = nn.ModuleList(critics).to(self.device).eval()
        self.parts = {"encoder": self.model.rep, "policy": self.model.policy, "critics": self._critics}
        action = inputs.spec.action
        heads = ChoiceHeads if action.branches else NormalHeads
        self._heads: AcerHeads = heads(action, keys, inputs.config.run.gamma, *critics)
        actor = self.model.rep, self.model.policy
        self._optimiser = FlatRms(
            [*actor, *critics], keys.learning_rate, max_norm=self._limit, skipped=self._skipped, inside=True
        )
        size = sum(p.numel() for part in actor for p in part.parameters())
        self._average = Target(actor, self._optimiser.flat.data[:size])
        self._training_mode = TrainingMode([*actor, *critics], never=(RandomShift,))
        self._encoding = make_encoding(self.model.rep)
        self._check_horizons()

    def _check_horizons(self) -> None:
        if len(self._bonuses.by_horizon) > 1:
            raise UsageError(
                "ACER has one horizon for all rewards",
                where="reward_signals",
                why="its critics and values share one discount factor",
                fix="leave gamma and ends of the signals out, or set algorithm: PPO",
            )

    def num_replays(self) -> int:
        """Draw the number of replay updates after a rollout, from a Poisson distribution."""
        rate = torch.tensor(self._keys.replay_ratio)
        return int(torch.poisson(rate, generator=self._generator))

    def update(self, batch: SequenceBatch, *, drawn: bool, current: bool = False) -> dict[str, Tensor]:
        """Learn from windows of T transitions; return metrics on the device.

        drawn:   the windows are samples of the replay; otherwise they hold each transition of a rollout once
        current: the present networks acted in the whole rollout
        Raises ModelError if the policy computes other probabilities than while it acted.
        """
        (reward,) = self._bonuses.rewards(batch)
        on_device = batch.to(self.device)
        valid = on_device.valid[:, self._burn_in :]
        with self._training_mode():
            terms = self._terms(on_device, reward.to(self.device))
            if current and not self._burn_in:  # attention has caches of older networks while acting
                check_ratios(terms.ratio[valid].log())
            loss, metrics = self._loss(terms, _weights(valid, drawn=drawn))
            norm = self._optimiser.step(loss)
        self._average.polyak_(1.0 - self._keys.average_decay)
        self.updates += 1
        if self._bonuses.extensions:
            metrics |= self._bonuses.update(batch, self._generator)
        return {**metrics, "optim/grad_norm": norm}

    def _terms(self, batch: SequenceBatch, reward: Tensor) -> AcerTerms:
        rep, policy = self.model.rep, self.model.policy
        average_rep, average_policy = self._average.modules
        first, tokens = self._burn_in, slice(self._burn_in, None)
        obs = self.model.normaliser(batch.obs)
        learn = batch.window - first
        states = self._encoding(rep, cast(Rep, average_rep), obs, batch, burn_in=first, learn=learn)
        state, seen = states.online[:, tokens], {name: x[:, tokens] for name, x in obs.items()}
        with torch.no_grad():
            learned = {name: x[:, :-1] for name, x in seen.items()}
            average = policy_in_windows(average_policy, states.target_learned, learned)
        at = Positions(
            state=state,
            obs=seen,
            mask=batch.action_mask[:, tokens],
            action=batch.action[:, tokens],
            z=batch.z[:, tokens],
            recorded=batch.behaviour_logp[:, tokens],
            reward=reward,
            terminated=batch.terminated[:, tokens],
            valid=batch.valid[:, tokens],
            policy=policy_in_windows(policy, state, seen),
            average=average,
        )
        return self._heads.terms(at, self._generator)

    def _loss(self, terms: AcerTerms, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss, and metrics; weight: [B, T] of the positions in means, with the sum 1."""
        keys, step, shortened = self._keys, terms.ascent, torch.zeros_like(weight)
        if keys.trust_region is not None:
            step, shortened = trust_region(step, terms.divergence, keys.trust_region)
        policy_loss = -((step * terms.parameters).sum(-1) * weight).sum()
        error = terms.target - terms.q
        q_loss = 0.5 * (error.square() * weight).sum()
        if terms.own_value is not None:  # its target is V + min(1, ρ) (Q_ret − Q)
            missing = terms.ratio.clamp(max=1.0) * error.detach()
            q_loss = q_loss - (missing * terms.own_value * weight).sum()
        scale = self.return_scale.factor
        metrics = {
            "loss/policy": policy_loss.detach(),
            "loss/q": (error.detach().square() * weight).sum(),
            "policy/entropy": (terms.entropy * weight).sum(),
            "acer/ratio": (terms.ratio.clamp(max=keys.ratio_max) * weight).sum(),
            "acer/cut_off": ((terms.ratio > keys.ratio_max) * weight).sum(),
            "acer/shortened": (shortened * weight).sum(),
            "value/q_mean": (terms.q.detach() * weight).sum() / scale,
            "value/target": (terms.target * weight).sum() / scale,
        }
        return policy_loss + keys.q_coef * q_loss, metrics

    @override
    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, and with average networks equal to them."""
        super().begin_with(model, optim)
        self._average.polyak_(1.0)

    @override
    def modules(self) -> nn.Module:
        """Return all networks, with the average ones and those of extensions."""
        average = nn.ModuleList(self._average.modules)
        extensions = nn.ModuleList(self._bonuses.extensions)
        parts = {"model": self.model, "critics": self._critics, "average": average, "extensions": extensions}
        return nn.ModuleDict(parts)

    @override
    def optimisers(self) -> dict[str, FlatOptimiser]:
        """Return the optimisers of the networks (``all``) and of extensions."""
        return {"all": self._optimiser, **self._bonuses.optimisers}


def _weights(valid: Tensor, *, drawn: bool) -> Tensor:
    """Return the weights [B, T] of a mean over valid positions, with the sum 1.

    drawn: windows are samples, see :func:`algorithm.ops.shapes.window_mean`; else all positions weigh alike
    """
    share = valid_share(valid, torch.float32) if drawn else valid.float()
    return share / share.sum()
