"""Base of ATC and BYOL: two augmented looks at the same windows, and the critics' values of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from typing_extensions import override

from algorithm.extensions.base import Context, Extension
from algorithm.nn.augment import Augmentation
from algorithm.nn.encoding import States
from algorithm.ops.contrastive import q_consistency_loss

Judge = Callable[[Context, States], Mapping[str, Tensor]]
"""More losses on the states of an augmented look, by name."""


class TwoViews(Extension):
    """Base of losses on two encodings of a batch, each augmented anew.

    The losses are plain means over what exists in the batch: importance-sampling weights correct values,
    of which there are none here.

    augment: see :class:`~algorithm.nn.augment.Augmentation`
    judge:   :func:`q_consistency`, or :func:`no_view_loss`
    gated:   see :class:`~algorithm.extensions.base.Extension`
    """

    def __init__(self, augment: Augmentation, *, judge: Judge, gated: bool) -> None:
        super().__init__()
        self._augment = augment
        self._judge = judge
        self.gated = gated

    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return the loss of two looks at the same windows, a scalar."""
        raise NotImplementedError(f"{type(self).__name__} must define contrast(ctx, first, second)")

    @override
    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the loss of two looks, and those of the judge on the first."""
        first, second = self._look(ctx), self._look(ctx)
        return {"siamese": self.contrast(ctx, first, second), **self._judge(ctx, first)}

    def _look(self, ctx: Context) -> States:
        return ctx.recode(self._augment(ctx.obs, ctx.batch.obs_valid, ctx.generator))


def no_view_loss(ctx: Context, look: States) -> Mapping[str, Tensor]:
    """Return no more losses."""
    return {}


def q_consistency(ctx: Context, look: States) -> Mapping[str, Tensor]:
    """Return the loss between values of the stored actions with augmentation and their targets' without it.

    DrQ regularises Q by augmented observations too (arXiv 2004.13649); this is at the taken action. The
    gradient goes to encoder and critics.
    """
    q = ctx.q(look.learned)
    target = ctx.target_q(ctx.target_learned)
    return {"siamese_q": q_consistency_loss(q, target, ctx.batch.valid[:, ctx.learned])}
