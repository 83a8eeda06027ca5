"""Bootstrap your own latent: prediction of the target's projection of the same observation."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.extensions.base import Context
from algorithm.extensions.two_views import TwoViews, ViewLoss
from algorithm.nn.encoding import States
from algorithm.nn.layers.augment import Augmentation
from algorithm.ops.contrastive import cosine_loss
from algorithm.ops.shapes import window_mean


class Byol(TwoViews):
    """BYOL (Grill et al. 2020, arXiv 2006.07733), section 3.1.

    A prediction from one view's projected online state is compared with the other view's projected target
    state, in both directions. The loss is ½ (ℓ(1, 2) + ℓ(2, 1)), ℓ = 2 − 2 cos, over the learned tokens
    that exist. The paper sums the two; half of that is on the scale of one.

    The target's projection follows as the target networks do, without gradient.

    projection: [B, S] -> [B, P]
    prediction: [B, P] -> [B, P]
    others:     see :class:`~algorithm.extensions.two_views.TwoViews`
    """

    def __init__(
        self,
        projection: nn.Module,
        prediction: nn.Module,
        augment: Augmentation,
        *,
        view_loss: ViewLoss,
        gated: bool,
    ) -> None:
        super().__init__(augment, view_loss=view_loss, gated=gated)
        self.joint.extend([projection, prediction])
        self.target_projection = copy.deepcopy(projection).eval().requires_grad_(False)

    @override
    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return the mean of both directions."""
        exists = ctx.batch.obs_valid[:, ctx.learned]
        loss = self._distance(first, second) + self._distance(second, first)
        return window_mean(0.5 * loss.view(exists.shape), exists)

    @torch.no_grad()
    @override
    def updated(self, tau: float) -> None:
        """Update the target by ``θ' ← θ' + τ (θ − θ')``; buffers are copied as they are."""
        projection, _ = self.joint
        for own, online in zip(self.target_projection.parameters(), projection.parameters(), strict=True):
            own.lerp_(online, tau)
        for copied, source in zip(self.target_projection.buffers(), projection.buffers(), strict=True):
            copied.copy_(source)

    def _distance(self, by: States, of: States) -> Tensor:
        """Return ℓ [B·T] of one view's prediction of the other."""
        projection, prediction = self.joint
        with torch.no_grad():
            target = self.target_projection(of.target_learned.flatten(0, 1))
        return cosine_loss(prediction(projection(by.learned.flatten(0, 1))), target)
