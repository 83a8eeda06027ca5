"""Default networks of extensions, where a task's ``nn.py`` has none of its own."""

from __future__ import annotations

from algorithm.nn.discriminator import ModelDiscriminator
from algorithm.nn.dynamics import ModelForwardDynamic, ModelInverseDynamic, ModelRND
from algorithm.nn.projections import ModelRepPrediction, ModelRepProjection
from algorithm.nn.world import ModelObservation, ModelReward, ModelTransition

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
