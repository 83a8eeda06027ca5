"""Default networks of extensions, where a task's ``nn.py`` has none of its own."""

from __future__ import annotations

from algorithm.nn.models.discriminator import ModelDiscriminator
from algorithm.nn.models.dynamics import ModelForwardDynamic, ModelInverseDynamic, ModelRND
from algorithm.nn.models.projections import ModelRepPrediction, ModelRepProjection
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
