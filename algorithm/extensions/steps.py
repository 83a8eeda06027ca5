"""Losses of all extensions of a learner, and the optimisers of their own modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from algorithm.extensions.base import Context, Extension
from algorithm.nn.learning.gradients import Autograd, Loss
from algorithm.nn.learning.optimiser import FlatAdam, optimiser_if_any


class ExtensionSteps:
    """Losses of extensions, and updates of their own modules.

    Extensions with the agent's learning rate share an optimiser. One with a learning rate of its own has its
    own optimiser, so that a checkpoint has the same contents for any rate. An optimiser takes no step in an
    update in which its extensions have no loss.

    make_step:  constructor of an optimiser of modules, at the agent's rate unless ``learning_rate`` is given
    optimisers: by their names in a checkpoint
    rounds:     steps of the own modules per update of the agent
    """

    def __init__(self, extensions: Sequence[Extension], make_step: Callable[..., FlatAdam]) -> None:
        self._extensions = tuple(extensions)
        together = [x for x in extensions if x.learning_rate is None]
        made = {"own": (optimiser_if_any(make_step, [x.own for x in together]), together)}
        for x in extensions:
            if x.learning_rate is not None:
                make = partial(make_step, learning_rate=x.learning_rate)
                made[type(x).__name__.lower()] = optimiser_if_any(make, [x.own]), [x]
        self._trained = [(step, group) for step, group in made.values() if step is not None]
        self.optimisers = {name: step for name, (step, _) in made.items() if step is not None}
        rounds = [extension.rounds for extension in extensions if self.optimisers]
        self.rounds = max(rounds, default=1)

    def losses(self, ctx: Context) -> tuple[list[Tensor], list[FlatAdam], dict[str, Tensor]]:
        """Return the own losses that are trained, the optimisers without a loss, and all metrics by name."""
        ctx = ctx.detached()
        losses = {x: x.own_losses(ctx) for x in self._extensions}
        metrics = shown_losses(losses)
        metrics |= {f"{x.prefix}{name}": v for x in self._extensions for name, v in x.metrics().items()}
        idle = [step for step, group in self._trained if not any(losses[x] for x in group)]
        trained = [loss for named in losses.values() for loss in named.values()] if self.optimisers else []
        return trained, idle, metrics

    def join(self, critic_loss: Tensor, ctx: Context) -> tuple[Loss, dict[str, Tensor]]:
        """Return the critics' loss joined with all losses of extensions, and the extensions' metrics."""
        auxiliary = {x: x.auxiliary_losses(ctx) for x in self._extensions}
        own_losses, idle, metrics = self.losses(ctx)
        gated = [v for x, losses in auxiliary.items() if x.gated for v in losses.values()]
        free = [v for x, losses in auxiliary.items() if not x.gated for v in losses.values()] + own_losses
        return Loss(critic_loss, _sum(gated), _sum(free), idle), shown_losses(auxiliary) | metrics

    def loss(self, ctx: Context) -> tuple[Loss, dict[str, Tensor]]:
        """Return the loss of all own modules, and the extensions' metrics, on the device."""
        losses, idle, metrics = self.losses(ctx)
        total = _sum(losses)
        return Loss(self._nothing() if total is None else total, idle=idle), metrics

    def update(self, ctx: Context) -> dict[str, Tensor]:
        """Take a step of each optimiser; return the losses and metrics of the extensions by name."""
        if not self.optimisers:
            return self.losses(ctx)[2]
        return Autograd().descend(list(self.optimisers.values()), self.loss, ctx)[0]

    def _nothing(self) -> Tensor:
        """Return 0 [] with a gradient, for a backward pass after which no optimiser takes a step."""
        return next(p for x in self._extensions for p in x.own.parameters()).sum() * 0.0


def shown_losses(losses: Mapping[Extension, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the losses of extensions as metrics, without gradient, by name."""
    return {f"{x.prefix}loss/{k}": loss.detach() for x, named in losses.items() for k, loss in named.items()}


def _sum(losses: Sequence[Tensor]) -> Tensor | None:
    return torch.stack(list(losses)).sum() if losses else None
