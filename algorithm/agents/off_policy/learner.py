"""The off-policy learner: updates of networks from batches, without environment, replay or files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.imitation.cloning import Cloning, Constraint, Unconstrained
from algorithm.agents.learner import Learner
from algorithm.agents.off_policy.compiled_update import CompiledParts, EagerParts, Say, functional_of
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.critic_update import CriticUpdate, Critique
from algorithm.agents.off_policy.model import Model, check_norms, flatten_time
from algorithm.agents.off_policy.values import choose_reduce, make_values
from algorithm.agents.off_policy.variant import Heads
from algorithm.core.data import Segment, SequenceBatch, StepBatch, UpdateResult
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Context, Extension, Horizon, by_horizon, draw_all
from algorithm.nn.layers.noisy import LayerNoise
from algorithm.nn.layers.norm import BatchStatistics
from algorithm.nn.learning.gradients import Autograd, Gradients, Loss
from algorithm.nn.learning.optimiser import FlatAdam, if_any
from algorithm.nn.loader import Networks
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.process import graphs_round
from algorithm.nn.protocols import Obs
from algorithm.nn.return_scale import make_return_scale
from algorithm.ops.sac import sequence_priority
from algorithm.ops.shapes import added, valid_share


class OffPolicyLearner(Learner):
    """Critics that learn from a replay, and a policy that climbs them (REDQ's subset: arXiv 2101.05982).

    spec:       observations and actions of the agent
    networks:   the task's single networks
    config:     the shared keys, as the algorithm means them
    heads:      of the algorithm: losses of the policy, its part in targets; constraint: on the policy
    device, seed: of the networks and of all random numbers drawn in updates
    extensions: attached through :class:`~algorithm.extensions.base.Extension` only
    compiled:   updates are; see :func:`~algorithm.agents.off_policy.compiled_update.reason_against`
    eager_first: updates before the compiled ones, counted over all runs that go on from one another
    """

    PARTS: ClassVar = Learner.PARTS | {
        "q": ("model.q.", "model.signal_q.", "model.bounds."),
        "temperature": ("composition.",),
    }

    def __init__(
        self,
        spec: AgentSpec,
        networks: Networks,
        config: OffPolicyConfig,
        heads: Heads,
        *,
        device: torch.device,
        seed: int,
        extensions: Sequence[Extension] = (),
        compiled: bool = False,
        eager_first: int = 0,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(device, seed)
        self._keys, self._eager_first = config, eager_first
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)
        self.extensions = tuple(extension.to(device) for extension in extensions)
        self.model = Model(
            networks,
            Normaliser(spec.obs) if config.use_normalization else NoNormaliser(),
            action_size=spec.action.continuous,
            ensemble_size=config.ensemble_q_num,
            horizons=len(by_horizon(self.extensions, Horizon(config.gamma))),
            device=device,
        )
        check_norms(self.model, config)
        self.return_scale = make_return_scale(config.reward_scaling, config.gamma, config.start_step)
        self.heads = heads.to(device)
        self._constraint = constraint or Unconstrained()
        self.cloning: Cloning | None = None  # whoever sets it, clones by it
        self._values = make_values(config, spec.action, device)
        _, self._climbed = choose_reduce(config)
        self._action_size = spec.action.continuous
        members = [member for q in self.model.critics for member in q.members]
        self._layer_noise = LayerNoise([self.model.rep, self.model.policy, *members], on=True)
        self._make_optimisers(spec, seed)
        self._eager = EagerParts(Autograd(gate=self.critics.encoder), self.model.training_mode)
        self._compiled: CompiledParts | None = None
        if compiled:
            others, steps = [self.heads, *self.extensions], list(self.optimisers().values())
            functional = functional_of(self.model, others, steps, gate=self.critics.encoder)
            rounded = config.matmul_precision == "medium" and graphs_round(device)
            self._compiled = CompiledParts(self._eager, functional, rounded=rounded)

    def _make_optimisers(self, spec: AgentSpec, seed: int) -> None:
        """Lay the networks into the storages of their optimisers, and the slow copies beside them."""
        keys, model, heads = self._keys, self.model, self.heads
        rate, adam = keys.learning_rate, partial(FlatAdam, skipped=self._skipped, beta_1=keys.adam_beta_1)
        make_step = partial(adam, learning_rate=rate, max_norm=keys.max_grad_norm or math.inf)
        self.critics = CriticUpdate(
            model,
            heads,
            spec.action,
            keys,
            make_step=make_step,
            return_scale=self.return_scale,
            extensions=self.extensions,
            values=self._values,
            seed=seed,
        )
        self._policy_step = make_step([model.policy], weight_decay=keys.weight_decay)
        if heads.slow_policy and keys.use_target_network:
            model.follow_policy(self._policy_step.flat)
        self._policy_norms = BatchStatistics([model.policy])
        self._alpha_step = if_any(partial(adam, learning_rate=heads.learning_rate or rate), [heads])

    def tell(self, say: Say) -> None:
        """Have compiling announced by ``say``, what goes wrong there, and a factor on rewards."""
        self.return_scale.on_message = say
        if self._compiled:
            self._compiled.tell(say)

    def update(self, batch: SequenceBatch) -> UpdateResult:
        """Take one gradient step of critics, policy, temperature and extensions; the target follows.

        No operation waits for the device. A step with a gradient that is not finite is skipped and counted in
        ``skipped``; then ``priority`` may hold NaN. The target follows, since the parameters stay finite.
        """
        self.updates += 1
        corrects = self.critics.look(), self._policy_norms.look()
        batch = batch.to(self.device)
        self._layer_noise.apply(self._generator)
        ahead = self._draw(batch, batch.window - self._keys.burn_in_step)
        due = self.updates % self._keys.policy_update_per_step == 0
        now = self._draw(batch, self._keys.learn_step) if due else None
        members = self.critics.draw_subset()
        drawn = [
            draw_all(self.extensions, batch, self._learned, self._generator)
            for _ in range(self.critics.own.rounds)
        ]
        run = self._compiled if self._compiled and self.updates > self._eager_first else self._eager
        run.graphs = 0
        found = run(self._learn_critics, corrects[0], batch, ahead, members, drawn)
        if now is not None:
            obs, state = found["obs"], found["state"]
            found["metrics"] |= run(self._learn_policy, corrects[1], batch, obs, state, now)
        if self.updates % self._keys.update_target_per_step == 0:
            self.move_targets(self._keys.tau)
        return UpdateResult(
            ids=batch.ids,
            anchor=batch.anchor,
            valid=batch.valid[:, self._learned],
            priority=sequence_priority(found["td_error"], batch.valid[:, self._learned]),
            carry=found.get("carry"),
            metrics=found["metrics"],
        )

    @property
    def compiled(self) -> bool:
        """True if a part of the last update was compiled before it was taken."""
        return self._compiled is not None and self._compiled.graphs > 0

    def _draw(self, batch: SequenceBatch, tokens: int) -> Tensor:
        """Draw the noise of the actions at so many tokens of each window, [P, A_c]."""
        size = len(batch.reward) * tokens, self._action_size
        return torch.randn(size, generator=self._generator, device=self.device)

    def _learn_critics(
        self,
        batch: SequenceBatch,
        noise: Tensor,
        members: Tensor | None,
        drawn: Sequence[Mapping[str, object]],
        by: Gradients,
    ) -> Critique:
        """Take the steps of encoder, critics and extensions; see :meth:`.CriticUpdate.update`.

        drawn: by the extensions, for each step of their own parts
        """
        first, *further = drawn
        found = self.critics.update(replace(self.encode(batch), drawn=first), noise, members, by)
        for one in further:
            found["metrics"] |= self.critics.own.update(replace(self.encode(batch), drawn=one), by)
        return found

    def move_targets(self, tau: float) -> None:
        """Let everything slow follow by ``tau``; 1: it equals what it follows."""
        self.model.move_targets(tau)
        for extension in self.extensions:
            extension.updated(tau)

    @override
    def observe(self, new: Segment | StepBatch) -> None:
        """Take rewards of rows that are new in the replay into the running statistics.

        Their observations wait for the normaliser's ``settle``.
        """
        self.model.normaliser.add(new.new_obs(self.model.normaliser.names))
        super().observe(new)

    @torch.no_grad()
    def td_error(self, batch: SequenceBatch) -> Tensor:
        """Return the present priority [B] of a batch, in units of the TD error; nothing is learned."""
        batch = batch.to(self.device)
        ctx = self.encode(batch)
        noise = self._draw(batch, batch.window - self._keys.burn_in_step)
        td_error = self.critics.td_error(ctx, noise, self.critics.draw_subset())
        return sequence_priority(td_error, batch.valid[:, ctx.learned])

    def encode(self, batch: SequenceBatch) -> Context:
        """Encode a batch; its observations and rewards are on one scale, the same for all losses."""
        batch = replace(batch, reward=batch.reward * self.return_scale.scale)
        obs = self.model.normaliser(batch.obs)
        burn_in, learn = self._keys.burn_in_step, self._keys.learn_step
        recode = partial(self.model.encode, batch=batch, burn_in=burn_in, learn=learn)
        return Context(
            batch=batch,
            obs=obs,
            states=recode(obs),
            burn_in=burn_in,
            learn=learn,
            normalise=self.model.normaliser,
            recode=recode,
            q=partial(self.critics.taken_q, batch, self.model.q),
            target_q=partial(self.critics.target_q, batch),
        )

    def _learn_policy(
        self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor, by: Gradients
    ) -> dict[str, Tensor]:
        """Take a step of policy and temperature on the learned states [B, T, S].

        obs:   the networks' inputs there [B, T, ...]
        noise: [P, A_c]
        """
        now = {name: flatten_time(x) for name, x in obs.items()}
        evaluate = partial(self._policy_losses, batch, now, flatten_time(state), noise)
        steps = [step for step in (self._policy_step, self._alpha_step) if step]
        # greedy actions alone have no policy to learn
        metrics = by.descend(steps, evaluate)[0] if self.heads.learns else evaluate()[1]
        if self.heads.learns and self._policy_norms:
            metrics["norm/shift_policy"] = self._policy_norms.settle(self._policy_step.usable)
        shape = -1, self._keys.learn_step
        return {name: x.unflatten(-1, shape) if x.dim() else x for name, x in metrics.items()}

    def _policy_losses(
        self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor
    ) -> tuple[Loss, dict[str, Tensor]]:
        share = flatten_time(valid_share(batch.valid[:, self._learned], batch.weight.dtype))
        of_rows = None if self._keys.learn_step == 1 else share / share.sum().clamp(min=1.0)
        with self._policy_norms.of_batch(of_rows):
            policy = self.model.policy(state, obs)
        u, logp = self.heads.sample(policy, noise)
        outs = (q.frozen(state, u, members=self.heads.climbed) for q in self.model.critics)
        every_q = [self._values.point(out) for out in outs]
        mask, action = (flatten_time(x[:, self._learned]) for x in (batch.action_mask, batch.action))
        choice = self.heads.choose(policy, mask, lambda: added(q.mean(0) for q in every_q))
        q, expected = added(map(self._climbed, every_q)), lambda q: self.heads.expected(q, choice)
        losses = self.heads.losses(choice, logp, self._constraint.climbed(q, expected, share), share)
        losses = self._constraint(losses, policy, action, mask, share)
        shown = {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        total = sum(losses.values(), start=state.new_zeros(()))
        return Loss(total), shown | self.heads.metrics(choice, u, logp)

    @override
    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with other networks, whose targets equal them; see :meth:`.Learner.begin_with`."""
        super().begin_with(model, optim)
        self.move_targets(1.0)

    @override
    def generators(self) -> dict[str, torch.Generator]:
        """Return those of the noise, and of the subset of critics in a target."""
        return {"update": self._generator, "subset": self.critics.subset_generator}

    @override
    def optimisers(self) -> dict[str, FlatAdam]:
        """Return those of critics and encoder, policy, heads, parts of extensions, and cloning."""
        groups = {
            "critic": self.critics.step,
            "policy": self._policy_step,
            "alpha": self._alpha_step,
            "joint": self.critics.joint,
            **self.critics.own.optimisers,
            **(self.cloning.optimisers if self.cloning else {}),
        }
        return {name: adam for name, adam in groups.items() if adam}

    @override
    def modules(self) -> nn.Module:
        """Return all networks, targets and temperatures among them."""
        extensions = nn.ModuleList(self.extensions)
        return nn.ModuleDict({"model": self.model, "composition": self.heads, "extensions": extensions})
