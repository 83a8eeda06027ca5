"""Names and shapes of a graph's inputs and outputs, those of Unity's ML-Agents (its model version 3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from algorithm.core.errors import UsageError
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
    meaning: description for the card
    values:  of a constant, which has no batch
    """

    name: str
    shape: tuple[int, ...]
    meaning: str
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


def safe_name(name: str) -> str:
    """Return a name for a file or field: all but letters, digits, dots and hyphens becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)


def refuse_collisions(names: Iterable[str], what: str) -> None:
    """Raise UsageError if two names have the same :func:`safe_name`; ``what``: their kind, in the plural."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(safe_name(name), name)
        if other != name:
            raise UsageError(
                f"two {what} have the same name in an export",
                where=f"{other!r} and {name!r}",
                why=f"both become {safe_name(name)!r}",
                fix="rename one of them in the environment",
            )


def from_unit(dtype: str, layout: ImageLayout | None) -> bool:
    """Return whether the graph's input is in [0, 1] for this observation: for an image of bytes."""
    return layout is not None and dtype == "uint8" and layout.span in (None, BYTES)


def ports_of(spec: AgentSpec, memory: int, wide: Mapping[str, str]) -> Ports:
    """Return the inputs and outputs of a policy. Raises UsageError if names of observations collide.

    wide: name -> type, of observations that float32 does not resolve
    """
    refuse_collisions(spec.obs.names, "observations")
    action = spec.action
    inputs = list(_observations(spec, wide))
    outputs = [
        Port("version_number", (1,), "version of ML-Agents' format", values=(VERSION,)),
        Port("memory_size", (1,), "numbers of the memory", values=(memory,)),
    ]
    if action.branches:
        inputs.append(Port(MASKS, (action.discrete,), "1: allowed, 0: forbidden; branch after branch"))
    if memory:
        inputs.append(Port(MEMORY_IN, (1, memory), f"{MEMORY_OUT} of the previous step; zeros at a start"))
    if action.continuous:
        size, limits = (action.continuous,), "in [-1, 1]"
        outputs += [
            Port("continuous_actions", size, f"sampled, {limits}"),
            Port("continuous_action_output_shape", (1,), "number of continuous actions", values=size),
            Port("deterministic_continuous_actions", size, f"the mode, {limits}"),
        ]
    if action.branches:
        size, whole = (len(action.branches),), "choice of each branch, from 0"
        outputs += [
            Port("discrete_actions", size, f"sampled {whole}", "int64"),
            Port(
                "discrete_action_output_shape", (1, *size), "choices of each branch", values=action.branches
            ),
            Port("deterministic_discrete_actions", size, f"most probable {whole}", "int64"),
        ]
    if memory:
        outputs.append(Port(MEMORY_OUT, (1, memory), f"{MEMORY_IN} of the next step"))
    return Ports(tuple(inputs), tuple(outputs), memory)


def _observations(spec: AgentSpec, wide: Mapping[str, str]) -> Iterable[Port]:
    """Yield the port of each observation."""
    layouts = image_layouts(spec.obs)
    more = zip(spec.obs.items(), spec.obs.categories, strict=True)
    for number, ((name, shape, dtype), categories) in enumerate(more):
        layout = layouts.get(name)
        meaning = "numbers"
        if layout is not None:
            shape = (layout.channels, layout.height, layout.width)
            meaning = "image, in [0, 1]" if from_unit(dtype, layout) else "image"
        elif categories:
            meaning = f"choices from 0, of {', '.join(map(str, categories))}"
        elif dtype == "bool":
            meaning = "0 or 1"
        elif not dtype.startswith("float"):
            meaning = "whole numbers"
        kind = _WIDE[wide[name]] if name in wide else "float32"
        yield Port(f"obs_{number}", shape or (1,), f"{name}: {meaning}", kind)
