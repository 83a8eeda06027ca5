"""Networks, optimisers and random numbers of an off-policy learner; its update is in ``update.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.imitation.cloning import Cloning, Constraint
from algorithm.agents.learner import Learner
from algorithm.agents.networks import policy_in_windows
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model, check_norms, make_horizons
from algorithm.agents.off_policy.objective import Objective
from algorithm.agents.off_policy.values.choice import choose_reduce, make_values
from algorithm.core.data import SequenceBatch, StepBatch
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Context, Extension, Horizon, by_horizon, draw_all
from algorithm.extensions.steps import ExtensionSteps
from algorithm.nn.encoding import States
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.noisy import LayerNoise
from algorithm.nn.layers.norm import BatchStatistics
from algorithm.nn.learning.gradients import Autograd, Loss
from algorithm.nn.learning.optimiser import FlatAdam, optimiser_if_any
from algorithm.nn.loader import Networks
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import HybridAction, Obs
from algorithm.nn.return_scale import NoReturnScale, make_return_scale
from algorithm.ops.shapes import total


class OffPolicyNetworks(Learner):
    """Networks, optimisers and random numbers of an off-policy learner.

    spec:       observations and actions of the agent
    networks:   the task's networks, one of each kind
    keys:       the shared keys, with the values that the algorithm prescribes
    objective:  losses of the algorithm
    device, seed: of the networks and of all random numbers drawn in updates
    extensions: used through the interface :class:`~algorithm.extensions.base.Extension` only
    constraint: on the policy; None for no constraint
    """

    PARTS: ClassVar = Learner.PARTS | {
        "q": ("model.q.", "model.signal_q.", "model.bounds."),
        "temperature": ("objective.",),
    }

    def __init__(
        self,
        spec: AgentSpec,
        networks: Networks,
        keys: OffPolicyConfig,
        objective: Objective,
        *,
        device: torch.device,
        seed: int,
        extensions: Sequence[Extension] = (),
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(device, seed)
        self.keys, self.constraint = keys, constraint
        self.objective, self.parts = objective.to(device), objective.parts
        self.extensions = tuple(extension.to(device) for extension in extensions)
        self.cloning: Cloning | None = None  # set and used by the agent
        self.model = Model(
            networks,
            Normaliser(spec.obs) if keys.use_normalization else NoNormaliser(),
            action_size=spec.action.continuous,
            ensemble_size=keys.ensemble_q_num,
            horizons=len(by_horizon(self.extensions, Horizon(keys.gamma))),
            device=device,
        )
        check_norms(self.model, keys)
        self.return_scale = make_return_scale(keys.reward_scaling, keys.gamma, keys.start_step)
        self.values = make_values(keys, spec.action, device)
        _, self.policy_reduce = choose_reduce(keys)
        self._set_options(spec)
        self._make_optimisers(seed)
        self._make_statistics()

    def _set_options(self, spec: AgentSpec) -> None:
        """Set slices of windows and actions, and the options of an update that follow from the keys."""
        keys, action = self.keys, spec.action
        self.learned = slice(keys.burn_in_step, keys.burn_in_step + keys.learn_step)
        self.continuous, self.branches = slice(action.discrete, None), len(action.branches)
        self._action_size = action.continuous
        self.scales_rewards = not isinstance(self.return_scale, NoReturnScale)
        self.prepares_obs = keys.use_normalization or "float64" in spec.obs.dtypes

    def _make_optimisers(self, seed: int) -> None:
        """Make the optimisers, whose storages hold all parameters, and the target networks."""
        keys, model, objective, extensions = self.keys, self.model, self.objective, self.extensions
        rate, adam = keys.learning_rate, partial(FlatAdam, skipped=self._skipped, beta_1=keys.adam_beta_1)
        make = partial(adam, learning_rate=rate, max_norm=keys.max_grad_norm or math.inf)
        self.critic_optimiser = make([model.rep, *model.critics], weight_decay=keys.weight_decay)
        self.joint_optimiser = optimiser_if_any(make, [extension.joint for extension in extensions])
        self.extension_steps = ExtensionSteps(extensions, make)
        model.make_targets(self.critic_optimiser.flat if keys.use_target_network else None)
        self.horizons = make_horizons(model, keys, extensions, self.return_scale)
        self._subset_generator = torch.Generator().manual_seed(seed)
        self.policy_optimiser = make([model.policy], weight_decay=keys.weight_decay)
        if objective.slow_policy and keys.use_target_network:
            model.make_policy_target(self.policy_optimiser.flat)
        make_alpha = partial(adam, learning_rate=objective.learning_rate or rate)
        self.alpha_optimiser = optimiser_if_any(make_alpha, [objective])
        every = [self.critic_optimiser, self.joint_optimiser, *self.extension_steps.optimisers.values()]
        self.critic_optimisers = [optimiser for optimiser in every if optimiser]
        self.policy_optimisers = [x for x in (self.policy_optimiser, self.alpha_optimiser) if x]
        self.encoder = slice(0, sum(p.numel() for p in model.rep.parameters()))
        self.autograd = Autograd(gate=self.encoder, mode=model.training_mode)

    def _make_statistics(self) -> None:
        """Collect the batch norms, whose statistics each update commits, and the layers with noise."""
        model = self.model
        policy_norms = BatchStatistics([model.policy])
        self.policy_norms = policy_norms if policy_norms else None
        norm_pass = any(critics.norm_pass is not None for critics in self.horizons)
        self.has_statistics = norm_pass or any(critics.bounds is not None for critics in self.horizons)
        self.has_batch_norms = norm_pass or self.policy_norms is not None
        self.norm_ready = {"learn_critics": False, "learn_policy": False}
        members = [member for q in model.critics for member in q.members]
        layer_noise = LayerNoise([model.rep, model.policy, *members], on=True)
        self.layer_noise = layer_noise if layer_noise else None

    def draw_noise(self, size: int) -> Tensor:
        """Draw standard normal noise [size, A_c] for ``size`` continuous actions."""
        return torch.randn((size, self._action_size), generator=self._generator, device=self.device)

    def draw_coins(self, windows: int, steps: int) -> Tensor | None:
        """Draw the uniform numbers [windows, steps] of a return that samples; None for other returns."""
        if not self.horizons[0].returns.samples:
            return None
        return torch.rand((windows, steps), generator=self._generator, device=self.device)

    def draw_subset(self) -> Tensor | None:
        """Draw the indices [M] of the critics in an update's targets, on the CPU; None: all critics."""
        if self.keys.ensemble_q_sample == self.keys.ensemble_q_num:
            return None
        order = torch.randperm(self.keys.ensemble_q_num, generator=self._subset_generator)
        return order[: self.keys.ensemble_q_sample]

    def draw_extensions(self, batch: SequenceBatch) -> list[dict[str, object]]:
        """Draw the random numbers of the extensions, for each step of their own modules."""
        rounds = range(self.extension_steps.rounds)
        return [draw_all(self.extensions, batch, self.learned, self._generator) for _ in rounds]

    @override
    def generators(self) -> dict[str, torch.Generator]:
        """Return the generators of noise (``update``) and of the critics in a target (``subset``)."""
        return {"update": self._generator, "subset": self._subset_generator}

    def extension_losses(
        self, batch: SequenceBatch, drawn: Mapping[str, object]
    ) -> tuple[Loss, dict[str, Tensor]]:
        """Return the losses of the extensions' own modules, for a further step of them, and values to log."""
        return self.extension_steps.loss(self.encode(batch, drawn))

    def encode(self, batch: SequenceBatch, drawn: Mapping[str, object] | None = None) -> Context:
        """Return a batch with its states, scaled observations and rewards; drawn: extensions' numbers."""
        if self.scales_rewards:
            batch = replace(batch, reward=batch.reward * self.return_scale.scale)
        obs = self.model.normaliser(batch.obs) if self.prepares_obs else batch.obs
        return Context(
            batch=batch,
            obs=obs,
            states=self.states(obs, batch),
            burn_in=self.keys.burn_in_step,
            learn=self.keys.learn_step,
            networks=self,
            drawn=drawn or {},
        )

    def normalise(self, obs: Obs) -> Obs:
        """Return raw observations, of any shape [..., *obs], normalised as the networks' inputs."""
        inputs: Obs = self.model.normaliser(obs)
        return inputs

    def states(self, obs: Obs, batch: SequenceBatch) -> States:
        """Return online and target states of a batch's tokens; obs: [B, W+1, ...] the networks' inputs."""
        burn_in, learn, model = self.keys.burn_in_step, self.keys.learn_step, self.model
        return model.encoding(model.rep, model.target_rep, obs, batch, burn_in=burn_in, learn=learn)

    def q(self, state: Tensor, action: Tensor) -> Tensor:
        """Return Q [E, B, T] of flat actions [B, T, A] in states [B, T, S], by the main horizon's critics."""
        flat = action.flatten(0, 1)
        return self._mean_of(self.model.q(state.flatten(0, 1), flat[:, self.continuous]), flat, state)

    @torch.no_grad()
    def target_q(self, state: Tensor, action: Tensor, critics: Ensemble | None = None) -> Tensor:
        """Return Q as :meth:`q` does, by target critics (default: the main horizon's), without gradient."""
        flat, q = action.flatten(0, 1), critics or self.model.target_q
        return self._mean_of(q.frozen(state.flatten(0, 1), flat[:, self.continuous]), flat, state)

    def _mean_of(self, out: Tensor, action: Tensor, state: Tensor) -> Tensor:
        """Return the expected returns [E, B, T] of flat actions [B·T, A], of outputs [E, B·T, N·D]."""
        taken = self.values.taken(out, action)
        return self.values.mean(taken.view(*taken.shape[:-1], *state.shape[:2]))

    def mean_q(self, state: Tensor, u: Tensor) -> Tensor:
        """Return Q [P, N] of actions u [P, A_c] in states [P, S]: mean over critics, sum over horizons."""
        return total(self.values.point(q.frozen(state, u)).mean(0) for q in self.model.critics)

    @torch.no_grad()
    def policy(self, state: Tensor, obs: Obs) -> HybridAction:
        """Return the policy's distribution [B, T, ...] in states [B, T, S]; obs: [B, T, ...] inputs."""
        return policy_in_windows(self.model.policy, state, obs)

    def policy_in_batch(self, state: Tensor, obs: Obs, share: Tensor) -> HybridAction:
        """Return the policy in states [P, S]; batch norms use these states' statistics, by weights [P]."""
        if self.policy_norms is None:
            policy: HybridAction = self.model.policy(state, obs)
        else:
            with self.policy_norms.of_batch(None if self.keys.learn_step == 1 else share):
                policy = self.model.policy(state, obs)
        return policy

    def log_ratio(self, batch: SequenceBatch, policy: HybridAction) -> Tensor:
        """Return log π/μ [B, L−1] of the stored actions after the first learned one: tokens K+1 … W−1.

        policy: at tokens K+1 … W, [B·L, ...]
        """
        interior = slice(self.keys.burn_in_step + 1, -1)  # the last token has no action
        following = slice(self.keys.burn_in_step + 1, None)
        size, length = batch.z[:, following].shape[:2]
        return self.parts.log_ratio(
            policy.map(lambda x: x.view(size, length + 1, -1)[:, :-1]),
            batch.action_mask[:, interior],
            batch.action[:, following],
            batch.z[:, following],
            batch.behaviour_logp[:, following],
        )

    def commit_statistics(self) -> None:
        """Commit statistics of batch norms and value bounds if the critics' step was taken."""
        usable = self.critic_optimiser.usable
        for critics in self.horizons:
            if critics.bounds is not None:
                critics.bounds.commit(usable)
            if critics.norm_pass is not None:
                critics.norm_pass.commit(usable)

    def note_warm_up(self) -> None:
        """Set ``norm_ready``: for each step of an update, whether a batch norm may be past its warm-up."""
        passes = [critics.norm_pass for critics in self.horizons]
        warm = [norm_pass.past_warm_up() for norm_pass in passes if norm_pass is not None]
        self.norm_ready["learn_critics"] = any(warm)
        self.norm_ready["learn_policy"] = self.policy_norms is not None and self.policy_norms.past_warm_up()

    @override
    def observe(self, new: StepBatch) -> None:
        """Add new rows to the running statistics: rewards now, observations at the next update."""
        self.model.normaliser.add(new.new_obs(self.model.normaliser.names))
        super().observe(new)

    def move_targets(self, tau: float) -> None:
        """Move all target networks by θ' ← θ' + τ (θ − θ'), those of extensions too; τ = 1 copies θ."""
        self.model.target.polyak_(tau)
        if self.model.policy_target is not None:
            self.model.policy_target.polyak_(tau)
        for extension in self.extensions:
            extension.updated(tau)

    @override
    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, and with targets equal to them; see :meth:`.Learner.begin_with`."""
        super().begin_with(model, optim)
        self.move_targets(1.0)

    @override
    def optimisers(self) -> dict[str, FlatAdam]:
        """Return the optimisers of critics and encoder, policy, objective, extensions and cloning."""
        groups = {
            "critic": self.critic_optimiser,
            "policy": self.policy_optimiser,
            "alpha": self.alpha_optimiser,
            "joint": self.joint_optimiser,
            **self.extension_steps.optimisers,
            **(self.cloning.optimisers if self.cloning else {}),
        }
        return {name: adam for name, adam in groups.items() if adam}

    @override
    def modules(self) -> nn.Module:
        """Return all networks, with targets, temperatures and extensions."""
        extensions = nn.ModuleList(self.extensions)
        return nn.ModuleDict({"model": self.model, "objective": self.objective, "extensions": extensions})
