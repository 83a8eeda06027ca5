"""The seed and the noise of an actor's policies."""

from __future__ import annotations

from algorithm.config.schema import Config
from algorithm.seeding import stream_seed


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
