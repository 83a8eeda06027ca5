"""Acting with a policy of Soft Actor-Critic, in the learner's process and elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import nn

from algorithm.actions.actor import Actor
from algorithm.actions.noise import Noise, NoNoise, SpreadNoise
from algorithm.actions.parts import make_parts
from algorithm.agents.behaviour_policy import BehaviourPolicy
from algorithm.agents.networks import extensions_of, make_networks
from algorithm.agents.roles import Acting, BehaviourConfig
from algorithm.agents.sac.config import SacConfig
from algorithm.agents.sac.model import NETWORKS
from algorithm.agents.sac.values import make_values, with_values
from algorithm.core.seeding import stream, stream_seed
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.extensions.base import Extension
from algorithm.nn.acting.model import ActingModel
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.loader import NnFile
from algorithm.nn.normalise import NoNormaliser, Normaliser


def new_actor(
    spec: AgentSpec,
    model: ActingModel,
    sac: SacConfig,
    *,
    device: torch.device,
    exploring: bool,
    seed: int,
    extensions: Sequence[Extension] = (),
) -> Actor:
    """Return an actor; exploring: with ``action_noise``, ε-greedy choices and noisy layers."""
    noise: Noise = NoNoise()
    if exploring and sac.action_noise is not None:
        noise = SpreadNoise(*sac.action_noise)
    epsilon = sac.discrete_dqn_epsilon if exploring else 0.0
    parts = make_parts(spec.action, greedy_branches=sac.discrete_dqn_like, epsilon=epsilon)
    return Actor(
        model,
        parts,
        device=device,
        exploring=exploring,
        seed=seed,
        extensions=extensions,
        noise=noise,
        value_of=make_values(sac, spec.action, device).point,
    )


def acting_parts(
    model: ActingModel, extensions: Iterable[Extension], action: ActionSpec, sac: SacConfig
) -> dict[str, nn.Module]:
    """Return the modules that an exploring actor uses, by name; a learner's other modules are not sent.

    Critics are among them only if a discrete part is greedy, extensions only if they choose among actions.
    """
    parts: dict[str, nn.Module] = {"normaliser": model.normaliser, "rep": model.rep, "policy": model.policy}
    if asks_critics(action, sac):
        parts["q"] = model.q
    scorers = {type(one).__name__: one for one in extensions if one.num_candidates > 1}
    return parts | scorers


def asks_critics(action: ActionSpec, sac: SacConfig) -> bool:
    """Return whether actions are chosen by the critics."""
    return make_parts(action, greedy_branches=sac.discrete_dqn_like).discrete.asks_critics


def make_acting(
    spec: AgentSpec,
    config: BehaviourConfig,
    *,
    nn_file: NnFile | None,
    behaviour: str,
    run_seed: int,
    own_seed: int,
    device: torch.device,
) -> Acting:
    """Build the exploring policy of a remote actor, and the modules that its weights are loaded into."""
    sac = config.sac_config
    networks = make_networks(with_values(spec, sac), config, nn_file, NETWORKS, run_seed, behaviour)
    extensions = [one.to(device) for one in extensions_of(spec, config, networks, run_seed, behaviour)]
    make_q = partial(networks.make, "ModelQ")
    model = ActingModel(
        (Normaliser(spec.obs) if sac.use_normalization else NoNormaliser()).to(device),
        networks.rep.to(device),
        networks.built["ModelPolicy"].to(device),
        Ensemble(make_q, sac.ensemble_q_num, device=device) if asks_critics(spec.action, sac) else None,
    )
    actor = new_actor(
        spec,
        model,
        sac,
        device=device,
        exploring=True,
        seed=stream_seed(own_seed, "acting", behaviour),
        extensions=extensions,
    )
    policy = BehaviourPolicy(
        spec,
        actor,
        stream(own_seed, "warm-up", behaviour),
        warming_up=sac.start_step > 0,
        repeat_c=sac.start_repeat_c,
        repeat_d=sac.start_repeat_d,
    )
    return Acting(policy, acting_parts(model, extensions, spec.action, sac))
