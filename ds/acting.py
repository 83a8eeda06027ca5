"""The seed and the noise of an actor's policies."""

from __future__ import annotations

from algorithm.config.schema import Config
from algorithm.core.seeding import stream_seed


def actor_seed(run_seed: int, number: int) -> int:
    """Return the seed of all draws of actor ``number``; the first actor draws as a single process would."""
    return run_seed if number == 0 else stream_seed(run_seed, "actor", number) >> 32


def with_noise(config: Config, slot: int) -> Config:
    """Return the configuration for ``slot``, with noise min(noise_increasing_rate · slot, noise_max)."""
    base = config.base_config
    if base.noise_increasing_rate == 0:
        return config
    noise = min(base.noise_increasing_rate * slot, base.noise_max)
    noises = (noise, noise) if noise > 0 else None
    return config.model_copy(
        update={"sac_config": config.sac_config.model_copy(update={"action_noise": noises})}
    )
