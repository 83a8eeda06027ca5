"""Default networks of extensions, which an ``nn.py`` may replace, and their checks; more in ``world.py``.

The first arguments of each are the agent's spec and a width, mostly the state's S. Actions are flat,
[..., A]: one-hots, then the continuous part in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import shape_of
from algorithm.nn.layers.images import conv, image_layouts
from algorithm.nn.layers.mlp import JoinedMlp, mlp


class ModelForwardDynamic(JoinedMlp):
    """Forward model: state [..., S] and action [..., A] -> the state that follows [..., S].

    ``dense_depth`` layers of ``dense_n`` units.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, state_size)


class ModelInverseDynamic(JoinedMlp):
    """Inverse model: state and next state [..., S] -> the action between them [..., A].

    ``dense_depth`` layers of ``dense_n`` units.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__(2 * state_size, dense_n, dense_depth, spec.action.size)


class ModelRND(JoinedMlp):
    """Network of RND: state [..., S] and action [..., A] -> features [..., F] of any width, ``feature_n``.

    It is built twice, with different initial weights. ``dense_depth`` layers of ``dense_n`` units.
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: int = 128,
        dense_depth: int = 2,
        feature_n: int = 64,
    ) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, feature_n)


def check_dynamic(network: nn.Module, sizes: tuple[int, int], out_size: int | str) -> None:
    """Run a network of two inputs on zeros, to check its result's shape.

    sizes:    widths of its two inputs
    out_size: width of its result, or a letter for a free width
    Raises :class:`ModelError` for another shape, or if the network fails.
    """
    for lead in (2, 3), (1,):
        shape_of(network, [torch.zeros(*lead, size) for size in sizes], (*lead, out_size))


class ModelRepProjection(nn.Module):
    """Projection in which BYOL compares states, of any width: here ``out_size``.

    It has one hidden layer of ``dense_n`` units. Rows of tokens that do not exist must not change the results
    of others, so there must be no batch norm. The paper has one, which is not needed (arXiv 2010.10241); here
    each row is normalised on its own.
    """

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, out_size: int = 128) -> None:
        super().__init__()
        self.net = _one_hidden_layer(state_size, dense_n, out_size)

    @override
    def forward(self, state: Tensor) -> Tensor:
        """Return the projection [B, P] of state [B, S]."""
        projection: Tensor = self.net(state)
        return projection


class ModelRepPrediction(nn.Module):
    """Prediction of one view's vector from the other's; ``size`` is the state's S with ATC, and P with BYOL.

    It has one hidden layer of ``dense_n`` units; each row is normalised on its own.
    """

    def __init__(self, spec: AgentSpec, size: int, dense_n: int = 256) -> None:
        super().__init__()
        self.net = _one_hidden_layer(size, dense_n, size)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction [B, size] from x [B, size]."""
        prediction: Tensor = self.net(x)
        return prediction


def check_projection(projection: nn.Module, state_size: int) -> int:
    """Check a projection; return its width P. Raises ModelError if it returns another shape than [B, P]."""
    name = "ModelRepProjection"
    _, size = shape_of(projection, [torch.zeros(2, state_size)], (2, "P"), name=name)
    shape_of(projection, [torch.zeros(1, state_size)], (1, size), name=name)
    return size


def check_prediction(prediction: nn.Module, size: int) -> None:
    """Raise ModelError if a prediction has another shape than its input, [B, size]."""
    for rows in (2, 1):
        shape_of(prediction, [torch.zeros(rows, size)], (rows, size), name="ModelRepPrediction")


def _one_hidden_layer(in_size: int, hidden: int, out_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(in_size, hidden), nn.LayerNorm(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out_size)
    )


class ModelDiscriminator(nn.Module):
    """Discriminator of ``dense_depth`` layers of ``dense_n`` units with tanh, over a vector and images.

    Each image has convolutions, of the kind that suits its size. The gradient by the inputs is part of the
    loss, so the layers need a second derivative.
    """

    def __init__(self, spec: AgentSpec, vector_size: int, dense_n: int = 128, dense_depth: int = 2) -> None:
        super().__init__()
        layouts = image_layouts(spec.obs)
        convolutions = {name: conv(layout, where=f"observation {name!r}") for name, layout in layouts.items()}
        self._names = tuple(convolutions)
        self.convolutions = nn.ModuleList(convolutions.values())
        width = vector_size + sum(module.out_size for module in convolutions.values())
        self.net = mlp(width, [dense_n] * dense_depth, 1, activation=nn.Tanh)

    @override
    def forward(self, vector: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        """Return the logit [P] of P transitions.

        vector: [P, vector_size] all observations that are no images, choices as one-hots; then the flat
                action, unless ``use_actions`` is false; then 1 if the task terminated, else 0
        images: name -> [P, C, H, W] in [0, 1] for bytes
        """
        seen = [module(images[name]) for name, module in zip(self._names, self.convolutions, strict=True)]
        logit: Tensor = self.net(torch.cat([vector, *seen], -1)).squeeze(-1)
        return logit


def check_discriminator(network: nn.Module, spec: AgentSpec, vector_size: int) -> None:
    """Run a discriminator on zeros. Raises ModelError for another shape than [P], or if it fails."""
    layouts = image_layouts(spec.obs).items()
    for p in (3, 1):
        images = {
            key: torch.zeros(p, layout.channels, layout.height, layout.width) for key, layout in layouts
        }
        shape_of(network, (torch.zeros(p, vector_size), images), (p,))
