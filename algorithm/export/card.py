"""Card of a policy's file: ``NAME.json`` beside ``NAME.onnx``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algorithm.core.program import VERSION
from algorithm.core.spec import AgentSpec
from algorithm.export.check import Checked
from algorithm.export.lint import operators, target_of
from algorithm.export.names import Port, Ports, cleaned
from algorithm.nn.layers.images import image_layouts

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class PolicySource:
    """Where a policy comes from.

    env, run, behaviour: names · step: of the checkpoint
    config: SHA-256 of the run's configuration · commit: of the program that trained it; empty if unknown
    """

    env: str
    run: str
    behaviour: str
    step: int
    config: str
    commit: str = ""

    @property
    def content(self) -> dict[str, object]:
        """Its part of the card."""
        return {
            "environment": self.env,
            "run": self.run,
            "behaviour": self.behaviour,
            "step": self.step,
            "config_sha256": self.config,
            "trained_by_commit": self.commit,
        }


def card(
    model: ModelProto,
    ports: Ports,
    spec: AgentSpec,
    origin: PolicySource,
    *,
    opset: int,
    sampled: bool,
    normalised: int | None,
    checked: Checked | None,
) -> dict[str, object]:
    """Return the content of the card.

    normalised: observations that the normaliser has counted; None without one
    checked: outcome of the check; None: there was none
    """
    target, action = target_of(opset), spec.action
    kinds = ["discrete"] * bool(action.branches) + ["continuous"] * bool(action.continuous)
    return {
        **origin.content,
        "version": VERSION,
        "exporter": f"{model.producer_name} {model.producer_version}",
        "opset": opset,
        "target": {"name": target.name, "operators": target.source, "read": target.date},
        "operators": dict(operators(model)),
        "inputs": [_port(port) for port in ports.inputs],
        "outputs": [_port(port) for port in ports.outputs],
        "observations": observations(spec, ports),
        "actions": kinds,
        "branches": list(action.branches),
        "continuous": action.continuous,
        "environment_action": action.description,
        "memory": ports.memory,
        "one_action": ("sampled" if sampled else "deterministic") if ports.memory else "",
        "normalised_observations": normalised,
        "largest_difference": None if checked is None else checked.difference,
        "compared_draws": None if checked is None else checked.draws,
    }


def _port(port: Port) -> Mapping[str, object]:
    shape: list[object] = ["batch"] if port.batched else []
    return {
        "name": port.name,
        "type": port.dtype,
        "shape": [*shape, *port.shape],
        "meaning": port.meaning,
    }


def observations(spec: AgentSpec, ports: Ports) -> list[dict[str, object]]:
    """Return how each observation becomes an input: transposed by ``axes``, divided, in a shape.

    ``axes`` count from 1, behind the batch.
    """
    layouts, found = image_layouts(spec.obs), []
    for port, (name, shape, dtype) in zip(ports.inputs, spec.obs.items(), strict=False):
        layout = layouts.get(name)
        axes, divisor = tuple(range(len(shape))), 1
        if layout is not None:  # frames and channels, height, width
            axes, divisor = (*layout.order[2:], *layout.order[:2]), 255 if dtype == "uint8" else 1
        found.append(
            {
                "name": port.name,
                "observation": name,
                "field": cleaned(name),
                "stored": [dtype, *shape],
                "axes": [axis + 1 for axis in axes],
                "divisor": divisor,
                "shape": list(port.shape),
            }
        )
    return found
