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
from algorithm.extras.onnx.names import Ports, from_unit
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

    origin: entries of the card on run and checkpoint
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
    data = model.SerializeToString()
    difference = Checker(data, PolicyGraph(choice, spec, trained=True), spec)() if keys.check else None
    normaliser = choice.model.normaliser
    card = {
        **origin,
        "version": VERSION,
        "exporter": f"{model.producer_name} {model.producer_version}",
        "opset": keys.opset,
        "observations": observations(spec, graph.ports),
        "branches": list(spec.action.branches),
        "continuous": spec.action.continuous,
        "environment_action": spec.action.description,
        "memory": graph.ports.memory,
        "normalised_observations": int(normaliser.count) if isinstance(normaliser, Normaliser) else None,
        "largest_difference": difference,
    }
    return Exported(data, card)


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
                "stored": [dtype, *shape],
                "axes": [axis + 1 for axis in axes],
                "divisor": divisor,
                "type": port.dtype,
                "shape": list(port.shape),
            }
        )
    return conversions
