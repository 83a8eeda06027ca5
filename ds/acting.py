"""Who acts in an actor: the networks that acting needs, and nothing that learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from algorithm.config.schema import Config
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.run.agent import extensions_of, make_networks
from algorithm.run.player import BehaviourPolicy
from algorithm.run.seeding import stream, stream_seed
from algorithm.sac.actor import Actor
from algorithm.sac.model import Model
from algorithm.spec import AgentSpec
from ds.weights import Parts, acting_parts


@dataclass(frozen=True)
class Acting:
    """A player, and the modules that its weights are loaded into."""

    player: BehaviourPolicy
    parts: Parts


def actor_seed(run_seed: int, number: int) -> int:
    """Of all that actor ``number`` of a run draws: the first one acts as a single process would."""
    return run_seed if number == 0 else stream_seed(run_seed, "actor", number) >> 32


def with_noise(config: Config, slot: int) -> Config:
    """The configuration of actor k in its slot: action noise min(noise_increasing_rate · k, noise_max)."""
    base = config.base_config
    if base.noise_increasing_rate == 0:
        return config
    noise = min(base.noise_increasing_rate * slot, base.noise_max)
    noises = (noise, noise) if noise > 0 else None
    return config.model_copy(
        update={"sac_config": config.sac_config.model_copy(update={"action_noise": noises})}
    )


def make_acting(
    spec: AgentSpec,
    config: Config,
    *,
    nn_file: Path | None,
    behaviour: str,
    run_seed: int,
    own_seed: int,
    device: torch.device,
) -> Acting:
    """Everything of one behaviour; its weights are those of the run's first moment until others come."""
    sac = config.sac_config
    networks = make_networks(spec, config, nn_file, run_seed, behaviour)
    extensions = [one.to(device) for one in extensions_of(spec, config, networks, run_seed, behaviour)]
    model = Model(
        networks,
        Normaliser(spec.obs) if sac.use_normalization else NoNormaliser(),
        action_size=spec.action.continuous,
        ensemble_size=sac.ensemble_q_num,
        device=device,
    )
    actor = Actor(
        spec,
        model,
        sac,
        device=device,
        exploring=True,
        seed=stream_seed(own_seed, "acting", behaviour),
        extensions=extensions,
    )
    player = BehaviourPolicy(
        spec,
        actor,
        stream(own_seed, "warm-up", behaviour),
        warming_up=sac.start_step > 0,
        repeat_c=sac.start_repeat_c,
        repeat_d=sac.start_repeat_d,
    )
    return Acting(player, acting_parts(model, extensions, spec.action, sac))
