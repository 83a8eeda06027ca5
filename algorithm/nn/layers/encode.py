"""Encoders from observations, in the dtype in which they are stored, to features."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.core.spec import ObsSpec, Range
from algorithm.nn.layers.augment import RandomShift, default_shift
from algorithm.nn.layers.images import UNIT, conv, image_layouts, to_planes, to_unit
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.ops import library


class ImageEncoder(nn.Module):
    """Encoder of one image of the spec: [..., *shape] in its own dtype -> [..., out_size].

    obs:          the observations of the agent
    name:         name of the encoded image
    kind:         ``simple``, ``nature`` or ``resnet``, see ``conv``; None: by size
    out:          width of a dense layer after the convolutions; None leaves it out
    bounded:      the image's range is centred around 0, the layer's output is normalised, and bounded to ±1
                  by ``tanh``, as in DrQ-v2 (arXiv 2107.09645); false: a range of [0, 1], and ReLU, as in Mnih
                  et al. 2015
    random_shift: largest shift in pixels while learning, see :class:`RandomShift`; 0: none; None: by size,
                  see :func:`~algorithm.nn.layers.augment.default_shift`
    Raises :class:`ModelError` if there is no such observation, if it is no image, or too small for ``kind``.
    """

    def __init__(
        self,
        obs: ObsSpec,
        name: str,
        kind: str | None = None,
        out: int | None = None,
        *,
        random_shift: int | None = None,
        bounded: bool = True,
    ) -> None:
        super().__init__()
        _check_names(obs, [name])
        layouts = image_layouts(obs)
        if name not in layouts:
            index = obs.names.index(name)
            raise ModelError(
                f"the observation {name!r} is not an image",
                why=f"it is {obs.dtypes[index]} of shape {obs.shapes[index]}",
                fix=f"give it to VectorEncoder. Images: {', '.join(layouts) or 'none'}.",
            )
        self.layout = layouts[name]
        shift = default_shift(self.layout) if random_shift is None else random_shift
        self.shift = RandomShift(shift) if shift else nn.Identity()
        self.conv = conv(self.layout, kind, where=f"observation {name!r}")
        self.out_size = self.conv.out_size if out is None else out
        self.dense = nn.Sequential()
        if out is not None:
            following = (nn.LayerNorm(out), nn.Tanh()) if bounded else (nn.ReLU(inplace=True),)
            self.dense = nn.Sequential(nn.Linear(self.conv.out_size, out), *following)
        self.centre = 0.5 if bounded and self.layout.span else 0.0  # without a range its mean is 0 already
        set_orthogonal(self)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., *shape] to [..., out_size]."""
        lead = x.shape[: x.dim() - len(self.layout.shape)]
        images = self.shift(self.layout.arrange(x))
        vector: Tensor = self.dense(self.conv(to_planes(images, self.layout.span) - self.centre))
        return vector.view(*lead, self.out_size)


class VectorEncoder(nn.Module):
    """Encoder of observations as one vector: choices as one-hots, everything else flattened.

    Numbers are not changed, except that bytes are scaled to [0, 1]; false and true are 0 and 1. It has no
    parameters.

    obs:      observations of the agent
    names:    names of the encoded ones, in order; None: all that are no images
    out_size: width of the vector
    as_it_is: name of the only observation if that is a vector of real numbers, so that the encoder is the
              identity; else None
    Raises :class:`ModelError` for a name that the spec does not have.
    """

    lib = library.TORCH

    def __init__(self, obs: ObsSpec, names: Sequence[str] | None = None) -> None:
        super().__init__()
        if names is None:
            layouts = image_layouts(obs)
            names = [name for name in obs.names if name not in layouts]
        _check_names(obs, names)
        self.names = tuple(names)
        parts: list[Flat | OneHot] = []
        indices = [obs.names.index(name) for name in names]
        for index in indices:
            shape, categories = obs.shapes[index], obs.categories[index]
            parts.append(OneHot(shape, categories) if categories else Flat(shape, obs.ranges[index]))
        self.parts = nn.ModuleList(parts)
        self.out_size = sum(part.out_size for part in parts)
        kinds = [(len(obs.shapes[i]), obs.dtypes[i][:5], obs.categories[i]) for i in indices]
        self.as_it_is = self.names[0] if kinds == [(1, "float", ())] else None

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Map obs, name -> [..., *shape], to [..., out_size]; raise ``ValueError`` if there are no names."""
        if not self.names:
            raise ValueError("VectorEncoder: there is no observation to encode")
        parts = [part(obs[name]) for name, part in zip(self.names, self.parts, strict=True)]
        joined: Tensor = parts[0] if len(parts) == 1 else self.lib.cat(parts, -1)
        return joined


class Flat(nn.Module):
    """Flattened observation: [..., *shape] of any dtype -> float [..., out_size]."""

    def __init__(self, shape: tuple[int, ...], span: Range | None) -> None:
        super().__init__()
        self.rank, self.span = len(shape), span
        self.out_size = prod(shape)

    @override
    def forward(self, x: Tensor) -> Tensor:
        flat = _flatten(x, self.rank, self.out_size)
        return to_unit(flat, self.span if x.dtype == torch.uint8 else UNIT)


class OneHot(nn.Module):
    """One-hot encoding of choices: [..., *shape] -> float [..., Σ categories], element by element."""

    def __init__(self, shape: tuple[int, ...], categories: tuple[int, ...]) -> None:
        super().__init__()
        self.rank = len(shape)
        self.num_elements = len(categories)
        self.out_size = sum(categories)
        counts = torch.tensor(categories)
        # Output i is 1 where element[i] of the observation has the value value[i].
        self.register_buffer("element", torch.arange(len(counts)).repeat_interleave(counts), persistent=False)
        values = torch.cat([torch.arange(count) for count in categories])
        self.register_buffer("value", values, persistent=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        flat = _flatten(x, self.rank, self.num_elements)
        same = flat.index_select(-1, self.get_buffer("element")) == self.get_buffer("value")
        return same.to(torch.get_default_dtype())


def _flatten(x: Tensor, rank: int, size: int) -> Tensor:
    return x.reshape(*x.shape[: x.dim() - rank], size)


def _check_names(obs: ObsSpec, names: Sequence[str]) -> None:
    for name in names:
        if name not in obs.names:
            close = difflib.get_close_matches(name, obs.names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ModelError(
                f"there is no observation {name!r}", fix=f"{hint}The agent sees: {', '.join(obs.names)}."
            )
