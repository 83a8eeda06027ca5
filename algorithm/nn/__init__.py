"""Default networks and building blocks for a task's ``nn.py``: ``import algorithm.nn as m``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithm.core.lazy import lazy, of_modules

if TYPE_CHECKING:
    from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
    from algorithm.nn.layers.attention import Attention
    from algorithm.nn.layers.augment import RandomShift
    from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder
    from algorithm.nn.layers.images import ImageLayout, conv, image_layout, image_layouts
    from algorithm.nn.layers.inverted import inverted_mlp
    from algorithm.nn.layers.mlp import ActionHead, Norm, mlp, residual_mlp
    from algorithm.nn.layers.noisy import NoisyLinear
    from algorithm.nn.layers.recurrent import GRU, LSTM
    from algorithm.nn.models.defaults import AttentionRep, ModelPolicy, ModelQ, ModelRep, RecurrentRep
    from algorithm.nn.models.extensions import (
        ModelDiscriminator,
        ModelForwardDynamic,
        ModelInverseDynamic,
        ModelRepPrediction,
        ModelRepProjection,
        ModelRND,
    )
    from algorithm.nn.models.world import ImageDecoder, ModelObservation, ModelReward, ModelTransition
    from algorithm.nn.protocols import HybridAction, PolicyFunction, QFunction, Rep, TanhNormal, q_size
else:
    __getattr__, __dir__ = lazy(
        __name__,
        of_modules(
            {
                "algorithm.core.spec": "ActionSpec AgentSpec ObsSpec",
                "algorithm.nn.layers.attention": "Attention",
                "algorithm.nn.layers.augment": "RandomShift",
                "algorithm.nn.layers.encode": "ImageEncoder VectorEncoder",
                "algorithm.nn.layers.images": "ImageLayout conv image_layout image_layouts",
                "algorithm.nn.layers.inverted": "inverted_mlp",
                "algorithm.nn.layers.mlp": "ActionHead Norm mlp residual_mlp",
                "algorithm.nn.layers.noisy": "NoisyLinear",
                "algorithm.nn.layers.recurrent": "GRU LSTM",
                "algorithm.nn.models.defaults": "AttentionRep ModelPolicy ModelQ ModelRep RecurrentRep",
                "algorithm.nn.models.extensions": "ModelDiscriminator ModelForwardDynamic "
                "ModelInverseDynamic ModelRND ModelRepPrediction ModelRepProjection",
                "algorithm.nn.models.world": "ImageDecoder ModelObservation ModelReward ModelTransition",
                "algorithm.nn.protocols": "HybridAction PolicyFunction QFunction Rep TanhNormal q_size",
            },
        ),
    )

__all__ = [
    "GRU",
    "LSTM",
    "ActionHead",
    "ActionSpec",
    "AgentSpec",
    "Attention",
    "AttentionRep",
    "HybridAction",
    "ImageDecoder",
    "ImageEncoder",
    "ImageLayout",
    "ModelDiscriminator",
    "ModelForwardDynamic",
    "ModelInverseDynamic",
    "ModelObservation",
    "ModelPolicy",
    "ModelQ",
    "ModelRND",
    "ModelRep",
    "ModelRepPrediction",
    "ModelRepProjection",
    "ModelReward",
    "ModelTransition",
    "NoisyLinear",
    "Norm",
    "ObsSpec",
    "PolicyFunction",
    "QFunction",
    "RandomShift",
    "RecurrentRep",
    "Rep",
    "TanhNormal",
    "VectorEncoder",
    "conv",
    "image_layout",
    "image_layouts",
    "inverted_mlp",
    "mlp",
    "q_size",
    "residual_mlp",
]
