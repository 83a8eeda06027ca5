"""Names and shapes of a graph's inputs and outputs, those of Unity's ML-Agents (its model version 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from algorithm.core.spec import BYTES, AgentSpec
from algorithm.nn.layers.images import ImageLayout, image_layouts

VERSION = 3.0
"""Version of ML-Agents' format: continuous and discrete actions, each sampled and as the mode."""

MASKS, MEMORY_IN, MEMORY_OUT = "action_masks", "recurrent_in", "recurrent_out"

ElementType = Literal["float32", "float64", "int64"]

_WIDE: Mapping[str, ElementType] = {"float64": "float64", "int32": "int64", "int64": "int64"}


@dataclass(frozen=True)
class Port:
    """An input or output of a graph.

    shape:   without the batch, which is first; of a constant the whole shape
    values:  of a constant, which has no batch
    """

    name: str
    shape: tuple[int, ...]
    dtype: ElementType = "float32"
    values: tuple[float, ...] = ()

    @property
    def batched(self) -> bool:
        """Whether the first axis is the batch; false for a constant."""
        return not self.values


@dataclass(frozen=True)
class Ports:
    """All inputs and outputs of a graph, in their order.

    memory: how many numbers the memory has; 0 without one
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    memory: int


def from_unit(dtype: str, layout: ImageLayout | None) -> bool:
    """Return whether the graph's input is in [0, 1] for this observation: for an image of bytes."""
    return layout is not None and dtype == "uint8" and layout.span in (None, BYTES)


def ports_of(spec: AgentSpec, memory: int, wide: Mapping[str, str]) -> Ports:
    """Return the inputs and outputs of a policy.

    wide: name -> type, of observations that float32 does not resolve
    """
    action = spec.action
    inputs = list(_observations(spec, wide))
    outputs = [
        Port("version_number", (1,), values=(VERSION,)),
        Port("memory_size", (1,), values=(memory,)),
    ]
    if action.branches:
        inputs.append(Port(MASKS, (action.discrete,)))
    if memory:
        inputs.append(Port(MEMORY_IN, (1, memory)))
    if action.continuous:
        size = (action.continuous,)
        outputs += [
            Port("continuous_actions", size),
            Port("continuous_action_output_shape", (1,), values=size),
            Port("deterministic_continuous_actions", size),
        ]
    if action.branches:
        size = (len(action.branches),)
        outputs += [
            Port("discrete_actions", size, "int64"),
            Port("discrete_action_output_shape", (1, *size), values=action.branches),
            Port("deterministic_discrete_actions", size, "int64"),
        ]
    if memory:
        outputs.append(Port(MEMORY_OUT, (1, memory)))
    return Ports(tuple(inputs), tuple(outputs), memory)


def _observations(spec: AgentSpec, wide: Mapping[str, str]) -> Iterable[Port]:
    """Yield the port of each observation."""
    layouts = image_layouts(spec.obs)
    for number, (name, shape, _) in enumerate(spec.obs.items()):
        if layout := layouts.get(name):
            shape = (layout.channels, layout.height, layout.width)
        kind = _WIDE[wide[name]] if name in wide else "float32"
        yield Port(f"obs_{number}", shape or (1,), kind)
