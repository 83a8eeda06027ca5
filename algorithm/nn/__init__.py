"""Names for a task's ``nn.py``: ``import algorithm.nn as m``."""

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.layers.attention import Attention
from algorithm.nn.layers.augment import RandomShift
from algorithm.nn.layers.conv import conv
from algorithm.nn.layers.encode import ImageEncoder, VectorEncoder
from algorithm.nn.layers.images import ImageLayout, image_layout, image_layouts
from algorithm.nn.layers.inverted import inverted_mlp
from algorithm.nn.layers.memories import AttentionRep, RecurrentRep
from algorithm.nn.layers.mlp import ActionHead, Norm, mlp, residual_mlp
from algorithm.nn.layers.noisy import NoisyLinear
from algorithm.nn.layers.recurrent import GRU, LSTM
from algorithm.nn.models import (
    ModelDiscriminator,
    ModelForwardDynamic,
    ModelInverseDynamic,
    ModelObservation,
    ModelRepPrediction,
    ModelRepProjection,
    ModelReward,
    ModelRND,
    ModelTransition,
)
from algorithm.nn.models.defaults import ModelPolicy, ModelQ, ModelRep
from algorithm.nn.models.world import ImageDecoder
from algorithm.nn.protocols import PolicyFunction, QFunction, Rep, q_size

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
