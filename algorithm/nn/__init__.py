"""Names for a task's ``nn.py``: ``import algorithm.nn as m``."""

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.attention import Attention
from algorithm.nn.augment import RandomShift
from algorithm.nn.conv import conv
from algorithm.nn.defaults import ModelPolicy, ModelQ, ModelRep
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.encode import ImageEncoder, VectorEncoder
from algorithm.nn.images import ImageLayout, image_layout, image_layouts
from algorithm.nn.memories import AttentionRep, RecurrentRep
from algorithm.nn.mlp import ActionHead, Norm, mlp, residual_mlp
from algorithm.nn.noisy import NoisyLinear
from algorithm.nn.optional import (
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
from algorithm.nn.protocols import PolicyFunction, QFunction, Rep, q_size
from algorithm.nn.recurrent import GRU, LSTM
from algorithm.nn.world import ImageDecoder

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
    "mlp",
    "q_size",
    "residual_mlp",
]
