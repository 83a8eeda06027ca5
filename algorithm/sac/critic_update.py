"""The critics' part of an update: targets, loss, and one step of encoder and critics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algorithm.actions.discrete import DiscretePolicy
from algorithm.data import SequenceBatch
from algorithm.extensions.base import Context, Extension
from algorithm.nn.distributions import HybridAction
from algorithm.nn.norm import BatchNorm, has_batch_norm
from algorithm.nn.optimiser import FlatAdam, if_any
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.sac.config import SacConfig
from algorithm.sac.critic import Steps, make_target
from algorithm.sac.heads import ActionHeads
from algorithm.sac.model import Model, flatten_time
from algorithm.sac.passes import Joint, Passes, Separate
from algorithm.sac.values import LearningTarget, Values
from algorithm.spec import ActionSpec


@dataclass(frozen=True)
class Ahead:
    """Actions of the policy behind the learned transitions and their n steps, at P = B · L tokens.

    rows: those that are bootstrapped from, [B·T] of the P; None: all
    """

    policy: HybridAction
    u: Tensor  # [P, A_c]
    logp: Tensor  # [P]
    choice: DiscretePolicy
    rows: Tensor | None


class CriticUpdate:
    """Targets, loss and step of encoder and critics, with the extensions that are trained beside them.

    values:    meaning of the critics' outputs
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
        values: Values,
        seed: int,
    ) -> None:
        self._model, self._heads, self._return_scale = model, heads, return_scale
        self._extensions = tuple(extensions)
        size = sum(p.numel() for p in model.rep.parameters())
        self.encoder = slice(0, size)
        own = config.encoder_learning_rate
        first = (size, own) if size and own is not None else None
        self.step = make_step([model.rep, model.q], weight_decay=config.weight_decay, first=first)
        self.joint = if_any(make_step, [one.joint for one in extensions])
        model.follow(self.step.flat if config.use_target_network else None)
        self._return_target = make_target(
            gamma=config.gamma,
            n=config.n_step,
            use_is=config.use_n_step_is,
            trace_decay=config.v_lambda,
            rho_max=config.v_rho,
            c_max=config.v_c,
        )
        self._values = values
        self._apart = Separate(model)
        self._passes: Passes = self._apart
        if has_batch_norm(model.q.members[0]):
            alike = config.seq_encoder is None and (config.n_step == 1 or not config.use_n_step_is)
            self._passes = Joint(
                model,
                own_target=config.use_target_network,
                all_rows_exist=alike,
                unify=config.unit_weights,
            )
        norms = (
            layer for layer in model.q.members[0].modules() if isinstance(layer, nn.LayerNorm | BatchNorm)
        )
        self._weighs = config.weight_decay > 0.0 or any(norms)
        self._continuous = slice(action.discrete, None)
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)
        self._num_critics, self._subset = config.ensemble_q_num, config.ensemble_q_sample
        self._generator = generator
        self.subset_generator = torch.Generator().manual_seed(seed)

    @property
    def corrects(self) -> bool:
        """Possibility that a batch norm is past its warm-up."""
        return self._passes.corrects

    def update(self, ctx: Context) -> tuple[Tensor, dict[str, Tensor]]:
        """Take a step; return the TD errors [E, B, T] before it, and values to log."""
        taken, target, target_metrics = self._evaluate(ctx, self._passes)
        loss, metrics = self._values.loss(taken, target)
        auxiliary = {x: x.auxiliary_losses(ctx) for x in self._extensions}
        norm = self._descend(loss, auxiliary)
        q = self._values.mean(taken.detach())
        return q - target.y, {
            **target_metrics,
            **metrics,
            "loss/q": loss.detach(),
            "value/q_mean": q / self._return_scale.scale,
            "optim/grad_norm": norm,
            **self._passes.settle(self.step.usable),
            **self._weight_norm(),
            **{f"{x.prefix}loss/{k}": v.detach() for x, found in auxiliary.items() for k, v in found.items()},
        }

    def _weight_norm(self) -> dict[str, Tensor]:
        """Return the length of the parameters where it counts: behind a norm long rows learn slowly."""
        return {"optim/weight_norm": torch.linalg.vector_norm(self.step.flat.data)} if self._weighs else {}

    @torch.no_grad()
    def td_error(self, ctx: Context) -> Tensor:
        """Return the TD errors [E, B, T] as the networks are; nothing is learned."""
        taken, target, _ = self._evaluate(ctx, self._apart)
        return self._values.mean(taken) - target.y

    def taken_q(
        self, batch: SequenceBatch, critics: Callable[[Tensor, Tensor], Tensor], state: Tensor
    ) -> Tensor:
        """Return Q of the stored actions at the learned positions, [E, B, T], from their states [B, T, S]."""
        action = flatten_time(batch.action[:, self._learned])
        out = critics(flatten_time(state), action[:, self._continuous])
        return self._values.mean(self._of_stored(out, action, state.shape[:2]))

    def _of_stored(self, out: Tensor, action: Tensor, shape: torch.Size) -> Tensor:
        """Return what outputs [E, B·T, N·K] say of the flat actions [B·T, A]: [E, B, T] or [E, K, B, T]."""
        taken = self._values.taken(out, lambda q: self._heads.q_of_action(q, action))
        return taken.view(*taken.shape[:-1], *shape)

    def _evaluate(self, ctx: Context, passes: Passes) -> tuple[Tensor, LearningTarget, dict[str, Tensor]]:
        """Return what the critics say of the stored actions, with gradient, what they should, and metrics."""
        batch, learned = ctx.batch, ctx.learned
        action = flatten_time(batch.action[:, learned])
        valid = batch.valid[:, ctx.burn_in :]
        ahead = self._look_ahead(ctx)
        then = flatten_time(ctx.target_following), ahead.u
        if ahead.rows is not None:
            then = then[0][ahead.rows], then[1][ahead.rows]
        out, following = passes(
            (flatten_time(ctx.state[:, learned]), action[:, self._continuous]),
            then,
            (
                flatten_time(batch.valid[:, learned]),
                valid.flatten() if ahead.rows is None else valid.flatten()[ahead.rows],
            ),
            self._draw_subset(),
        )
        target, metrics = self._target(ctx, ahead, following)
        return self._of_stored(out, action, batch.valid[:, learned].shape), target, metrics

    @torch.no_grad()
    def _look_ahead(self, ctx: Context) -> Ahead:
        """Draw what the policy would do at the tokens behind the learned transitions and their n steps."""
        batch, following = ctx.batch, slice(ctx.burn_in + 1, None)
        state, mask = flatten_time(ctx.state[:, following]), flatten_time(batch.action_mask[:, following])
        policy = self._model.policy(state, {k: flatten_time(v[:, following]) for k, v in ctx.obs.items()})
        u, logp = self._heads.sample(policy, self._generator)

        def mean_q() -> Tensor:
            return self._values.point(self._model.q.frozen(state, u)).mean(0)

        valid = batch.valid[:, ctx.burn_in :]
        rows = self._return_target.rows(valid)
        if rows is not None:
            rows = (
                rows + torch.arange(len(rows), device=rows.device).unsqueeze(-1) * valid.shape[1]
            ).flatten()
        return Ahead(policy, u, logp, self._heads.choose(policy, mask, mean_q), rows)

    @torch.no_grad()
    def _target(
        self, ctx: Context, ahead: Ahead, following: Tensor
    ) -> tuple[LearningTarget, dict[str, Tensor]]:
        """Return the target of the learned positions: π and u on online states, Q' on target states.

        following: outputs [M, P, N·K] of the drawn target critics behind all transitions, or ``ahead.rows``
        """
        batch, first = ctx.batch, ctx.burn_in
        shape, rows, choice = batch.valid[:, first:].shape, ahead.rows, ahead.choice
        bonus = self._heads.entropy_bonus(choice, ahead.logp).view(shape)
        if rows is not None:
            choice = choice.at(rows)
        found = self._values.bootstrap(following, lambda q: self._heads.expected(q, choice))
        value = found.value.view(shape) if rows is None else _spread_out(found.value, rows, shape)
        reward = batch.reward + sum(x.reward_bonus(ctx) for x in self._extensions)
        steps = Steps(
            reward=reward[:, first:],
            terminated=batch.terminated[:, first:],
            valid=batch.valid[:, first:],
            next_value=value + bonus,
            next_bonus=bonus,
            log_ratio=lambda: self._log_ratio(ctx, ahead.policy),
        )
        y, metrics = self._return_target(steps)
        spread = found.spread
        if spread is not None:
            spread = self._return_target.spread(spread.unflatten(-1, (len(y), -1)), steps)
        target = LearningTarget(
            y=y,
            spread=spread,
            q_target=lambda: ctx.target_q(ctx.target_learned),
            weight=batch.weight,
            valid=batch.valid[:, ctx.learned],
            unit=self._return_scale.factor,
        )
        return target, metrics | self._return_scale.metrics() | {"value/target": y / self._return_scale.scale}

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


def _spread_out(value: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return values [B·T] at their ``rows`` of a [B, L], 0 elsewhere; of a row met twice either is right."""
    full = value.new_zeros(shape)
    full.view(-1)[rows] = value
    return full
