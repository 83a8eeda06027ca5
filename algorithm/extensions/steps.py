"""Losses of all extensions of a learner, and the steps of their own parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from algorithm.extensions.base import Context, Extension
from algorithm.nn.learning.gradients import Autograd, Loss
from algorithm.nn.learning.optimiser import FlatAdam, if_any


class OwnSteps:
    """Updates of the extensions' own parts.

    Those at the agent's rate share an optimiser. An extension with a rate of its own has one for itself, so
    that another rate never changes what a checkpoint holds. An optimiser rests in an update in which its
    extensions have no loss.

    make_step: constructor of an optimiser of modules, at the agent's rate unless ``learning_rate`` is given
    rounds:    steps for an update
    """

    def __init__(self, extensions: Sequence[Extension], make_step: Callable[..., FlatAdam]) -> None:
        self._extensions = tuple(extensions)
        together = [one for one in extensions if one.learning_rate is None]
        made = {"own": (if_any(make_step, [one.own for one in together]), together)}
        for one in extensions:
            if one.learning_rate is not None:
                make = partial(make_step, learning_rate=one.learning_rate)
                made[type(one).__name__.lower()] = if_any(make, [one.own]), [one]
        self._trained = [(step, group) for step, group in made.values() if step is not None]
        self.optimisers = {name: step for name, (step, _) in made.items() if step is not None}
        rounds = [extension.rounds for extension in extensions if self.optimisers]
        self.rounds = max(rounds, default=1)

    def losses(self, ctx: Context) -> tuple[list[Tensor], list[FlatAdam], dict[str, Tensor]]:
        """Return the losses that train, and the optimisers without any; all losses and metrics by name."""
        ctx = ctx.detached()
        losses = {one: one.own_losses(ctx) for one in self._extensions}
        metrics = shown_losses(losses)
        metrics |= {f"{x.prefix}{name}": v for x in self._extensions for name, v in x.metrics().items()}
        idle = [step for step, group in self._trained if not any(losses[one] for one in group)]
        trained = [loss for own in losses.values() for loss in own.values()] if self.optimisers else []
        return trained, idle, metrics

    def join(self, critic_loss: Tensor, ctx: Context) -> tuple[Loss, dict[str, Tensor]]:
        """Return the critics' loss with all losses of the extensions, and these and their metrics by name."""
        auxiliary = {x: x.auxiliary_losses(ctx) for x in self._extensions}
        own, idle, metrics = self.losses(ctx)
        gated = [v for x, losses in auxiliary.items() if x.gated for v in losses.values()]
        free = [v for x, losses in auxiliary.items() if not x.gated for v in losses.values()] + own
        return Loss(critic_loss, _sum(gated), _sum(free), idle), shown_losses(auxiliary) | metrics

    def loss(self, ctx: Context) -> tuple[Loss, dict[str, Tensor]]:
        """Return the loss of all own parts, and losses and metrics of the extensions, on the device."""
        losses, idle, metrics = self.losses(ctx)
        total = _sum(losses)
        return Loss(self._nothing() if total is None else total, idle=idle), metrics

    def update(self, ctx: Context) -> dict[str, Tensor]:
        """Take a step of each optimiser by a backward pass; return losses and metrics of the extensions."""
        if not self.optimisers:
            return self.losses(ctx)[2]
        return Autograd().descend(list(self.optimisers.values()), self.loss, ctx)[0]

    def _nothing(self) -> Tensor:
        """Return 0 [] with a gradient, for a backward pass behind which every optimiser rests."""
        return next(p for one in self._extensions for p in one.own.parameters()).sum() * 0.0


def shown_losses(losses: Mapping[Extension, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the losses of extensions by the names of their metrics, on the device."""
    return {f"{one.prefix}loss/{k}": loss.detach() for one, own in losses.items() for k, loss in own.items()}


def _sum(losses: Sequence[Tensor]) -> Tensor | None:
    return torch.stack(list(losses)).sum() if losses else None
