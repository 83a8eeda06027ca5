"""Default networks of a world model, see :mod:`algorithm.extensions.prediction`, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil, log2

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.core.spec import AgentSpec, ObsSpec
from algorithm.nn.dry_run import blame, file_of, fitting_shape
from algorithm.nn.layers.encode import VectorEncoder
from algorithm.nn.layers.images import ImageLayout, image_layouts
from algorithm.nn.layers.mlp import JoinedMlp, mlp
from algorithm.nn.normalise import NoNormaliser

DECODER_SIDE = 8
"""Largest side of a decoder's first image, whose size each further layer doubles."""


class ModelTransition(nn.Module):
    """Transition model of ``dense_depth`` layers of ``dense_n`` units over state and action.

    use_extra_data: its inputs include all observations that are no images, choices as one-hots
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        use_extra_data: bool,
        dense_n: int = 256,
        dense_depth: int = 2,
    ) -> None:
        super().__init__()
        self.extra = VectorEncoder(spec.obs, None if use_extra_data else [])
        width = state_size + spec.action.size + self.extra.out_size
        self.net = mlp(width, [dense_n] * dense_depth, 2 * state_size)

    @override
    def forward(self, state: Tensor, action: Tensor, obs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Predict the state that follows.

        state:  [..., S]
        action: [..., A] flat
        obs:    name -> [..., *shape] of the same positions, normalised, also those that ``ModelRep`` does
                not use; empty without ``use_extra_data``
        Returns the mean [..., S] of a normal distribution, and the input [..., S] of
        :func:`~algorithm.ops.extensions.bounded_std` for its standard deviation.
        """
        seen = [self.extra(obs)] if self.extra.names else []
        mean, raw_std = self.net(torch.cat([state, action, *seen], -1)).chunk(2, -1)
        return mean, raw_std


class ModelReward(JoinedMlp):
    """Reward model of ``dense_depth`` layers of ``dense_n`` units over state and action."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, dense_depth: int = 2) -> None:
        super().__init__(state_size + spec.action.size, dense_n, dense_depth, 1)

    @override
    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the predicted reward [...] after state [..., S] and flat action [..., A]."""
        return super().forward(*inputs).squeeze(-1)


class ModelObservation(nn.Module):
    """Observation model: ``dense_depth`` common layers of ``dense_n`` units, and a head per observation."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, dense_depth: int = 1) -> None:
        super().__init__()
        self.names = spec.obs.names
        self.net = mlp(state_size, [dense_n] * dense_depth)
        width = dense_n if dense_depth else state_size
        layouts, shapes = image_layouts(spec.obs), observed_shapes(spec.obs)
        self.heads = nn.ModuleList(
            ImageDecoder(width, layouts[name]) if name in layouts else _Shaped(width, shapes[name])
            for name in self.names
        )

    @override
    def forward(self, state: Tensor) -> dict[str, Tensor]:
        """Return the prediction of every observation by name, from state [..., S].

        Predictions of numbers are [..., *shape], those of images of bytes scaled to [0, 1]. Predictions of
        choices are a logit for each category of each element, [..., Σ categories].
        """
        features = self.net(state)
        return {name: head(features) for name, head in zip(self.names, self.heads, strict=True)}


class ImageDecoder(nn.Module):
    """Decoder from features [..., in_size] to images [..., *shape] of unbounded numbers.

    A linear layer makes a small image, whose size transposed convolutions double until it is large enough.
    Excess rows and columns at the lower and right border are cut off.

    channels: number of channels of the layers between
    """

    def __init__(self, in_size: int, layout: ImageLayout, channels: int = 32) -> None:
        super().__init__()
        self.layout = layout
        doublings = max(1, ceil(log2(max(layout.height, layout.width) / DECODER_SIDE)))
        small = (ceil(layout.height / 2**doublings), ceil(layout.width / 2**doublings))
        layers: list[nn.Module] = [
            nn.Linear(in_size, channels * small[0] * small[1]),
            nn.Unflatten(-1, (channels, *small)),
        ]
        for last in [False] * (doublings - 1) + [True]:
            out = layout.channels if last else channels
            layers += [nn.ReLU(inplace=True), nn.ConvTranspose2d(channels, out, 4, stride=2, padding=1)]
        self.net = nn.Sequential(*layers)

    @override
    def forward(self, features: Tensor) -> Tensor:
        """Map features [..., in_size] to [..., *shape]."""
        planes: Tensor = self.net(features.reshape(-1, features.shape[-1]))
        picture = planes[..., : self.layout.height, : self.layout.width].permute(0, 2, 3, 1)  # [P, H, W, C]
        return self.layout.restore(picture, features.shape[:-1])


class _Shaped(nn.Module):
    """Linear layer: features [..., in_size] -> [..., *shape]."""

    def __init__(self, in_size: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.net = mlp(in_size, [], torch.Size(shape).numel())

    @override
    def forward(self, features: Tensor) -> Tensor:
        flat: Tensor = self.net(features)
        return flat.view(*features.shape[:-1], *self.shape)


def observed_shapes(obs: ObsSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of each observation's prediction by a ``ModelObservation``, by name."""
    return {
        name: (sum(categories),) if categories else shape
        for name, shape, categories in zip(obs.names, obs.shapes, obs.categories, strict=True)
    }


@torch.no_grad()
def check_world(
    spec: AgentSpec,
    state_size: int,
    *,
    transition: nn.Module,
    reward: nn.Module,
    observation: nn.Module,
    use_extra_data: bool,
) -> None:
    """Run all three networks on zeros. Raises ModelError for a wrong shape, or if one fails."""
    for lead in (2, 3), (1, 1):
        state, action = torch.zeros(*lead, state_size), torch.zeros(*lead, spec.action.size)
        obs = NoNormaliser()({name: torch.from_numpy(x) for name, x in spec.obs.zeros(*lead).items()})
        following = {"mean": (state_size,), "raw_std": (state_size,)}
        check = partial(_check, lead=lead)
        check("ModelTransition", transition, (state, action, obs if use_extra_data else {}), following)
        check("ModelReward", reward, (state, action), {"reward": ()})
        check("ModelObservation", observation, (state,), observed_shapes(spec.obs))


def _check(
    name: str,
    network: nn.Module,
    inputs: tuple[object, ...],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    lead: tuple[int, ...],
) -> None:
    """Run a network on ``inputs``, and check the names or number of its results and their shapes.

    The network may return a mapping by name, a tuple in the order of ``shapes``, or a single tensor.

    name:   class of the network, for messages
    shapes: name -> shape of each result, without ``lead``
    lead:   leading dimensions of all inputs and results
    Raises ModelError for a wrong result, or if the network fails.
    """
    where = file_of(network)
    with blame(name, "forward", where):
        result = network(*inputs)
    parts = (result,) if isinstance(result, Tensor) else result
    fits = isinstance(parts, tuple) and len(parts) == len(shapes)
    named = dict(zip(shapes, parts, strict=True)) if fits else parts
    if not isinstance(named, Mapping) or set(named) != set(shapes):
        got = ", ".join(sorted(named)) if isinstance(named, Mapping) else type(result).__name__
        raise ModelError(
            f"{name}.forward returned a wrong value",
            where=where,
            why=f"expected {', '.join(shapes)}, got {got}",
        )
    for what, shape in shapes.items():
        fitting_shape(name, where, f"shape of {what}", (*lead, *shape), named[what])
