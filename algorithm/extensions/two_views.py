"""Base of ATC and BYOL: two augmented views of the same windows, and the critics' values of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import SequenceBatch
from algorithm.extensions.base import Context, Extension
from algorithm.nn.encoding import States
from algorithm.nn.layers.augment import Augmentation
from algorithm.ops.contrastive import q_consistency_loss

ViewLoss = Callable[[Context, States], Mapping[str, Tensor]]
"""Further losses on the states of an augmented view, by name."""


class TwoViews(Extension, ABC):
    """Base of losses on two encodings of a batch, each augmented anew.

    The losses are plain means over what exists in the batch: importance-sampling weights correct values,
    of which there are none here.

    augment: see :class:`~algorithm.nn.layers.augment.Augmentation`
    view_loss: :func:`q_consistency`, or :func:`no_additional_loss`
    gated:   see :class:`~algorithm.extensions.base.Extension`
    """

    def __init__(self, augment: Augmentation, *shown: str, view_loss: ViewLoss, gated: bool) -> None:
        super().__init__(*shown)
        self._augment = augment
        self._view_loss = view_loss
        self.gated = gated

    @override
    def draw(self, batch: SequenceBatch, learned: slice, generator: torch.Generator) -> dict[str, Any]:
        """Return the noise of both views."""
        return {"views": [self._augment.draw(batch.obs, generator) for _ in range(2)]}

    @abstractmethod
    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return the loss of two views of the same windows, a scalar."""
        ...

    @override
    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the loss of two views, and ``view_loss`` of the first."""
        first, second = (self._view(ctx, noise) for noise in ctx.drawn[type(self).__name__]["views"])
        return {"siamese": self.contrast(ctx, first, second), **self._view_loss(ctx, first)}

    def _view(self, ctx: Context, noise: Mapping[str, Tensor]) -> States:
        return ctx.recode(self._augment(ctx.obs, ctx.batch.obs_valid, noise))


def no_additional_loss(ctx: Context, view: States) -> Mapping[str, Tensor]:
    """Return no losses."""
    return {}


def q_consistency(ctx: Context, view: States) -> Mapping[str, Tensor]:
    """Return the loss between values of the stored actions with augmentation and their targets' without it.

    DrQ regularises Q by augmented observations too (arXiv 2004.13649); this is at the taken action. The
    gradient goes to encoder and critics.
    """
    q = ctx.q(view.learned)
    target = ctx.target_q(ctx.target_learned)
    return {"siamese_q": q_consistency_loss(q, target, ctx.batch.valid[:, ctx.learned])}
