"""Contrastive learning of the representation, by ``siamese`` and its keys."""

from __future__ import annotations

from algorithm.extensions.atc import Atc
from algorithm.extensions.byol import Byol
from algorithm.extensions.options import Build
from algorithm.extensions.two_views import TwoViews, no_additional_loss, q_consistency
from algorithm.nn.layers.augment import Augmentation
from algorithm.nn.models.projections import check_prediction, check_projection


def make_siamese(build: Build) -> TwoViews | None:
    """Return ATC, BYOL or None. Raises ModelError for networks that return a wrong shape."""
    spec, options = build.spec, build.options
    augment = Augmentation(spec.obs)
    view_loss = q_consistency if options.siamese_use_q else no_additional_loss
    gated = options.siamese_use_adaptive
    if options.siamese == "ATC":
        prediction = build.make_network("ModelRepPrediction", spec, build.state_size)
        check_prediction(prediction, build.state_size)
        return Atc(prediction, build.state_size, augment, view_loss=view_loss, gated=gated)
    if options.siamese == "BYOL":
        projection = build.make_network("ModelRepProjection", spec, build.state_size)
        size = check_projection(projection, build.state_size)
        prediction = build.make_network("ModelRepPrediction", spec, size)
        check_prediction(prediction, size)
        return Byol(projection, prediction, augment, view_loss=view_loss, gated=gated)
    return None
