"""The update of an off-policy agent, in the order of the papers: critics, policy and temperature, targets.

Equations are those of Soft Actor-Critic (arXiv 1812.05905). An algorithm's own losses are in its objective
(``agents/sac/sac.py``), returns in ``returns.py``, the meaning of critics' outputs in ``values.py``, formulas
in ``ops/sac.py`` and ``ops/returns.py``, the networks and optimisers in ``networks.py``, and the records that
pass between the steps in ``records.py``.

A window has K burn-in steps, T learned ones and n − 1 after them: L = T + n − 1 transitions are computed.
P are the positions of a flattened batch, [B·T] or [B·L]. A critic has D numbers for each of its N values, a
target may have J atoms. ``frozen`` runs critics with detached parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from algorithm.agents.off_policy.networks import OffPolicyNetworks
from algorithm.agents.off_policy.records import CriticResult, CriticTarget, Draws, NextActions, Steps
from algorithm.agents.off_policy.returns import HorizonCritics, ratio_metrics, spread_out
from algorithm.core.data import SequenceBatch, UpdateResult
from algorithm.extensions.base import Context, signal_metric
from algorithm.nn.learning.gradients import Gradients, Loss
from algorithm.nn.protocols import Obs
from algorithm.ops.sac import sequence_priority
from algorithm.ops.shapes import total, window_share


class OffPolicyLearner(OffPolicyNetworks):
    """Critics that learn from a replay, and a policy that maximises them (REDQ's subset: arXiv 2101.05982).

    compiled: the two steps of an update as compiled graphs; None: they run eagerly
    """

    compiled: Steps | None = None
    eager_first = 0

    def update(self, batch: SequenceBatch) -> UpdateResult:
        """Take a step of the critics, and of the policy if one is due; then move the targets.

        batch: on the learner's device. No operation here waits for the device. A step with a gradient that
            is not finite is skipped and counted in ``skipped``; then ``priority`` may hold NaN. The targets
            move all the same, since the parameters stay finite.
        """
        self.updates += 1
        policy_is_due = self.updates % self.keys.policy_update_per_step == 0
        if self.has_batch_norms:
            self.note_warm_up()
        draws = self.draw(batch, policy_is_due)
        steps: Steps = self.compiled if self.compiled and self.updates > self.compiled.eager_first else self
        result = steps.learn_critics(batch, draws)
        if policy_is_due:
            result["metrics"] |= steps.learn_policy(batch, result["obs"], result["state"], draws.noise)
        if self.updates % self.keys.update_target_per_step == 0:
            self.move_targets(self.keys.tau)
        valid = batch.valid[:, self.learned]
        return UpdateResult(
            ids=batch.ids,
            anchor=batch.anchor,
            valid=valid,
            priority=sequence_priority(result["td_error"], valid),
            carry=result.get("carry"),
            metrics=result["metrics"],
        )

    def draw(self, batch: SequenceBatch, policy_is_due: bool) -> Draws:
        """Draw the random numbers of an update; the noise of noisy layers is set in the layers."""
        if self.layer_noise is not None:
            self.layer_noise.apply(self._generator)
        windows, transitions = len(batch.valid), batch.valid.shape[1] - self.keys.burn_in_step
        return Draws(
            next_noise=self.draw_noise(windows * transitions),
            noise=self.draw_noise(windows * self.keys.learn_step * policy_is_due),
            coins=self.draw_coins(windows, transitions - 1),
            members=self.draw_subset(),
            extensions=self.draw_extensions(batch) if self.extensions else [{}],
        )

    # Encoder, critics and extensions

    def learn_critics(
        self, batch: SequenceBatch, draws: Draws, gradients: Gradients | None = None
    ) -> CriticResult:
        """Take a step of encoder, critics and extensions' modules; gradients: None for autograd."""
        gradients = gradients or self.autograd
        result, norms = gradients.descend(self.critic_optimisers, self.critic_losses, batch, draws)
        result["metrics"]["optim/grad_norm"] = norms[0]
        if self.has_statistics:
            self.commit_statistics()
        for drawn in draws.extensions[1:]:
            optimisers = list(self.extension_steps.optimisers.values())
            metrics, _ = gradients.descend(optimisers, self.extension_losses, batch, drawn)
            result["metrics"] |= metrics
        return result

    def critic_losses(self, batch: SequenceBatch, draws: Draws) -> tuple[Loss, CriticResult]:
        """Return the loss of critics (eq. 5), encoder and extensions, and the results of the step."""
        ctx = self.encode(batch, draws.extensions[0])
        ahead = self.next_actions(ctx, draws.next_noise, draws.coins)
        taken, targets = self.predict_and_target(ctx, ahead, draws.members, in_batch=True)
        losses = [self.values.loss(q, target) for q, target in zip(taken, targets, strict=True)]
        means = [self.values.mean(q.detach()) for q in taken]
        metrics = self.critic_metrics(ahead, losses, taken, means, targets)
        loss = Loss(total(losses))
        if self.extensions:
            loss, of_extensions = self.extension_steps.join(loss.value, ctx)
            metrics |= of_extensions
        result: CriticResult = {
            "td_error": total(q - target.y for q, target in zip(means, targets, strict=True)),
            "state": ctx.states.learned.detach(),
            "obs": {name: x[:, self.learned] for name, x in ctx.obs.items()},
            "metrics": metrics,
        }
        if self.keys.refresh_carry:
            result["carry"] = ctx.carry_before()
        return loss, result

    @torch.no_grad()
    def next_actions(self, ctx: Context, noise: Tensor, coins: Tensor | None = None) -> NextActions:
        """Return the policy's actions in the next states of all L transitions: u', π', h(s')."""
        batch, after, slow = ctx.batch, slice(ctx.burn_in + 1, None), self.objective.slow_policy
        states = ctx.states.target_following if slow else ctx.states.online[:, after]
        state = states.flatten(0, 1)
        obs = {name: x[:, after].flatten(0, 1) for name, x in ctx.obs.items()}
        policy = self.model.next_policy(state, obs)
        u, logp = self.objective.next_action(policy, noise)
        choice = None
        if self.branches:
            mean_q = self.mean_q(state, u) if self.parts.discrete.asks_critics else None
            mask = batch.action_mask[:, after].flatten(0, 1)
            choice = self.parts.discrete.distribution(policy, mask, mean_q)
        valid, returns = batch.valid[:, ctx.burn_in :], self.horizons[0].returns
        log_ratio = self.log_ratio(batch, policy) if returns.needs_ratios else None
        steps = returns.steps(valid, log_ratio, coins)
        rows = returns.rows(steps)
        return NextActions(
            u=u[rows],
            valid=valid,
            bonus=self.objective.entropy_bonus(logp, choice).view(valid.shape),
            probs=None if choice is None else choice.probs[rows],
            rows=rows,
            log_ratio=log_ratio,
            steps=steps,
        )

    def predict_and_target(
        self, ctx: Context, ahead: NextActions, members: Tensor | None, *, in_batch: bool
    ) -> tuple[list[Tensor], list[CriticTarget]]:
        """Return the critics' predictions [E, (D,) B, T] for the stored actions, and their targets.

        Both are lists by horizon. in_batch: batch norms use the statistics of this batch
        """
        valid, action = ctx.batch.valid[:, self.learned], ctx.batch.action[:, self.learned].flatten(0, 1)
        now = ctx.states.learned.flatten(0, 1), action[:, self.continuous]
        then = ctx.states.target_following.flatten(0, 1)[ahead.rows], ahead.u
        taken, targets = [], []
        for critics in self.horizons:
            if in_batch and critics.norm_pass is not None:
                exist = valid.flatten(), ahead.valid.flatten()[ahead.rows]
                out, next_out = critics.norm_pass(now, then, exist, members)
            else:
                with torch.no_grad():
                    next_out = critics.target_q.frozen(*then, members=members)
                out = critics.q(*now)
            q = self.values.taken(out, action)
            taken.append(q.view(*q.shape[:-1], *valid.shape))
            targets.append(self.target(ctx, ahead, next_out, critics))
            if self.values.clips and in_batch:
                stored = ctx.batch.action[:, self.learned]
                slow_q = self.target_q(ctx.states.target_learned, stored, critics.target_q)
                targets[-1] = replace(targets[-1], slow_q=slow_q)
        return taken, targets

    @torch.no_grad()
    def target(
        self, ctx: Context, ahead: NextActions, next_out: Tensor, critics: HorizonCritics
    ) -> CriticTarget:
        """Compute y = r_0 + Σ_{0<k<n} γ^k (r_k + h(s_k)) + γ^n V(s_n), with V(s) = Q'(s, u) + h(s).

        After a terminal state all terms are 0. For n = 1 this is eq. 2 and 3; ``critics.returns`` sets n.

        next_out: outputs [M, P', N·D] of the drawn target critics in the states ``ahead.rows``
        """
        batch, first, valid, bonus = ctx.batch, slice(ctx.burn_in, None), ahead.valid, ahead.bonus
        reward, ended = critics.reward(ctx)[:, first], batch.terminated[:, first]
        value, spread = self.values.bootstrap(next_out, ahead.probs), None
        if self.values.has_spread:  # [J, P] atoms, whose mean is the value
            atoms, value = value, value.mean(0)
            spread = (atoms - value).unflatten(-1, (len(valid), -1))
        value = spread_out(value, ahead.rows, valid.shape)
        if not critics.main:  # the bonus belongs to the environment's reward
            bonus = torch.zeros_like(bonus)
        if not critics.horizon.ends:
            ended = torch.zeros_like(ended)
        if critics.bounds is not None:
            value = critics.bounds(value, reward, bonus, valid)
        y = critics.returns(reward, ended, valid, value + bonus, bonus, ahead.steps)
        if spread is not None:  # of all L transitions, or of the T learned ones
            spread = spread[..., : y.shape[1]] * critics.returns.discount(ended, ahead.steps)
        weights = {"weight": batch.weight, "valid": batch.valid[:, self.learned]}
        return CriticTarget(y=y, spread=spread, unit=self.return_scale.scale, **weights)

    # The policy

    def learn_policy(
        self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor, gradients: Gradients | None = None
    ) -> dict[str, Tensor]:
        """Take a step of policy and temperature; return values to log, scalars or [..., B, T].

        state, obs: of the learned tokens, [B, T, S] and [B, T, ...], the networks' inputs
        noise:      [B·T, A_c] standard normal
        """
        if not self.objective.learns:  # greedy actions alone
            return {}
        gradients = gradients or self.autograd
        metrics, _ = gradients.descend(self.policy_optimisers, self.policy_losses, batch, obs, state, noise)
        if self.policy_norms is not None:
            self.policy_norms.commit(self.policy_optimiser.usable)
        return {k: x.unflatten(-1, (-1, self.keys.learn_step)) if x.dim() else x for k, x in metrics.items()}

    def policy_losses(
        self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor
    ) -> tuple[Loss, dict[str, Tensor]]:
        """Return the losses of policy, α log π − Q (eq. 9), and temperature (eq. 18), and values to log."""
        state, obs = state.flatten(0, 1), {name: x.flatten(0, 1) for name, x in obs.items()}
        share = window_share(batch.valid[:, self.learned], state.dtype)
        policy = self.policy_in_batch(state, obs, share)
        u, logp = self.parts.continuous.sample(policy, noise)
        members = self.objective.policy_critics
        every_q = [self.values.point(x.q.frozen(state, u, members=members)) for x in self.horizons]
        q, choice = total(self.policy_reduce(q) for q in every_q), None
        if self.branches:
            mean_q = total(q.mean(0) for q in every_q) if self.parts.discrete.asks_critics else None
            mask = batch.action_mask[:, self.learned].flatten(0, 1)
            choice = self.parts.discrete.distribution(policy, mask, mean_q)
        probs = None if choice is None else choice.probs.detach()
        value = self.values.expected(q, probs)
        if self.constraint is not None:  # λ Q
            q = q * self.constraint.weight(value, share)
            value = self.values.expected(q, probs)
        losses = self.objective.losses(logp, choice, q, value, share)
        if self.constraint is not None:
            stored = batch.action[:, self.learned], batch.action_mask[:, self.learned]
            action, mask = (x.flatten(0, 1) for x in stored)
            losses["policy"] = losses["policy"] + self.constraint.cloning(policy, action, mask, share)
        metrics = {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        return Loss(total(losses.values())), metrics | self.objective.metrics(u, logp, choice)

    @torch.no_grad()
    def td_error(self, batch: SequenceBatch) -> Tensor:
        """Compute the priority [B] of a batch, in units of the TD error, without learning from it."""
        ctx = self.encode(batch)
        windows, transitions = len(batch.valid), batch.window - ctx.burn_in
        noise, coins = self.draw_noise(windows * transitions), self.draw_coins(windows, transitions - 1)
        ahead = self.next_actions(ctx, noise, coins)
        taken, targets = self.predict_and_target(ctx, ahead, self.draw_subset(), in_batch=False)
        differences = (self.values.mean(q) - target.y for q, target in zip(taken, targets, strict=True))
        return sequence_priority(total(differences), batch.valid[:, self.learned])

    def critic_metrics(
        self,
        ahead: NextActions,
        losses: Sequence[Tensor],
        taken: Sequence[Tensor],
        means: Sequence[Tensor],
        targets: Sequence[CriticTarget],
    ) -> dict[str, Tensor]:
        """Return values to log; sequences are by horizon, and a further horizon's names have its signal."""
        main, loss, mean = targets[0], losses[0].detach(), means[0]
        metrics = {"loss/q": loss, "value/q_mean": mean / main.unit, "value/target": main.y / main.unit}
        metrics |= self.values.metrics(taken[0].detach(), main)
        if ahead.log_ratio is not None:
            metrics |= ratio_metrics(ahead.log_ratio, ahead.valid, self.keys.v_rho)
        if self.scales_rewards:
            metrics |= self.return_scale.metrics()
        for critics, loss, mean in zip(self.horizons[1:], losses[1:], means[1:], strict=True):
            metrics[signal_metric("loss/q", critics.extensions)] = loss.detach()
            metrics[signal_metric("value/q", critics.extensions)] = mean / main.unit
        return metrics
