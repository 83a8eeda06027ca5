"""Policies of every kind to export, small and with random networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from algorithm.actions.actor import Actor
from algorithm.agents.base import Agent
from algorithm.config.extras_config import ExportConfig
from algorithm.core.spec import AgentSpec
from algorithm.extras.onnx.check import Checker
from algorithm.extras.onnx.exporting import Exported, export_policy
from algorithm.extras.onnx.graph import PolicyGraph, draw_graph
from algorithm.extras.onnx.reference import Reference
from tests.lib import grid as agents

SOURCE = {"step": 7}
PLAIN = {name: next(iter(values)) for name, values in agents.FACTORS.items()}
"""SAC on vectors and continuous actions, without memory."""


def agent_of(**row: str) -> Agent:
    """Return an agent; row: settings of the grid that differ from the first ones."""
    agent = agents.make_agent({**PLAIN, **row}, seed=3)
    normaliser = agent.learner.model.normaliser
    if normaliser.names:
        rows = agents.random_obs(agent.spec.obs, np.random.default_rng(0), 50)
        normaliser.observe({name: 3.0 * rows[name] + 1.0 for name in normaliser.names})
    return agent


def exported(agent: Agent, **keys: Any) -> Exported:
    """Return the export of an agent."""
    return export_policy(agent, ExportConfig(**keys), SOURCE)


def checker(agent: Agent, graph: PolicyGraph) -> Checker:
    """Return the check of a graph that may have been damaged, against the agent as it is."""
    return Checker(draw_graph(graph, 15).SerializeToString(), graph.ports, reference(agent))


def graph_of(agent: Agent) -> PolicyGraph:
    """Return the graph before it is drawn."""
    return PolicyGraph(actor(agent).choice, agent.spec)


def reference(agent: Agent) -> Reference:
    """Return the policy in torch."""
    return Reference(actor(agent).choice, agent.spec)


def actor(agent: Agent) -> Actor:
    """Return the policy without exploration."""
    policy = agent.new_policy("playing")
    assert isinstance(policy, Actor)
    return policy


def with_names(agent: Agent, names: Mapping[str, str]) -> AgentSpec:
    """Return the agent's spec with other names of observations."""
    obs = agent.spec.obs
    return replace(agent.spec, obs=replace(obs, names=tuple(names.get(one, one) for one in obs.names)))


class Added(torch.nn.Module):
    """A policy's network with something of a user's in front of it."""

    def __init__(self, policy: torch.nn.Module, own: torch.nn.Module) -> None:
        super().__init__()
        self.own, self.policy = own, policy

    def forward(self, state: torch.Tensor, obs: Mapping[str, torch.Tensor]) -> Any:
        return self.policy(self.own(state), obs)
