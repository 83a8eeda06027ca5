"""Export of one policy: drawn as a graph, looked at, compared, described. Nothing is written here."""

from __future__ import annotations

from dataclasses import dataclass

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent
from algorithm.core.errors import UsageError
from algorithm.export.card import PolicySource, card
from algorithm.export.check import Checker
from algorithm.export.config import ExportConfig
from algorithm.export.errors import required
from algorithm.export.graph import PolicyGraph, draw_graph
from algorithm.export.lint import lint
from algorithm.export.reference import Reference
from algorithm.nn.normalise import Normaliser


@dataclass(frozen=True)
class Exported:
    """A policy as a file: its bytes, and the content of its card."""

    data: bytes
    card: dict[str, object]


def export_policy(agent: Agent, keys: ExportConfig, origin: PolicySource) -> Exported:
    """Return the policy of an agent as a graph that has been checked.

    Raises UsageError for what cannot be asked for, ExportError for a graph that is not what it should be.
    """
    required("onnx")
    if keys.check:
        required("onnxruntime")
    policy = agent.new_policy("playing")
    if not isinstance(policy, Actor):
        raise UsageError(
            "this policy cannot be exported",
            where=f"algorithm: {agent.config.algorithm}",
            why="its family acts in a way of its own",
            fix="train with one of the families that the program brings",
        )
    graph = PolicyGraph(policy.choice, agent.spec, sampled=keys.sampled)
    model = draw_graph(graph, keys.opset)
    lint(model, keys.opset)
    data, checked = model.SerializeToString(), None
    if keys.check:
        reference = Reference(policy.choice, agent.spec)
        checked = Checker(data, graph.ports, reference, sampled=keys.sampled)()
    normaliser = policy.choice.model.normaliser
    content = card(
        model,
        graph.ports,
        agent.spec,
        origin,
        opset=keys.opset,
        sampled=keys.sampled,
        normalised=int(normaliser.count) if isinstance(normaliser, Normaliser) else None,
        checked=checked,
    )
    return Exported(data, content)
