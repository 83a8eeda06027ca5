"""Acting with a policy of an on-policy family, in the learner's process and in remote actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import nn

from algorithm.actions.actor import Actor
from algorithm.actions.parts import make_parts
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.networks import make_networks
from algorithm.agents.on_policy.family_config import own_block
from algorithm.agents.on_policy.networks import NETWORKS, make_acting_model
from algorithm.agents.roles import Acting, ActingInputs, RemoteLimits
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.nn.acting import ActingModel
from algorithm.nn.loader import Network

SHORTEST = 16
"""Smallest number of transitions in a remote actor's segment, unless a rollout is shorter."""


def clipping(spec: AgentSpec) -> AgentSpec:
    """Return the spec with continuous actions that are clipped, not squashed."""
    return replace(spec, action=replace(spec.action, squash="clip"))


def acting_parts(model: ActingModel) -> dict[str, nn.Module]:
    """Return the modules that an acting policy needs, by name: those that remote actors are sent."""
    return {"normaliser": model.normaliser, "rep": model.rep, "policy": model.policy}


def new_actor(spec: AgentSpec, model: ActingModel, *, device: torch.device, seed: int) -> Actor:
    """Return an actor that samples from the policy's distribution, without further exploration."""
    return Actor(model, make_parts(spec.action), device=device, exploring=False, seed=seed)


def make_acting(
    inputs: ActingInputs,
    *,
    spec_of: Callable[[AgentSpec], AgentSpec] = clipping,
    networks_of: Callable[[AgentSpec], Mapping[str, Network]] = lambda _: NETWORKS,
) -> Acting:
    """Build the policy of a remote actor, and the modules into which its weights are loaded.

    spec_of:     function from the environment's spec to that of the family's policies
    networks_of: function from the latter to the classes in an ``nn.py``
    """
    inputs = replace(inputs, spec=spec_of(inputs.spec))
    spec, device, behaviour = inputs.spec, inputs.device, inputs.behaviour
    networks = make_networks(inputs, networks_of(spec))
    model = make_acting_model(inputs, networks)
    actor = new_actor(spec, model, device=device, seed=stream_seed(inputs.own_seed, "acting", behaviour))
    warm_up = stream(inputs.own_seed, "warm-up", behaviour)
    return Acting(BehaviourPolicy(spec, actor, warm_up, warming_up=False), acting_parts(model))


def remote_limits(config: BehaviourConfig) -> RemoteLimits:
    """Return the limits on remote actors' segments: short, so that a rollout has those of several actors."""
    keys = own_block(config)
    return RemoteLimits(segments_of(keys.rollout_step), max_lag=None if keys.use_vtrace else 1)


def segments_of(rollout_step: int) -> int:
    """Return the length of remote actors' segments: an eighth of a rollout, or :data:`SHORTEST`."""
    return min(rollout_step, max(SHORTEST, rollout_step // 8))
