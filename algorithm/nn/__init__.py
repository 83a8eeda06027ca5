"""What a task's ``nn.py`` imports: ``import algorithm.nn as m``."""

from algorithm.nn.augment import RandomShift
from algorithm.nn.conv import conv
from algorithm.nn.defaults import ModelPolicy, ModelQ, ModelRep
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.encode import ImageEncoder, VectorEncoder
from algorithm.nn.images import ImageLayout, image_layout, image_layouts
from algorithm.nn.mlp import ActionHead, mlp
from algorithm.nn.noisy import NoisyLinear
from algorithm.nn.protocols import Policy, QFunction, Rep, q_size
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

__all__ = [
    "ActionHead",
    "ActionSpec",
    "AgentSpec",
    "HybridAction",
    "ImageEncoder",
    "ImageLayout",
    "ModelPolicy",
    "ModelQ",
    "ModelRep",
    "NoisyLinear",
    "ObsSpec",
    "Policy",
    "QFunction",
    "RandomShift",
    "Rep",
    "TanhNormal",
    "VectorEncoder",
    "conv",
    "image_layout",
    "image_layouts",
    "mlp",
    "q_size",
]
