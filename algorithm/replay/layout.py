"""Matrices of a replay, their widths, and the place of each field in them.

Fields of one kind share one matrix, so that a batch costs one gather per kind:

* ``real`` float32: float32 observations, then the acting half z, behaviour_logp, reward;
* ``byte`` uint8: action mask, then the one-hot of the discrete branches (width 0 without branches);
* ``links`` int32: distance back to the previous row, distance to the next row with the end flags in its two
  lowest bits, step in the episode. Distance 0 means there is none; a row with a next row is a transition;
* ``carry`` float32: the carries of a memory (width 0 without one);
* ``obs_uint8`` and so on: the observations of one further dtype, in that dtype (images stay uint8);
* ``obs_uint8x4`` and so on: the newest frames of observations that are stacks of 4 frames of one dtype.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from algorithm.core.spec import AgentSpec


class Field(NamedTuple):
    """Place of one observation."""

    name: str
    matrix: str
    columns: slice
    shape: tuple[int, ...]  # of one row's part: a whole observation, or the newest frame of a stack
    stack: int  # frames of the observation; 1 is no stack


class Column(NamedTuple):
    """Width and dtype of one matrix."""

    width: int
    dtype: str


class Layout:
    """Layout of the rows of one agent; a plain calculation that allocates nothing."""

    def __init__(self, spec: AgentSpec, carry_shape: tuple[int, ...] = ()) -> None:
        """Compute the layout; ``carry_shape`` () or any shape with a 0 means no carry is stored."""
        action = spec.action
        widths: dict[str, Column] = {}
        self.fields = _place(spec, widths)
        start = widths.pop("real", Column(0, "float32")).width
        self.act_start = start
        self.z = slice(start, start + action.continuous)
        self.logp = slice(self.z.stop, self.z.stop + action.record_size)
        self.reward = self.logp.stop
        self.matrices: dict[str, Column] = {
            "real": Column(self.reward + 1, "float32"),
            "byte": Column(2 * action.discrete, "uint8"),
            "links": Column(3, "int32"),
            "carry": Column(prod(carry_shape or (0,)), "float32"),
            **widths,
        }

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, without a sampler's share."""
        return sum(width * np.dtype(kind).itemsize for width, kind in self.matrices.values())


def _place(spec: AgentSpec, widths: dict[str, Column]) -> tuple[Field, ...]:
    """Return the place of each observation, and add the matrices for them to ``widths``."""
    fields: list[Field] = []
    for (name, shape, kind), stack in zip(spec.obs.items(), spec.obs.stacks, strict=True):
        matrix = "real" if kind == "float32" else f"obs_{kind}"
        if stack > 1:
            matrix, shape = f"obs_{kind}x{stack}", shape[1:]
        start = widths.get(matrix, Column(0, kind)).width
        end = start + prod(shape)
        widths[matrix] = Column(end, kind)
        fields.append(Field(name, matrix, slice(start, end), shape, stack))
    return tuple(fields)
