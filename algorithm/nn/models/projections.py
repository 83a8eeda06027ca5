"""Networks of contrastive learning, with default classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import shape_of


class ModelRepProjection(nn.Module):
    """Projection of states, in which they are compared, of any width: ``out_size`` here.

    Some of the rows stand for tokens that do not exist. They must not change the results of the others, so
    there can be no batch normalisation. There is one hidden layer of ``dense_n`` units.

    BYOL normalises the hidden layer over the batch, which is not needed (arXiv 2010.10241); here each row is
    normalised on its own.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, out_size: int = 128) -> None:
        super().__init__()
        self.net = _hidden_layer(state_size, dense_n, out_size)

    @override
    def forward(self, state: Tensor) -> Tensor:
        """Return the projection [B, P] of state [B, S]."""
        projection: Tensor = self.net(state)
        return projection


class ModelRepPrediction(nn.Module):
    """Prediction of the other one of a pair; ``size`` is the state's S with ATC and P with BYOL.

    One hidden layer of ``dense_n`` units, each row normalised on its own.
    """

    def __init__(self, spec: AgentSpec, size: int, dense_n: int = 256) -> None:
        super().__init__()
        self.net = _hidden_layer(size, dense_n, size)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction [B, size] from x [B, size]."""
        prediction: Tensor = self.net(x)
        return prediction


def check_projection(projection: nn.Module, state_size: int) -> int:
    """Return the width P of its projections. Raises ModelError if it returns another shape than [B, P]."""
    name = "ModelRepProjection"
    _, size = shape_of(projection, [torch.zeros(2, state_size)], (2, "P"), name=name)
    shape_of(projection, [torch.zeros(1, state_size)], (1, size), name=name)
    return size


def check_prediction(prediction: nn.Module, size: int) -> None:
    """Raise ModelError if a prediction has another shape than its input, [B, size]."""
    for rows in (2, 1):
        shape_of(prediction, [torch.zeros(rows, size)], (rows, size), name="ModelRepPrediction")


def _hidden_layer(in_size: int, hidden: int, out_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(in_size, hidden), nn.LayerNorm(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out_size)
    )
