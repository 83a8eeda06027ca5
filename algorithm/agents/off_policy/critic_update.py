"""The critics' part of an update: targets, loss, and one step of encoder and critics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from typing_extensions import NotRequired, TypedDict

from algorithm.actions.parts import DiscretePolicy
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model, Passes, flatten_time
from algorithm.agents.off_policy.targets import HorizonCritics, LearningTarget, make_critics, spread_out
from algorithm.agents.off_policy.values import Values
from algorithm.agents.off_policy.variant import Heads
from algorithm.core.data import SequenceBatch
from algorithm.core.spec import ActionSpec
from algorithm.extensions.base import Context, Extension, OwnSteps, shown_losses, signal_metric
from algorithm.nn.distributions import HybridAction
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.norm import BatchNorm
from algorithm.nn.learning.gradients import Gradients, Loss
from algorithm.nn.learning.optimiser import FlatAdam, if_any
from algorithm.nn.protocols import Obs
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.ops.shapes import added


@dataclass(frozen=True)
class Ahead:
    """Actions of the policy behind the learned transitions and their n steps, at P = B · L tokens.

    rows: those that are bootstrapped from, [B·T] of the P; None: all
    """

    u: Tensor  # [P, A_c]
    bonus: Tensor  # [P] h(s)
    choice: DiscretePolicy  # at ``rows``
    rows: Tensor | None
    log_ratio: Callable[[], Tensor]  # [B, L−1] log π/μ of the stored actions, computed once if at all


class Critique(TypedDict):
    """Findings of an update of the critics, without gradient."""

    td_error: Tensor  # [E, B, T] before the step
    state: Tensor  # [B, T, S] of the learned tokens
    obs: Obs  # [B, T, ...] there, the networks' inputs
    carry: NotRequired[Tensor]  # [B, W+1, *C] before each token, where the replay takes it back
    metrics: dict[str, Tensor]


class CriticUpdate:
    """Targets, loss and step of encoder and critics, with the extensions that are trained beside them.

    values:    meaning of the critics' outputs
    make_step: constructor of an optimiser of modules
    seed:      of the subset of critics in a target
    step:      optimiser of encoder and critics
    joint:     optimiser of the extensions' joint parts; None without any
    own:       losses and optimisers of their own parts
    encoder:   the encoder's part of the gradient of ``step``: it is the first of its modules
    """

    def __init__(
        self,
        model: Model,
        heads: Heads,
        action: ActionSpec,
        config: OffPolicyConfig,
        *,
        make_step: Callable[..., FlatAdam],
        return_scale: ReturnScale | NoReturnScale,
        extensions: Sequence[Extension],
        values: Values,
        seed: int,
    ) -> None:
        self._model, self._heads, self._return_scale = model, heads, return_scale
        self._extensions = tuple(extensions)
        self.encoder = slice(0, sum(p.numel() for p in model.rep.parameters()))
        self.step = make_step([model.rep, *model.critics], weight_decay=config.weight_decay)
        self.joint = if_any(make_step, [one.joint for one in extensions])
        self.own = OwnSteps(extensions, make_step)
        model.follow(self.step.flat if config.use_target_network else None)
        self._critics = make_critics(model, config, self._extensions, return_scale)
        self._values = values
        norms = (
            layer for layer in model.q.members[0].modules() if isinstance(layer, nn.LayerNorm | BatchNorm)
        )
        self._weighs = config.weight_decay > 0.0 or any(norms)
        self._continuous = slice(action.discrete, None)
        self._refreshes = config.refresh_carry
        self._learned = slice(config.burn_in_step, config.burn_in_step + config.learn_step)
        self._num_critics, self._subset = config.ensemble_q_num, config.ensemble_q_sample
        self.subset_generator = torch.Generator().manual_seed(seed)

    def look(self) -> bool:
        """Return whether a batch norm may be past its warm-up."""
        found = [critics.passes.look() for critics in self._critics]  # each of them has to look
        return any(found)

    def update(self, ctx: Context, noise: Tensor, members: Tensor | None, by: Gradients) -> Critique:
        """Take a step of encoder and critics, and of the extensions' parts.

        noise:   [P, A_c] of the actions at all tokens behind the burn-in
        members: of :meth:`draw_subset`
        by:      way to the gradients
        """
        steps = [step for step in (self.step, self.joint, *self.own.optimisers.values()) if step]
        found, norms = by.descend(steps, partial(self._losses, ctx, noise, members))
        found["metrics"] |= {"optim/grad_norm": norms[0], **self._settle(), **self._weight_norm()}
        return found

    def _settle(self) -> dict[str, Tensor]:
        """Take over what the passes noted; return the largest values to log."""
        for critics in self._critics:
            critics.held.settle(self.step.usable)
        settled = [critics.passes.settle(self.step.usable) for critics in self._critics]
        return {name: torch.stack([one[name] for one in settled]).amax() for name in settled[0]}

    def _losses(self, ctx: Context, noise: Tensor, members: Tensor | None) -> tuple[Loss, Critique]:
        found = self._evaluate(ctx, noise, members, [one.passes for one in self._critics])
        losses, shown = zip(*(self._values.loss(taken, target) for taken, target, _ in found), strict=True)
        q = [self._values.mean(taken.detach()) for taken, *_ in found]
        loss = added(losses)
        auxiliary = {x: x.auxiliary_losses(ctx) for x in self._extensions}
        own, idle, own_metrics = self.own.losses(ctx)
        critique: Critique = {
            "td_error": added(value - target.y for value, (_, target, _) in zip(q, found, strict=True)),
            "state": ctx.state[:, ctx.learned].detach(),
            "obs": {name: x[:, ctx.learned] for name, x in ctx.obs.items()},
            "metrics": {
                **found[0][2],
                **{name: added(one[name] for one in shown) / len(shown) for name in shown[0]},
                **self._shown(losses, q),
                **shown_losses(auxiliary),
                **own_metrics,
            },
        }
        if self._refreshes:
            critique["carry"] = ctx.carry_before()
        gated = [v for x, losses in auxiliary.items() if x.gated for v in losses.values()]
        free = [v for x, losses in auxiliary.items() if not x.gated for v in losses.values()]
        free += own
        return Loss(loss, _sum(gated), _sum(free), idle), critique

    def _shown(self, losses: Sequence[Tensor], q: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return losses and values by horizon; one that is not the agent's is named after its signal."""
        found = {"loss/q": losses[0].detach(), "value/q_mean": q[0] / self._return_scale.scale}
        for critics, loss, value in zip(self._critics[1:], losses[1:], q[1:], strict=True):
            found[signal_metric("loss/q", critics.extensions)] = loss.detach()
            found[signal_metric("value/q", critics.extensions)] = value / self._return_scale.scale
        return found

    def _weight_norm(self) -> dict[str, Tensor]:
        """Return the length of the parameters where it counts: behind a norm long rows learn slowly."""
        return {"optim/weight_norm": torch.linalg.vector_norm(self.step.flat.data)} if self._weighs else {}

    @torch.no_grad()
    def td_error(self, ctx: Context, noise: Tensor, members: Tensor | None) -> Tensor:
        """Return the TD errors [E, B, T]; nothing is learned. noise, members: as in :meth:`update`."""
        found = self._evaluate(ctx, noise, members, [one.apart for one in self._critics])
        return added(self._values.mean(taken) - target.y for taken, target, _ in found)

    @torch.no_grad()
    def target_q(self, batch: SequenceBatch, state: Tensor, critics: Ensemble | None = None) -> Tensor:
        """Return Q of the stored actions by target critics, the first ones if None; see :meth:`taken_q`."""
        return self.taken_q(batch, (critics or self._model.target_q).frozen, state)

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

    def _evaluate(
        self, ctx: Context, noise: Tensor, members: Tensor | None, passes: Sequence[Passes]
    ) -> list[tuple[Tensor, LearningTarget, dict[str, Tensor]]]:
        """Return for each horizon what its critics say of the stored actions, with gradient, what they
        should, and metrics.

        passes: of each of them
        """
        batch, learned = ctx.batch, ctx.learned
        action = flatten_time(batch.action[:, learned])
        valid = batch.valid[:, ctx.burn_in :]
        ahead = self._look_ahead(ctx, noise)
        then = flatten_time(ctx.target_following), ahead.u
        if ahead.rows is not None:
            then = then[0][ahead.rows], then[1][ahead.rows]
        now = flatten_time(ctx.state[:, learned]), action[:, self._continuous]
        exist = (
            flatten_time(batch.valid[:, learned]),
            valid.flatten() if ahead.rows is None else valid.flatten()[ahead.rows],
        )
        found = []
        for critics, run in zip(self._critics, passes, strict=True):
            out, following = run(now, then, exist, members)
            target, metrics = self._target(ctx, ahead, following, critics)
            found.append((self._of_stored(out, action, batch.valid[:, learned].shape), target, metrics))
        return found

    @torch.no_grad()
    def _look_ahead(self, ctx: Context, noise: Tensor) -> Ahead:
        """Draw what the policy would do at the tokens behind the learned transitions and their n steps."""
        batch, following = ctx.batch, slice(ctx.burn_in + 1, None)
        states = ctx.target_following if self._heads.slow_policy else ctx.state[:, following]
        state, mask = flatten_time(states), flatten_time(batch.action_mask[:, following])
        obs = {name: flatten_time(value[:, following]) for name, value in ctx.obs.items()}
        policy = self._model.next_policy(state, obs)
        u, logp = self._heads.ahead(policy, noise)

        def mean_q() -> Tensor:
            return added(self._values.point(q.frozen(state, u)).mean(0) for q in self._model.critics)

        valid = batch.valid[:, ctx.burn_in :]
        rows = self._critics[0].returns.rows(valid)
        if rows is not None:
            rows = (
                rows + torch.arange(len(rows), device=rows.device).unsqueeze(-1) * valid.shape[1]
            ).flatten()
        choice = self._heads.choose(policy, mask, mean_q)
        bonus = self._heads.entropy_bonus(choice, logp)
        chosen = choice if rows is None else choice.at(rows)
        return Ahead(u, bonus, chosen, rows, _once(partial(self._log_ratio, ctx, policy)))

    @torch.no_grad()
    def _target(
        self, ctx: Context, ahead: Ahead, following: Tensor, critics: HorizonCritics
    ) -> tuple[LearningTarget, dict[str, Tensor]]:
        """Return the target of the learned positions: π and u on online states, Q' on target states.

        following: outputs [M, P, N·K] of the drawn target critics behind all transitions, or ``ahead.rows``
        """
        batch, rows, returns = ctx.batch, ahead.rows, critics.returns
        shape = batch.valid[:, ctx.burn_in :].shape
        found = self._values.bootstrap(following, lambda q: self._heads.expected(q, ahead.choice))
        value = found.value.view(shape) if rows is None else spread_out(found.value, rows, shape)
        steps = critics.steps(ctx, value, ahead.bonus.view(shape), ahead.log_ratio)
        y, metrics = returns(steps)
        spread = found.spread
        if spread is not None:
            spread = returns.spread(spread.unflatten(-1, (len(y), -1)), steps)
        target = LearningTarget(
            y=y,
            spread=spread,
            q_target=lambda: self.target_q(batch, ctx.target_learned, critics.target_q),
            weight=batch.weight,
            valid=batch.valid[:, ctx.learned],
            unit=self._return_scale.scale,
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

    def draw_subset(self) -> Tensor | None:
        """Draw the M critics of an update's targets, [M] on the CPU; None stands for all."""
        if self._subset == self._num_critics:
            return None
        return torch.randperm(self._num_critics, generator=self.subset_generator)[: self._subset]


def _once(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a function that computes a tensor at its first call."""
    known: list[Tensor] = []

    def get() -> Tensor:
        if not known:
            known.append(compute())
        return known[0]

    return get


def _sum(losses: Sequence[Tensor]) -> Tensor | None:
    return torch.stack(list(losses)).sum() if losses else None
