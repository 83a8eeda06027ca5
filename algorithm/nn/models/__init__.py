"""Default networks of extensions, which a task's ``nn.py`` may replace."""

from __future__ import annotations

from algorithm.nn.models.extensions import (
    ModelDiscriminator,
    ModelForwardDynamic,
    ModelInverseDynamic,
    ModelRepPrediction,
    ModelRepProjection,
    ModelRND,
)
from algorithm.nn.models.world import ModelObservation, ModelReward, ModelTransition

__all__ = [
    "ModelDiscriminator",
    "ModelForwardDynamic",
    "ModelInverseDynamic",
    "ModelObservation",
    "ModelRND",
    "ModelRepPrediction",
    "ModelRepProjection",
    "ModelReward",
    "ModelTransition",
]
