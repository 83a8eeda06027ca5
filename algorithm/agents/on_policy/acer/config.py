"""The keys of ``acer_config``. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from algorithm.agents.on_policy.config import BARRED as BARRED
from algorithm.agents.on_policy.config import MEANINGLESS, SHARED, contradictions_of_unused_keys
from algorithm.agents.on_policy.family_config import RolloutConfig
from algorithm.core.fields import (
    AnyConfig,
    Contradiction,
    Finite,
    NotNegative,
    Positive,
    Share,
    Whole,
    contradicting,
    option,
)

BLOCK = "acer_config"
BLOCKS = {"ACER": BLOCK}
"""Name of the family -> its block of keys."""


def _other_capacity(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of another ``capacity`` on resume: a smaller one may not hold all rows."""
    if new.acer_config.capacity < old.acer_config.capacity:
        return "fixed: the rows in the checkpoint may not fit"
    return "free: there is room for more rows"


class AcerConfig(RolloutConfig):
    """Actor-critic with experience replay (Wang et al. 2017, arXiv 1611.01224)."""

    rollout_step: Whole = option(
        20,
        "Steps per environment in a rollout, and per window of the replay buffer.",
        ge=2,
        resume="fixed: the checkpoint holds an unfinished rollout of the old length",
    )
    capacity: Whole = option(
        50_000,
        "Rows of the replay buffer. An episode takes one row more than it has steps.",
        ge=1,
        resume=_other_capacity,
    )
    start_step: Whole = option(1000, "Rows in the replay buffer before updates draw from it.", ge=0)
    replay_ratio: NotNegative = option(4.0, "Mean replay updates per on-policy update (Poisson). 0: none.")
    learning_rate: Finite = option(0.0007, "Learning rate.", gt=0)
    q_coef: NotNegative = option(0.5, "Coefficient of ½ (Q_ret − Q)² in the loss.")
    entropy_coef: Finite = option(0.001, "Entropy coefficient in the loss.", ge=0)
    max_grad_norm: Positive | None = option(40.0, "Clip gradient norms to this. null: no clipping.")
    ratio_max: Positive = option(
        10.0, "c: truncates importance weights π/μ. A correction term makes up for it."
    )
    trust_region: Positive | None = option(
        1.0, "δ: limits the KL divergence's slope from the average policy. null: no limit."
    )
    average_decay: Share = option(0.99, "Decay of the average policy's parameters per update.")


_MEANINGLESS = {**MEANINGLESS, "discrete_dqn_like": "its trust region needs a distribution"}


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key of a block has no effect with ACER, and what to do; None if it has an effect."""
    if block == "replay_config":
        return "ACER has its own keys for the replay", f"set {BLOCK}.capacity, or leave it out"
    if (block, key) == ("nn_config", "rep.random_shift"):
        return "ACER learns from unaugmented observations", "leave it out"
    if block != "sac_config" or key in SHARED or key in _MEANINGLESS:
        return None
    fix = f"set {BLOCK}.{key}" if key in AcerConfig.model_fields else "leave it out"
    return "it is for SAC, and algorithm is ACER", fix


def contradictions(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield the contradictions of ACER, with dotted keys from the top level."""
    yield from contradictions_of_unused_keys(config, _MEANINGLESS)
    keys = acer_block(config)
    size = keys.rollout_step * config.base_config.n_envs
    yield from contradicting(
        (
            keys.capacity < 4 * size,
            (f"{BLOCK}.capacity", f"{BLOCK}.rollout_step"),
            f"a rollout has {size:,} steps, and the replay has no room for four rollouts",
            "raise capacity, or lower rollout_step or n_envs",
        ),
        (
            keys.replay_ratio > 0 and keys.start_step > keys.capacity,
            (f"{BLOCK}.start_step", f"{BLOCK}.capacity"),
            "the replay never holds that many rows",
            "lower start_step, or raise capacity",
        ),
    )


def acer_block(config: AnyConfig) -> AcerConfig:
    """Return ``acer_config`` of a behaviour's configuration."""
    block: AcerConfig = config.acer_config
    return block


def idle(config: AnyConfig, warm_up: int) -> Iterator[str]:
    """Yield a line for a training without an update, and for one that never learns from the replay.

    warm_up: steps before the first update
    """
    keys, last = acer_block(config), config.base_config.max_step
    if 0 < last < warm_up:
        yield f"nothing will be learned: the first update comes after {warm_up:,} steps"
    elif keys.replay_ratio and 0 < last < keys.start_step:
        yield (
            f"the replay is never used: {BLOCK}.start_step is {keys.start_step:,}, and the training ends at "
            f"{last:,}"
        )
