"""Export of one policy: its graph, checked, and its card. Nothing is written to disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent
from algorithm.config.extras_config import ExportConfig
from algorithm.core.errors import UsageError
from algorithm.core.program import VERSION
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.check import Checker
from algorithm.extras.onnx.errors import required
from algorithm.extras.onnx.graph import PolicyGraph, draw_graph
from algorithm.extras.onnx.lint import lint, operators, target_of
from algorithm.extras.onnx.names import Port, Ports, from_unit, safe_name
from algorithm.extras.onnx.reference import Reference
from algorithm.nn.critic_only import seen_by_policy
from algorithm.nn.layers.images import image_layouts
from algorithm.nn.normalise import Normaliser


@dataclass(frozen=True)
class Exported:
    """Contents of the two files of a policy: ``NAME.onnx`` and its card, ``NAME.json``."""

    data: bytes
    card: dict[str, object]


def export_policy(agent: Agent, keys: ExportConfig, origin: Mapping[str, object]) -> Exported:
    """Return the policy of an agent as a checked graph, with its card.

    origin: entries of the card about the run

    Raises UsageError for a policy that cannot be exported, ExportError for a graph that fails a check.
    """
    required("onnx")
    if keys.check:
        required("onnxruntime")
    policy, spec = agent.new_policy("playing"), agent.spec
    if not isinstance(policy, Actor):
        raise UsageError(
            "this policy cannot be exported",
            where=f"algorithm: {agent.config.algorithm}",
            why="it has its own way of acting",
            fix="train with a built-in algorithm",
        )
    choice, hidden = policy.choice, agent.config.run.critic_observations
    if hidden and not choice.parts.discrete.asks_critics:
        choice = replace(choice, absent={name: of for name, of, _ in spec.obs.items() if name in hidden})
        spec = seen_by_policy(spec, hidden)
    graph = PolicyGraph(choice, spec)
    model = draw_graph(graph, keys.opset)
    lint(model, keys.opset, wide=bool(graph.wide))
    data = model.SerializeToString()
    difference = Checker(data, graph.ports, Reference(choice, spec))() if keys.check else None
    normaliser = choice.model.normaliser
    card = {
        **origin,
        "version": VERSION,
        "exporter": f"{model.producer_name} {model.producer_version}",
        "opset": keys.opset,
        "operators": dict(operators(model)),
        **_interface(graph.ports, spec, keys),
        "normalised_observations": int(normaliser.count) if isinstance(normaliser, Normaliser) else None,
        "largest_difference": difference,
    }
    return Exported(data, card)


def _interface(ports: Ports, spec: AgentSpec, keys: ExportConfig) -> dict[str, object]:
    """Return the card's entries on the target runtime, inputs, outputs and actions."""
    target, action = target_of(keys.opset), spec.action
    kinds = ["discrete"] * bool(action.branches) + ["continuous"] * bool(action.continuous)
    return {
        "target": {"name": target["name"], "operators": target["source"], "read": target["date"]},
        "inputs": [_port(port) for port in ports.inputs],
        "outputs": [_port(port) for port in ports.outputs],
        "observations": observations(spec, ports),
        "actions": kinds,
        "branches": list(action.branches),
        "continuous": action.continuous,
        "environment_action": action.description,
        "memory": ports.memory,
    }


def _port(port: Port) -> Mapping[str, object]:
    """Return an input or output as an entry of the card; its shape begins with "batch" if it is batched."""
    shape: list[object] = ["batch"] if port.batched else []
    return {
        "name": port.name,
        "type": port.dtype,
        "shape": [*shape, *port.shape],
        "meaning": port.meaning,
    }


def observations(spec: AgentSpec, ports: Ports) -> list[dict[str, object]]:
    """Return for each observation how it becomes an input: transposed by ``axes``, divided, reshaped.

    ``axes`` count from 1, behind the batch.
    """
    layouts, conversions = image_layouts(spec.obs), []
    for port, (name, shape, dtype) in zip(ports.inputs, spec.obs.items(), strict=False):
        layout = layouts.get(name)
        axes, divisor = tuple(range(len(shape))), 1
        if layout is not None:  # frames and channels, height, width
            axes, divisor = (*layout.order[2:], *layout.order[:2]), 255 if from_unit(dtype, layout) else 1
        conversions.append(
            {
                "name": port.name,
                "observation": name,
                "field": safe_name(name),
                "stored": [dtype, *shape],
                "axes": [axis + 1 for axis in axes],
                "divisor": divisor,
                "type": port.dtype,
                "shape": list(port.shape),
            }
        )
    return conversions
