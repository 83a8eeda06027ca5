"""What a task's ``nn.py`` imports: ``import algorithm.nn as m``."""

from algorithm.nn.defaults import ModelPolicy, ModelQ, ModelRep
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.mlp import ActionHead, mlp
from algorithm.nn.protocols import Policy, QFunction, Rep, q_size
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

__all__ = [
    "ActionHead",
    "ActionSpec",
    "AgentSpec",
    "HybridAction",
    "ModelPolicy",
    "ModelQ",
    "ModelRep",
    "ObsSpec",
    "Policy",
    "QFunction",
    "Rep",
    "TanhNormal",
    "mlp",
    "q_size",
]
