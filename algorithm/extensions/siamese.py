"""ATC and BYOL, which train the encoder on two augmented views of the same windows."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import SequenceBatch
from algorithm.extensions.base import Build, Context, Extension
from algorithm.nn.encoding import States
from algorithm.nn.layers.augment import Augmentation
from algorithm.nn.models.extensions import check_prediction, check_projection
from algorithm.ops.extensions import cosine_loss, info_nce_accuracy, info_nce_loss, q_consistency_loss
from algorithm.ops.shapes import valid_share, window_mean

ViewLoss = Callable[[Context, States], Mapping[str, Tensor]]
"""Function that returns further losses on the states of an augmented view, by name."""


class TwoViews(Extension, ABC):
    """Base of losses on two differently augmented encodings of a batch.

    The losses are plain means over existing positions: importance weights are for values.

    augment:   see :class:`~algorithm.nn.layers.augment.Augmentation`
    view_loss: :func:`q_consistency`, or :func:`no_additional_loss`
    gated:     see :class:`~algorithm.extensions.base.Extension`
    """

    def __init__(self, augment: Augmentation, *shown: str, view_loss: ViewLoss, gated: bool) -> None:
        super().__init__(*shown)
        self._augment = augment
        self._view_loss = view_loss
        self.gated = gated

    @override
    def draw(self, batch: SequenceBatch, learned: slice, generator: torch.Generator) -> dict[str, Any]:
        """Draw the noise of both views."""
        return {"views": [self._augment.draw(batch.obs, generator) for _ in range(2)]}

    @abstractmethod
    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return the loss of two views of the same windows, a scalar."""

    @override
    def auxiliary_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the loss ``siamese`` of two views, and the losses of ``view_loss`` on the first."""
        first, second = (self._view(ctx, noise) for noise in ctx.drawn[type(self).__name__]["views"])
        return {"siamese": self.contrast(ctx, first, second), **self._view_loss(ctx, first)}

    def _view(self, ctx: Context, noise: Mapping[str, Tensor]) -> States:
        return ctx.recode(self._augment(ctx.obs, ctx.batch.obs_valid, noise))


def no_additional_loss(ctx: Context, view: States) -> Mapping[str, Tensor]:
    """Return {}: there are no further losses."""
    return {}


def q_consistency(ctx: Context, view: States) -> Mapping[str, Tensor]:
    """Return the squared error ``siamese_q`` of Q with augmentation against the target critics' Q without it.

    Both are of the stored actions. DrQ, too, regularises Q by augmented observations (arXiv 2004.13649).
    Encoder and critics get the gradient.
    """
    q = ctx.q(view.learned)
    target = ctx.target_q(ctx.target_learned)
    return {"siamese_q": q_consistency_loss(q, target, ctx.batch.valid[:, ctx.learned])}


class Atc(TwoViews):
    """ATC (Stooke et al. 2021, arXiv 2009.08319).

    The anchor is z + f(z), with the online state z of an augmented learned token t. Its positive is the
    target state of token t + n of the same window, with an augmentation of its own. ``anchorᵀ W positive``
    scores how well a pair fits. The loss classifies each anchor among the positives of all pairs of the
    batch. A learned token without a token n steps later has no pair.

    prediction: f, [B, S] -> [B, S]
    state_size: S
    others:     see :class:`TwoViews`
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
    def contrast(self, ctx: Context, first: States, second: States) -> Tensor:
        """Return the scalar InfoNCE loss over the pairs of the batch."""
        anchor, positive, valid = pairs(ctx, first.learned, second.target_following)
        share = valid_share(valid.view(-1, ctx.learn), anchor.dtype).flatten()
        logits = self._fit(anchor, positive)
        self.shown.show({"siamese/accuracy": info_nce_accuracy(logits.detach(), valid)})
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


class Byol(TwoViews):
    """BYOL (Grill et al. 2020, arXiv 2006.07733), section 3.1.

    A prediction from one view's projected online state is compared with the other view's projected target
    state, in both directions. The loss is ½ (ℓ(1, 2) + ℓ(2, 1)), ℓ = 2 − 2 cos, over the learned tokens
    that exist; in the paper it is the sum without ½.

    The target projection follows the online one as the target networks do, without gradient.

    projection: [B, S] -> [B, P]
    prediction: [B, P] -> [B, P]
    others:     see :class:`TwoViews`
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
        """Return the scalar loss ½ (ℓ(1, 2) + ℓ(2, 1)), a mean over learned tokens."""
        exists = ctx.batch.obs_valid[:, ctx.learned]
        loss = self._distance(first, second) + self._distance(second, first)
        return window_mean(0.5 * loss.view(exists.shape), exists)

    @torch.no_grad()
    @override
    def updated(self, tau: float) -> None:
        """Update the target projection by ``θ' ← θ' + τ (θ − θ')``; buffers are copied."""
        projection, _ = self.joint
        for slow, online in zip(self.target_projection.parameters(), projection.parameters(), strict=True):
            slow.lerp_(online, tau)
        for copied, source in zip(self.target_projection.buffers(), projection.buffers(), strict=True):
            copied.copy_(source)

    def _distance(self, by: States, of: States) -> Tensor:
        """Return ℓ [B·T] of the prediction ``by`` one view ``of`` the other."""
        projection, prediction = self.joint
        with torch.no_grad():
            target = self.target_projection(of.target_learned.flatten(0, 1))
        return cosine_loss(prediction(projection(by.learned.flatten(0, 1))), target)


def make_siamese(build: Build) -> TwoViews | None:
    """Return ATC or BYOL, by the key ``siamese``; None if that is null.

    Raises ModelError for networks that return a wrong shape.
    """
    spec, options = build.spec, build.options
    augment = Augmentation(spec.obs, normalised=options.use_normalization)
    view_loss = q_consistency if options.siamese_use_q else no_additional_loss
    gated = options.siamese_use_adaptive
    if options.siamese == "ATC":
        prediction = _make_prediction(build, build.state_size)
        return Atc(prediction, build.state_size, augment, view_loss=view_loss, gated=gated)
    if options.siamese == "BYOL":
        projection = build.make_network("ModelRepProjection", spec, build.state_size)
        size = check_projection(projection, build.state_size)
        prediction = _make_prediction(build, size)
        return Byol(projection, prediction, augment, view_loss=view_loss, gated=gated)
    return None


def _make_prediction(build: Build, size: int) -> nn.Module:
    """Return the network that predicts one view from the other. Raises ModelError for a wrong shape."""
    prediction = build.make_network("ModelRepPrediction", build.spec, size)
    check_prediction(prediction, size)
    return prediction
