"""The critics' part of an update: targets, loss, and one step of encoder and critics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from algorithm.data import SequenceBatch
from algorithm.extensions.base import Context, Extension
from algorithm.nn.distributions import HybridAction
from algorithm.nn.optimiser import FlatAdam, if_any
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.sac.config import SacConfig
from algorithm.sac.critic import Steps, choose_reduce, make_critic_loss, make_target
from algorithm.sac.heads import ActionHeads
from algorithm.sac.model import Model, flatten_time
from algorithm.spec import ActionSpec


class CriticUpdate:
    """Targets, loss and step of encoder and critics, with the extensions that are trained beside them.

    make_step: constructor of an optimiser of modules
    generator: of the actions in targets
    seed:      of the subset of critics in a target
    step:      optimiser of encoder and critics
    joint:     optimiser of the extensions' joint parts; None without any
    encoder:   the encoder's part of the gradient of ``step``: it is the first of its modules
    """

    def __init__(
        self,
        model: Model,
        heads: ActionHeads,
        action: ActionSpec,
        config: SacConfig,
        *,
        make_step: Callable[..., FlatAdam],
        return_scale: ReturnScale | NoReturnScale,
        extensions: Sequence[Extension],
        generator: torch.Generator,
        seed: int,
    ) -> None:
        self._model, self._heads, self._return_scale = model, heads, return_scale
        self._extensions = tuple(extensions)
        size = sum(p.numel() for p in model.rep.parameters())
        self.encoder = slice(0, size)
        own = config.encoder_learning_rate
        first = (size, own) if own is not None else None
        self.step = make_step([model.rep, model.q], weight_decay=config.weight_decay, first=first)
        self.joint = if_any(make_step, [one.joint for one in extensions])
        model.follow(self.step.flat)
        self._return_target = make_target(
            gamma=config.gamma,
            n=config.n_step,
            use_is=config.use_n_step_is,
            trace_decay=config.v_lambda,
            rho_max=config.v_rho,
            c_max=config.v_c,
        )
        self._loss = make_critic_loss(config.clip_epsilon)
        self._continuous = slice(action.discrete, None)
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)
        self._reduce, _ = choose_reduce(config)
        self._num_critics, self._subset = config.ensemble_q_num, config.ensemble_q_sample
        self._generator = generator
        self.subset_generator = torch.Generator().manual_seed(seed)

    def update(self, ctx: Context) -> tuple[Tensor, dict[str, Tensor]]:
        """Take a step; return the TD errors [E, B, T] before it, and values to log."""
        batch, valid = ctx.batch, ctx.batch.valid[:, ctx.learned]
        y, target_metrics = self._target(ctx)
        q = ctx.q(ctx.state[:, ctx.learned])
        loss, metrics = self._loss(q, y, lambda: ctx.target_q(ctx.target_learned), batch.weight, valid)
        auxiliary = {x: x.auxiliary_losses(ctx) for x in self._extensions}
        norm = self._descend(loss, auxiliary)
        detached = q.detach()
        return detached - y, {
            **target_metrics,
            **metrics,
            "loss/q": loss.detach(),
            "value/q_mean": detached / self._return_scale.factor,
            "optim/grad_norm": norm,
            **{f"loss/{k}": v.detach() for losses in auxiliary.values() for k, v in losses.items()},
        }

    @torch.no_grad()
    def td_error(self, ctx: Context) -> Tensor:
        """Return the TD errors [E, B, T] as the networks are; nothing is learned."""
        y, _ = self._target(ctx)
        return ctx.q(ctx.state[:, ctx.learned]) - y

    def taken_q(
        self, batch: SequenceBatch, critics: Callable[[Tensor, Tensor], Tensor], state: Tensor
    ) -> Tensor:
        """Return Q of the stored actions at the learned positions, [E, B, T], from their states [B, T, S]."""
        action = flatten_time(batch.action[:, self._learned])
        q = critics(flatten_time(state), action[:, self._continuous])
        return self._heads.q_of_action(q, action).view(-1, *state.shape[:2])

    @torch.no_grad()
    def _target(self, ctx: Context) -> tuple[Tensor, dict[str, Tensor]]:
        """Return y [B, T]: π and u on online states, Q' on target states."""
        batch, first = ctx.batch, ctx.burn_in
        following = slice(first + 1, None)  # the tokens behind the learned transitions and their n steps
        state, mask = flatten_time(ctx.state[:, following]), flatten_time(batch.action_mask[:, following])
        policy = self._model.policy(state, {k: flatten_time(v[:, following]) for k, v in ctx.obs.items()})
        u, logp = self._heads.sample(policy, self._generator)
        choice = self._heads.choose(policy, mask, lambda: self._model.q.frozen(state, u).mean(0))
        drawn = self._draw_subset()
        q = self._reduce(self._model.target_q.frozen(flatten_time(ctx.target_following), u, members=drawn))
        shape = (batch.reward.shape[0], -1)
        bonus = self._heads.entropy_bonus(choice, logp).view(shape)
        reward = batch.reward + sum(x.reward_bonus(ctx) for x in self._extensions)
        steps = Steps(
            reward=reward[:, first:],
            terminated=batch.terminated[:, first:],
            valid=batch.valid[:, first:],
            next_value=self._heads.expected(q, choice).view(shape) + bonus,
            next_bonus=bonus,
            log_ratio=lambda: self._log_ratio(ctx, policy),
        )
        y, metrics = self._return_target(steps)
        return y, metrics | self._return_scale.metrics() | {"value/target": y / self._return_scale.factor}

    def _log_ratio(self, ctx: Context, policy: HybridAction) -> Tensor:
        """Return log π/μ [B, L−1] of the stored actions behind the first: tokens K+1 … W−1."""
        batch, interior = ctx.batch, slice(ctx.burn_in + 1, None)
        size, length = batch.z[:, interior].shape[:2]
        return self._heads.log_ratio(
            policy.map(lambda v: v.view(size, length + 1, -1)[:, :-1]),  # the last token has no action
            batch.action_mask[:, ctx.burn_in + 1 : -1],
            batch.action[:, interior],
            batch.z[:, interior],
            batch.behaviour_logp[:, interior],
        )

    def _draw_subset(self) -> list[int] | None:
        """Draw the M critics of this update's targets; None stands for all."""
        if self._subset == self._num_critics:
            return None
        return torch.randperm(self._num_critics, generator=self.subset_generator)[: self._subset].tolist()

    def _descend(self, loss: Tensor, auxiliary: Mapping[Extension, Mapping[str, Tensor]]) -> Tensor:
        """Take one step of encoder and critics, and of the joint parts; return the former's gradient norm."""
        steps = [step for step in (self.step, self.joint) if step]
        free = [v for x, losses in auxiliary.items() if not x.gated for v in losses.values()]
        gated = [v for x, losses in auxiliary.items() if x.gated for v in losses.values()]
        for step in steps:
            step.gradient.zero_()
        if gated:  # compared with the critics' own gradient, so free losses come last
            loss.backward(retain_graph=True)
            self._add_where_it_agrees(torch.stack(gated).sum(), retain_graph=bool(free))
            if free:
                torch.stack(free).sum().backward()
        else:
            sum(free, start=loss).backward()
        norms = [step.move() for step in steps]
        return norms[0]

    def _add_where_it_agrees(self, loss: Tensor, *, retain_graph: bool) -> None:
        """Add the gradient of ``loss``; on the encoder only if its cosine with the other is positive."""
        encoder = self.step.gradient[self.encoder]
        before = encoder.clone()
        encoder.zero_()
        loss.backward(retain_graph=retain_graph)
        encoder.mul_(torch.dot(before, encoder) > 0.0).add_(before)
