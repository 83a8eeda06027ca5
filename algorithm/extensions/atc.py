"""Augmented temporal contrast: the match of an observation with a later one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import SequenceBatch
from algorithm.extensions.base import Context
from algorithm.extensions.two_views import TwoViews, ViewLoss
from algorithm.nn.encoding import States
from algorithm.nn.layers.augment import Augmentation
from algorithm.ops.contrastive import info_nce_accuracy, info_nce_loss
from algorithm.ops.shapes import valid_share

MAX_PAIRS = 1024
"""Largest number of pairs in an update, which compares all with all; see :class:`Atc`."""


class Atc(TwoViews):
    """ATC (Stooke et al. 2021, arXiv 2009.08319).

    The anchor is the online state z of an augmented learned token t, as z + f(z). Its positive is the
    target's state of token t + n of the same window, augmented on its own. ``anchorᵀ W positive`` scores the
    fit of two of them. Each anchor is classified among the positives of all pairs of the batch, of other
    windows and of other times. A learned token without a token n steps later has no pair.

    Of more than ``MAX_PAIRS`` pairs that many are drawn anew for each update, those that exist first.

    prediction: f, [B, S] -> [B, S]
    state_size: S
    others:     see :class:`~algorithm.extensions.two_views.TwoViews`
    """

    def __init__(
        self,
        prediction: nn.Module,
        state_size: int,
        augment: Augmentation,
        *,
        view_loss: ViewLoss,
        gated: bool,
    ) -> None:
        super().__init__(augment, "siamese/accuracy", view_loss=view_loss, gated=gated)
        self.joint.extend([prediction, nn.Linear(state_size, state_size, bias=False)])

    @override
    def draw(self, batch: SequenceBatch, learned: slice, generator: torch.Generator) -> dict[str, Any]:
        """Return the noise of both views, and lots [B·T] of the pairs where not all are taken."""
        drawn = super().draw(batch, learned, generator)
        num_pairs = len(batch.reward) * (learned.stop - learned.start)
        if num_pairs > MAX_PAIRS:
            drawn["lots"] = torch.rand(num_pairs, generator=generator, device=batch.reward.device)
        return drawn

    @override
    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return InfoNCE over the pairs of the batch."""
        anchor, positive, valid = pairs(ctx, first.learned, second.target_following)
        chosen = _some(valid, ctx.drawn[type(self).__name__].get("lots"))
        share = valid_share(valid.view(-1, ctx.learn), anchor.dtype).flatten()
        logits, share = self._fit(anchor[chosen], positive[chosen]), share[chosen]
        self.shown.show({"siamese/accuracy": info_nce_accuracy(logits.detach(), valid[chosen])})
        return info_nce_loss(logits, share)

    def _fit(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return logits [P, P] of states [P, S]."""
        prediction, bilinear = self.joint
        key: Tensor = bilinear(anchor + prediction(anchor))
        return key @ positive.t()


def pairs(ctx: Context, learned: Tensor, target_following: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return anchors [B·T, S], positives [B·T, S], and the mask of those that exist [B·T].

    The windows have W = K + T + n − 1 transitions, so that the last learned token has one n steps later.

    learned:          [B, T, S]
    target_following: [B, W−K, S] of tokens K+1 … W
    """
    n = ctx.batch.window - ctx.burn_in - ctx.learn + 1
    exists = ctx.batch.obs_valid[:, ctx.burn_in :]
    valid = exists[:, : ctx.learn] & exists[:, n:]
    return learned.flatten(0, 1), target_following[:, n - 1 :].flatten(0, 1), valid.flatten()


def _some(valid: Tensor, lots: Tensor | None) -> Tensor | slice:
    """Return indices of ``MAX_PAIRS`` pairs by lot, existing ones before missing ones; all without lots."""
    return slice(None) if lots is None else (lots + valid).topk(MAX_PAIRS).indices
