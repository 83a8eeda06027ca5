"""Acting with the policy of an off-policy algorithm, in the learner's process and in remote actors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from algorithm.actions.actor import Actor
from algorithm.actions.continuous import Noise, NoNoise, SpreadNoise
from algorithm.actions.parts import ActionParts
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.objective import AlgorithmSpec
from algorithm.agents.off_policy.values.choice import make_values, with_values
from algorithm.agents.roles import Acting, ActingInputs
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Extension, Horizon, by_horizon
from algorithm.nn.acting import ActingModel
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.normalise import NoNormaliser, Normaliser


def new_actor(
    spec: AgentSpec,
    model: ActingModel,
    keys: OffPolicyConfig,
    parts: ActionParts,
    *,
    device: torch.device,
    exploring: bool,
    seed: int,
    extensions: Sequence[Extension] = (),
) -> Actor:
    """Return an actor of the policy ``model``; exploring: with ``action_noise`` and noisy layers."""
    noise: Noise = NoNoise()
    if exploring and keys.action_noise is not None:
        noise = SpreadNoise(*keys.action_noise)
    return Actor(
        model,
        parts,
        device=device,
        exploring=exploring,
        seed=seed,
        extensions=extensions,
        noise=noise,
        value_of=make_values(keys, spec.action, device).point,
    )


def behaviour_policy(
    spec: AgentSpec, keys: OffPolicyConfig, actor: Actor, rng: np.random.Generator, *, greedy: bool = False
) -> BehaviourPolicy:
    """Return the policy that collects experience: random actions for ``start_step``, then the actor's."""
    return BehaviourPolicy(
        spec,
        actor,
        rng,
        greedy=greedy,
        warming_up=keys.start_step > 0,
        repeat_c=keys.start_repeat_c,
        repeat_d=keys.start_repeat_d,
    )


def acting_parts(
    model: ActingModel, extensions: Iterable[Extension], parts: ActionParts
) -> dict[str, nn.Module]:
    """Return the modules that an exploring actor uses, by name: those that remote actors are sent.

    Critics are among them only if a discrete part is greedy, extensions only if they choose among actions.
    """
    used: dict[str, nn.Module] = {"normaliser": model.normaliser, "rep": model.rep, "policy": model.policy}
    if parts.discrete.asks_critics:
        used |= {"q": model.q, "signal_q": model.signal_q}
    scorers = {
        type(extension).__name__: extension for extension in extensions if extension.num_candidates > 1
    }
    return used | scorers


def make_acting(algorithm: AlgorithmSpec, inputs: ActingInputs) -> Acting:
    """Build the exploring policy of a remote actor, and the modules that its weights are loaded into."""
    spec, device, behaviour = inputs.spec, inputs.device, inputs.behaviour
    keys = algorithm.keys(inputs.config)
    parts = algorithm.make_parts(spec.action, inputs.config, True)
    networks = make_networks(replace(inputs, spec=with_values(inputs.spec, keys)), NETWORKS)
    extensions = [extension.to(device) for extension in extensions_of(inputs, networks)]
    make_q = partial(networks.make, "ModelQ")
    horizons = by_horizon(extensions, Horizon(keys.gamma)) if parts.discrete.asks_critics else ()
    model = ActingModel(
        (Normaliser(spec.obs) if keys.use_normalization else NoNormaliser()).to(device),
        networks.rep.to(device),
        networks.built["ModelPolicy"].to(device),
        [Ensemble(make_q, keys.ensemble_q_num, device=device) for _ in horizons],
    )
    actor = new_actor(
        spec,
        model,
        keys,
        parts,
        device=device,
        exploring=True,
        seed=stream_seed(inputs.own_seed, "acting", behaviour),
        extensions=extensions,
    )
    policy = behaviour_policy(spec, keys, actor, stream(inputs.own_seed, "warm-up", behaviour))
    return Acting(policy, acting_parts(model, extensions, parts))
